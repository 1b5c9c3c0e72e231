//! Modules from files, HTTPS servers and registries, and the store that keeps them. Servers and registries
//! are real ones.

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
