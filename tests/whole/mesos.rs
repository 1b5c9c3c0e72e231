//! The program in the place of bcs-mesos-driver: in front of schedulers that check what they are asked.

mod definitions;
mod digest;
mod gateways;
mod health;
mod hooks;
mod masters;
mod nodes;
mod routes;
mod scene;
mod selectors;
mod sessions;
mod tls;
mod vectors;
mod writers;
mod zookeeper;
