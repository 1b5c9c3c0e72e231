//! Requests to Kubernetes clusters through a gateway, directly and through an agent's tunnel.
//!
//! The API server is a fake that speaks TLS under the name `kubernetes`, checks the token of the service account,
//! stores objects, and streams watches and upgraded connections.

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
