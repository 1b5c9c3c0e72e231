//! Shares work among the replicas of this program in a Kubernetes cluster. Definitions are custom resources. The
//! replicas agree on a table and on a leader through Leases. The leader writes statuses, updates webhook configurations
//! and their certificate, and audits existing objects.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

pub mod audit;
pub mod certificates;
mod chains;
mod leader;
mod metrics;
mod policies;
mod registration;
mod replicas;
mod status;
mod webhooks;

pub use chains::{ChainStore, RESOURCE_PLURALS};
pub use leader::Leader;
pub use metrics::METRICS;
pub use policies::{PolicyGroup, PolicyStore, PolicySystem};
pub use registration::{
    DEFINITIONS_PATH, IGNORE_LABEL, RegisteredChain, RegisteredWebhook, WebhookRegistration, configurations,
    definitions_configuration, excluded_namespaces, excluded_subjects, labels,
};
pub use webhooks::{CertificateConfig, OwnCertificate, Webhooks, WebhooksConfig, WebhooksStatus};
