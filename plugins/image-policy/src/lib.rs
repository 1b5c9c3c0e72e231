//! Rewrites and refuses container images.
