//! What the replicas of this program in a Kubernetes cluster share: definitions as resources of the cluster, webhook
//! configurations with their certificates, a leader that writes statuses and keeps these, and the table that all serve.

#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

pub mod certificates;
mod chains;
mod leader;
mod metrics;
mod registration;
mod replicas;
mod status;
mod webhooks;

pub use chains::{ChainStore, RESOURCES};
pub use leader::Leader;
pub use metrics::describe_metrics;
pub use registration::{
    DEFINITIONS_PATH, IGNORE_LABEL, RegisteredChain, Registration, Webhook, configurations, excluded,
    excluded_namespaces, labels, of_definitions,
};
pub use webhooks::{CertificateConfig, OwnCertificate, Webhooks, WebhooksConfig, WebhooksStatus};
