//! Requests to HTTP servers and registries: small documents, modules, blobs and manifests. All of them use
//! the same client, with the same CAs, proxy, timeouts and retries.

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
