//! Tests the driver over real sockets: clients, TLS, upstreams, and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy knows only of functions marked as such"
)]

mod admin;
mod client_limits;
mod definitions;
mod forwarding;
mod gateway;
mod harness;
mod limits;
mod log;
mod proxy;
mod shutdown;
mod tls;
mod zookeeper;
