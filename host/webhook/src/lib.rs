//! Webhooks: hooks for which a server returns the verdict over HTTPS.
//!
//! A [`Webhook`] is a [`Hook`](admittance_admission::Hook) created from a [`WebhookConfig`]: the
//! [protocol](admittance_admission::Protocol) and address of the server, and the CAs that are trusted for it.
//! [`WebhookClients`] holds pools of connections; webhooks that trust the same CAs share one pool.
//!
//! Redirects are not followed, and proxies are not used. A failed call returns a
//! [`Failure`](admittance_admission::Failure), whose kind tells what has failed, and whose message tells what to do.
//!
//! The only log messages of this crate are about dropped audit annotations. Everything else is returned to the caller.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod call;
mod client;
mod config;
mod connect;
mod endpoint;
mod error;
mod resolve;
mod resource;
mod review;
mod tls;
mod webhook;

pub use client::WebhookClients;
pub use config::WebhookConfig;
pub use error::Error;
pub use resolve::{Address, AddressOverrides};
pub use webhook::Webhook;
