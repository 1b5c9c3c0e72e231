//! HTTP requests that plugins send.
//!
//! [`Outbound`] sends only requests that the stage's grant allows: with https, or with http to a loopback address that
//! the grant names. It uses no proxies and follows no redirects. This crate resolves host names itself, and connects
//! only to addresses that are public or in a network that the grant names. It also adds the credentials, so that
//! plugins never have them. Responses are cached as their `Cache-Control` allows.
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
