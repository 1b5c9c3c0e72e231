//! Turns module references into bytes: fetches modules, checks their digests and signatures, and stores them on disk,
//! so that a restart needs neither network nor compiler.
//!
//! The crate reads only files if it lacks the feature `registries`, and cannot require signatures if it lacks
//! `signatures`. If a missing feature is needed, the error names it.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "internal to the program: names say what a docstring would repeat"
)]

mod catalog;
mod error;
mod manifest;
mod module;
mod network;
#[cfg(feature = "registries")]
mod remote;
#[cfg(not(feature = "registries"))]
#[path = "remote/disabled.rs"]
mod remote;
mod resolver;
pub mod signature;
pub mod stock;
mod store;

pub use admittance_admission::{Digest, ModuleReference, OciReference};
pub use catalog::{Catalog, CatalogConfig, Freshness};
pub use error::Error;
pub use module::{MODULE_SIZE_LIMIT, Module};
pub use network::{FetchProgress, NetworkConfig, OnProgress};
#[cfg(feature = "registries")]
pub use remote::{PushedArtifact, RegistryImages};
pub use resolver::ReferenceResolver;
pub use store::{CompiledCode, CompiledForm, CompiledKey, InUse, PruneResult, Resolution, Store};
