//! Tests of the whole program, over real sockets and TLS.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod accounts;
#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../host/cluster/tests/cluster/api_server.rs"]
mod api_server;
mod audit;
mod authors;
mod bcs;
mod browser;
mod clusters;
mod commands;
mod console;
mod decisions;
mod demo;
mod dist;
mod documents;
mod exceptions;
mod gatekeeper;
mod hostile;
mod hot;
mod house;
mod import;
mod kubernetes;
mod kyverno;
mod lifecycle;
mod lists;
mod manifests;
mod mesos;
mod nomad;
mod operator;
mod outbound;
mod patches;
mod policies;
mod replicas;
mod respelled;
mod scene;
#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../host/cluster/tests/cluster/setting.rs"]
mod setting;
mod traces;
mod webhooks;
