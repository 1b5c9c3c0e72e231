//! The front ends and their configuration: a proxy in front of a control plane, the driver of a BCS cluster, a gateway
//! in front of such drivers, and a webhook server for kube-apiserver.
//!
//! [`AdminPort::open`] opens the admin port before there is a [`Host`](admittance::Host). [`Driver::bind`] takes a
//! [`Config`], the host and that port, and binds the port for clients. [`Driver::run`] serves until it is stopped. A
//! request passes, in this order: the time limits of its connection, the limit on requests in flight, the access log,
//! the host's chains (`admittance::AdmissionLayer`), and the upstream. An AdmissionReview ends at the chains
//! (`admittance::ReviewService`); a gateway has no chains for requests to BCS drivers.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod config;
mod driver;
mod fronts;
mod handler;
mod lists;
mod locations;
mod metric_names;
mod namespaces;
mod ports;
mod shutdown;
pub mod status;
mod trace;

pub use config::{
    Config, HistoryConfig, Limits, ListConfig, ListenConfig, LogConfig, LogFormat, LogLevel, StoreConfig, SwitchMode,
    TracingConfig, TracingProtocol, parse_lease,
};
pub use driver::{Connections, Driver, Error};
pub use fronts::{FrontConfig, ProxyConfig, ReviewsConfig, StartContext, StartedFront};
pub use lists::{IncompleteList, ListsError, UpstreamLists};
pub use locations::{
    CustomResources, DefinitionFiles, DefinitionLocation, KubernetesResources, LocationError, ZooKeeperNodes,
    with_definitions,
};
pub use metric_names::{describe_metrics, metrics};
pub use namespaces::{FileNamespaces, NamespacesConfig};
pub use ports::{AdminPort, bind_advice};
pub use shutdown::{Shutdown, ShutdownResult};
pub use trace::{Traces, TracesError};
