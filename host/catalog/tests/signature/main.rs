//! Which signatures of a module are taken, and why others are not. One row a case.

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
mod keyless;
mod keys;
mod subject;
