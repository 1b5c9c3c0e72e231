//! Which signatures of a module are accepted, and why others are refused. One row per case.

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
