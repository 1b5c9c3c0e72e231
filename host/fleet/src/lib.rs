//! What the replicas of this program in a Kubernetes cluster share: definitions as resources of the cluster, and a leader
//! that writes their statuses.

#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod chains;
mod leader;
mod metrics;
mod status;

pub use chains::ChainStore;
pub use leader::Leader;
pub use metrics::describe_metrics;
