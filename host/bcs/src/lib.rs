//! Support for BCS, the container platform whose Mesos clusters this program sits in front of.
//!
//! - [`Bcs`] is the dialect of its driver, [`routes`] the table of the driver's routes, and [`MesosDriver`] takes the
//!   driver's place, or sits in front of it: the API for definitions is served here, everything else passes the
//!   chains and goes to the scheduler, translated, or to consoles and a kube-apiserver.
//! - [`Gateway`] takes the place of bcs-api in front of the drivers of clusters.
//! - [`accounts`] has the users and clusters of a gateway, in a database.
//! - [`zookeeper`] has the sessions with ZooKeeper, where servers register and are discovered; [`stores`] has the
//!   definition stores that several drivers share, and [`Drivers`] what they tell one another of their tables.

#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

pub mod accounts;
mod cluster_id;
mod definition_name;
mod definitions_api;
mod dialect;
mod discovery;
mod drivers;
mod gateway;
mod header;
mod health;
mod kubernetes;
mod lock;
mod mesos_driver;
mod metric_names;
mod other_servers;
mod registration;
mod reply;
pub mod routes;
mod scheduler;
mod server_info;
mod status;
pub mod stores;
mod translation;
pub mod tunnel;
pub mod zookeeper;

pub use self::{
    cluster_id::{ClusterId, InvalidClusterId},
    dialect::{Bcs, UpstreamKind},
    drivers::Drivers,
    gateway::{
        Answer, ApiGroup, EndpointConfig, Gateway, GatewayConfig, GatewayStartError, InvalidApiGroup,
        Permission, PlainGroups, Recipient, Statuses, TokenTable, TokensConfig,
    },
    health::HealthInfo,
    kubernetes::{PeerSecrets, PeersConfig},
    mesos_driver::{BcsConfig, Behind, MesosDriver, SchedulersConfig},
    metric_names::METRICS,
    other_servers::{ConsoleConfig, ConsoleScheme},
    registration::{
        ExternalAddress, Ports, Registrar, RegistrationConfig, RegistrationError, Registrations, drivers_node,
    },
    scheduler::{Forwarding, NextBody, OtherServer, Relay, Rewritten, definitions_reply, relay},
    server_info::ServerInfo,
    status::{
        AccountsStatus, DiscoveryStatus, EnsembleStatus, GatewayCluster, GatewayStatus, KubernetesCluster,
        Peer, PeersStatus, RegisteredNode, ServerHealth, TokensStatus,
    },
    translation::forwarding,
};
