//! Tests changes, rollbacks and restarts with real files and a real history. Most stages are webhooks. The tests send
//! no requests to them, so no server is needed.
#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is wrong")]
#![allow(clippy::indexing_slicing, reason = "a missing row is a failed test")]
#![allow(clippy::panic, reason = "a guest that is no module is a mistake in the test")]

mod disabled;
mod evaluate;
mod exceptions;
mod files;
#[expect(dead_code, reason = "tests of the sandbox need more of it")]
#[path = "../../../sandbox/tests/sandbox/guest.rs"]
mod guest;
mod invalid_definitions;
mod memory_store;
mod preparing;
mod recording;
mod rollback;
mod scene;
mod start;
mod steering;
mod stores;
mod storing;
mod waiting_tables;
