//! Tests of which signatures of a module are accepted, and of the reasons for refusals.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod artifacts;
mod authority;
mod beside;
mod bundles;
mod certified;
mod keyless;
mod keys;
mod subject;
