//! Tests the sandbox with real components: how they load, how calls end, and what they can reach.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests, which clippy knows only of functions marked as such"
)]

mod guest;
mod harness;
mod shell;

mod calls;
mod capabilities;
mod kept;
mod loading;
mod lookups;
mod policies;
