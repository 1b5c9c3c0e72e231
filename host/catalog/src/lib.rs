//! Module references to bytes: where modules come from, their digests, and the compiled forms kept on disk.
