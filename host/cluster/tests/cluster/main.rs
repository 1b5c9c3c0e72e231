//! Tests of the crate with an API server on real TLS sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "JSON in tests is what the test wrote")]

#[expect(dead_code, reason = "another crate's tests use the rest of it")]
mod api_server;
mod authorize;
mod connection;
mod events;
mod forward;
mod kinds;
mod lease;
mod members;
mod namespaces;
mod resources;
mod setting;
