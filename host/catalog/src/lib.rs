//! Turns module references into bytes: fetches modules, checks their digests and signatures, and keeps them
//! in a store on disk, so that a restart needs neither network nor compiler.

mod catalog;
mod component;
mod error;
mod fetch;
mod module;
mod progress;
pub mod signature;
mod store;

pub use admittance_admission::{Digest, ModuleReference, OciReference};
pub use catalog::{Catalog, CatalogConfig, Freshness, Pushed, Resolver};
pub use error::Error;
pub use fetch::NetworkConfig;
pub use module::{MODULE_SIZE_LIMIT, Module};
pub use progress::{FetchProgress, OnProgress};
pub use store::{CompiledKey, InUse, Pruned, Resolution, Store};
