//! Tests of users and clusters in a real SQLite file and a real MariaDB server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::indexing_slicing, reason = "what is read in tests is what the test wrote")]

mod agents;
mod changes;
#[path = "../../../bcs/tests/zookeeper/ensemble.rs"]
mod ensemble;
mod gateways;
mod import;
mod mariadb;
mod scene;
