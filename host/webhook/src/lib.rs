//! Remote webhooks as stages: an HTTPS server gives the verdict.
//!
//! A [`Webhook`] is a [`Hook`](admittance_admission::Hook) created from a [`WebhookConfig`]: the
//! [protocol](admittance_admission::Protocol) and address of the server, and the CAs that are trusted for it.
//! [`WebhookClients`] holds the pooled connections; webhooks that trust the same roots share one pool.
//!
//! Redirects and proxies are never used. Every failed call is a [`Failure`](admittance_admission::Failure) with its own
//! kind and a message that says what to do.
//!
//! This crate logs only dropped audit annotations; callers get everything else as a return value.
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
pub use resolve::{Address, Resolve};
pub use webhook::Webhook;
