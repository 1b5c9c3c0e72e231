//! Tests of the conditions for accepting a module's signatures, and of the reasons for refusing them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod artifacts;
mod authority;
mod bundles;
mod certificates;
mod keyless;
mod keys;
mod next_to_file;
mod subject;
