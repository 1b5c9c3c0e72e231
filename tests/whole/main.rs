//! The program as a whole, over real sockets and real TLS.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod accounts;
mod authors;
mod bcs;
mod clusters;
mod commands;
mod demo;
mod documents;
mod gatekeeper;
mod hostile;
mod hot;
mod house;
mod import;
mod kubernetes;
mod lifecycle;
mod manifests;
mod mesos;
mod nomad;
mod operator;
mod outbound;
mod policies;
mod scene;
mod webhooks;
