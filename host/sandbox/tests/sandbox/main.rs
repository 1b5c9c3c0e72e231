//! Tests the sandbox with real components: loading, the results of calls, and capabilities.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests, which clippy knows only of functions marked as such"
)]

mod guest;
mod harness;
mod wrapper;

mod calls;
mod capabilities;
mod contract_0_1_0;
mod loading;
mod lookups;
mod policies;
