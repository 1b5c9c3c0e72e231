//! A Kubernetes API server as the source of namespace labels, lookups for plugins and access reviews, and as a store of
//! definitions.
//!
//! A [`Cluster`] watches the kinds that are looked up, and answers from a cache. Before the first list is complete, and
//! when a watch has been down for too long, it sends a request to the server instead. An unavailable server affects
//! only the lookups that need it. In tests of plugins, [`ManifestFiles`] replace the server.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod answer;
mod authorize;
mod cache;
mod cluster;
mod config;
mod connection;
mod discovery;
mod events;
mod forward;
mod health;
mod item;
mod kinds;
mod lease;
mod manifests;
mod members;
mod metrics;
mod namespaces;
mod request_error;
mod resources;
mod roles;
mod selector;
mod watch;

pub use answer::{AnswerError, ApiServerAnswer};
pub use cluster::{Cluster, ClusterStatus};
pub use config::{ClusterConfig, ClusterSource, ConfigError};
pub use discovery::ServedKind;
pub use events::{ClusterEvent, EventObject, EventWriter};
pub use forward::ForwardError;
pub use health::{ClusterWatch, STALE_LIMIT, WatchState};
pub use lease::{Election, ElectionTimes, LeaderStatus};
pub use manifests::ManifestFiles;
pub use members::{Annotations, LeaseMember, LeaseMembership, ReplicaMembers};
pub use metrics::METRICS;
pub use resources::{Resource, ResourceEdit, ResourceError, ResourceKind, WatchedResources, next_change};
