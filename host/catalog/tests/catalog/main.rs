//! Tests of obtaining modules from files, real HTTPS servers and real registries, and of the store.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod authority;
mod disks;
mod https;
mod images;
mod oci;
mod proxy;
mod pushing;
mod registry;
mod scene;
mod signatures;
mod site;
mod store;
mod tokens;
