//! Tests the program as a replacement for bcs-mesos-driver, in front of schedulers that check their requests.

mod definitions;
mod digest;
mod gateways;
mod health;
mod hooks;
mod masters;
mod nodes;
mod replicas;
mod routes;
mod scene;
mod selectors;
mod sessions;
mod tls;
mod vectors;
mod writers;
pub(crate) mod zookeeper;
