//! Connections, as everybody needs them who opens or accepts some: listeners and the limits on what clients may take,
//! TLS of servers and clients, the servers behind this program, and what an error of a connection means.
//!
//! Nothing in here knows what the connections are for.

#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

pub mod bearer;
pub mod body;
pub mod causes;
pub mod limits;
pub mod listener;
mod telemetry;
pub mod tls;
pub mod upstream;

pub use telemetry::{count_upstream_error, describe_metrics, status_class};
