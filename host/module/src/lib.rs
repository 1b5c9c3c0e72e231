//! How modules are named: by a [reference](ModuleReference) that says where one is, and by the
//! [digest](Digest) of its bytes.

mod digest;
mod reference;

pub use digest::{Digest, InvalidDigest};
pub use reference::{InvalidReference, ModuleReference, OciReference};
