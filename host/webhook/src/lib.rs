//! Remote webhooks as stages: an HTTPS server that gives the verdict.
//!
//! A [`Webhook`] is a [`Hook`](admittance_admission::Hook) made of a [`WebhookConfig`]: which of two
//! [protocols](admittance_admission::Protocol) the server speaks, where it is, and whom its certificate must come from.
//! [`WebhookClients`] holds the pooled connections; webhooks that trust the same roots share one pool.
//!
//! No call is repeated, redirected or sent through a proxy. Every way in which a call can end badly is
//! a [`Failure`](admittance_admission::Failure) of its own kind, with a sentence that says what to do.
//!
//! This crate logs only what has no other way out: an audit annotation that is dropped.

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
pub use review::write_review;
pub use webhook::Webhook;
