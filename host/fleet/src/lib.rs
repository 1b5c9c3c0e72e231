//! What the replicas of this program in a Kubernetes cluster share: definitions as resources of the cluster.

#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod chains;

pub use chains::ChainStore;
