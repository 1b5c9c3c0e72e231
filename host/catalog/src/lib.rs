//! Module references to bytes: where modules come from, the digests that name them, and the compiled
//! forms that are kept on disk so that a restart compiles nothing.

mod cache;
mod digest;
mod error;
mod module;

pub use cache::{CompiledCache, CompiledKey};
pub use digest::{Digest, InvalidDigest};
pub use error::Error;
pub use module::{MODULE_SIZE_LIMIT, Module, ModuleReference};
