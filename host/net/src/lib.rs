//! Network connections: listeners that limit clients, TLS for servers and clients, upstream servers, and explanations
//! of connection errors. This crate does not depend on what the connections are used for.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod backoff;
pub mod bearer;
pub mod body;
pub mod budget;
pub mod causes;
pub mod client;
pub mod header;
pub mod informational;
pub mod limits;
pub mod listener;
mod metric;
mod telemetry;
pub mod tls;
pub mod trace;
mod turns;
pub mod upstream;
pub mod workers;

pub use backoff::Backoff;
pub use metric::{Metric, MetricKind};
pub use telemetry::{METRICS, begin_at_zero, count_upstream_error, status_class};
