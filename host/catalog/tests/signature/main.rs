//! Signatures of a module are accepted, or refused with the reason. Each row of a table is a case.

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
