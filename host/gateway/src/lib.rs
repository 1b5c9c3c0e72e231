//! The gateway to the clusters of BCS, in the role of bcs-api.
//!
//! - [`Gateway`] checks who may do what, and forwards requests to the drivers of Mesos clusters.
//! - [`accounts`] keeps its users and clusters in a database.
//! - Requests for Kubernetes clusters go through the chains, and then to the clusters' API servers, directly or through
//!   [`tunnel`]s that the clusters' agents open.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

pub mod accounts;
pub mod admin;
mod body;
mod clusters;
mod config;
mod consoles;
mod error;
mod kubernetes;
mod metric_names;
mod namespaces;
mod path;
mod permission;
mod rest;
pub mod roles;
mod service;
mod services;
mod status;
mod tokens;
pub mod tunnel;
mod websocket_tokens;
mod yaml;

pub use self::{
    config::{EndpointConfig, GatewayConfig, TokensConfig},
    error::Statuses,
    kubernetes::{PeerSecrets, PeersConfig},
    metric_names::METRICS,
    permission::{ApiGroup, InvalidApiGroup, PlainGroups},
    service::{Gateway, GatewayStartError, ServiceRecipient, ServiceReply},
    status::{
        AccountsStatus, GatewayCluster, GatewayStatus, KubernetesCluster, Peer, PeersStatus, RolesStatus, TokensStatus,
    },
    tokens::TokenTable,
};
