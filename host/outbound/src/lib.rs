//! HTTP requests that plugins send.
//!
//! [`Outbound`] sends what a stage grants and no more: with https, or with http to a loopback address that the grant
//! names, without proxies and redirects. A host name is resolved by this crate, and only addresses that are public,
//! or in a network that the grant names, are connected to. Credentials are added here, so that plugins never have
//! them. Responses are cached as their `Cache-Control` allows.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod address;
mod cache;
mod client;
mod config;
mod metrics;
mod request;
mod sender;

pub use config::{Credential, OutboundConfig};
pub use metrics::METRICS;
pub use sender::Outbound;
