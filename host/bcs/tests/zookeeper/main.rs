//! Tests of sessions, members and registrations with real servers of ZooKeeper.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod acl;
mod ensemble;
mod following;
mod frames;
mod interruption;
mod old_server;
mod old_version;
mod registering;
mod scene;
mod sessions;
