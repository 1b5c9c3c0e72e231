//! Requests to Kubernetes clusters through a gateway: directly, and through the tunnel of an agent.
//!
//! The API server is a stand-in that speaks TLS under the name `kubernetes`, checks the token of the service account,
//! stores objects, and streams watches and switched protocols.

mod admission;
mod api_server;
mod commands;
mod direct;
mod escalation;
mod peers;
mod roles;
mod scene;
mod tunnel;
mod wire;
