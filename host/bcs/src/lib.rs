//! Support for BCS. BCS is a container platform; this program stands in front of its Mesos clusters.
//!
//! - [`Bcs`] is the dialect of BCS's driver, and [`routes`] is the table of the driver's routes.
//! - [`MesosDriver`] replaces the driver or sits in front of it. It answers requests for definitions itself. All other
//!   requests pass through the chains, and then go to the scheduler, to a console or to a kube-apiserver.
//! - [`zookeeper`] has the sessions with ZooKeeper, in which servers register and are found.
//! - [`stores`] has the definition stores that several drivers share.
//! - [`Drivers`] lets the drivers of a cluster agree on the table that they serve.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod cluster_id;
mod definition_name;
mod definitions_api;
mod dialect;
pub mod discovery;
mod drivers;
mod health;
mod mesos_driver;
mod metric_names;
mod other_servers;
mod registration;
pub mod reply;
pub mod routes;
mod scheduler;
mod server_info;
pub mod status;
pub mod stores;
mod translation;
pub mod zookeeper;

pub use self::{
    cluster_id::{ClusterId, InvalidClusterId},
    dialect::{Bcs, CLUSTER_HEADER, UpstreamKind},
    drivers::Drivers,
    health::HealthInfo,
    mesos_driver::{BcsConfig, ConnectedUpstream, MesosDriver, SchedulersConfig},
    metric_names::METRICS,
    other_servers::{ConsoleConfig, ConsoleScheme},
    registration::{
        ExternalAddress, Ports, Registrar, RegistrationConfig, RegistrationError, Registrations, drivers_node,
        gateways_node,
    },
    scheduler::{
        NextBody, OtherServer, Relay, RewrittenRequest, SchedulerForwarding, definitions_reply, relay, upstream_end,
    },
    server_info::ServerInfo,
    translation::forwarding,
};
