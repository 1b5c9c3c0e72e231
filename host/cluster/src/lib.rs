//! A Kubernetes API server as the source of namespace labels, of look-ups for plugins, and of what users
//! may do, and as a place where definitions are kept.
//!
//! A [`Cluster`] watches what it is asked for, keeps it, and answers from there. Before the first list is
//! complete, and when a watch is down for long, it asks the server itself. A server that is away stops
//! only the look-ups that need it: nothing here ends or blocks the program.

mod authorize;
mod cache;
mod cluster;
mod config;
mod connection;
mod forward;
mod health;
mod item;
mod kinds;
mod metrics;
mod namespaces;
mod request_error;
mod resources;
mod selector;
mod watch;

pub use cluster::{Cluster, ClusterStatus};
pub use config::{ClusterConfig, ClusterSource, ConfigError};
pub use forward::ForwardError;
pub use health::{STALE_LIMIT, WatchState, WatchStatus};
pub use metrics::describe_metrics;
pub use resources::{Resource, ResourceError, ResourceKind, Resources};
