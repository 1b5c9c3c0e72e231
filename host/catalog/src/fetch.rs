//! What is asked of servers over HTTP: small documents, modules, and all that a registry holds. Every
//! request goes through the same client, with the same CAs, proxy, time limits and retries.

mod authorization;
mod client;
mod credentials;
mod download;
mod failure;
mod landing;
mod manifest;
mod registry;
mod retry;
mod scheme;
mod upload;

pub(crate) use client::Network;
pub use client::NetworkConfig;
pub(crate) use download::{Download, Downloaded};
pub(crate) use landing::Landing;
pub(crate) use manifest::{Descriptor, Layer, MANIFEST_TYPE, WASM_CONFIG_TYPE, WASM_TYPE, entry_of_index};
pub(crate) use registry::{Version, place};
