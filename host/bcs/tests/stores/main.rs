//! Tests that all stores behave alike: files, nodes of a real ZooKeeper, resources of an API server in memory, and, if
//! one is available, resources of a real API server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "JSON in tests is what the test wrote")]

#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../../cluster/tests/cluster/api_server.rs"]
mod api_server;
mod conformance;
mod custom_resources;
mod documents;
#[path = "../zookeeper/ensemble.rs"]
mod ensemble;
mod files;
#[path = "../zookeeper/frames.rs"]
mod frames;
mod kubernetes;
#[path = "../zookeeper/old_server.rs"]
mod old_server;
#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../../cluster/tests/cluster/setting.rs"]
mod setting;
mod zookeeper;
