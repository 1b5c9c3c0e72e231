//! Tests how decisions are listed, followed, explained, replayed, and written to disk and to servers.

mod following;
mod listing;
mod roles;
mod scene;
mod sinks;
