//! Module references to bytes: where modules come from, the digests that name them, and the compiled
//! forms that are kept on disk so that a restart compiles nothing.

mod cache;
mod error;
mod module;

pub use admittance_module::{Digest, ModuleReference, OciReference};
pub use cache::{CompiledCache, CompiledKey};
pub use error::Error;
pub use module::{MODULE_SIZE_LIMIT, Module};
