//! Implements the mutators and expansion templates of Gatekeeper.
//!
//! [`Mutators`] is a hook that sets values at locations of an object. An [`Expansion`] generates the object that the
//! control plane will create because of a request, so that a stage sees this object. Another crate parses the documents
//! of mutators and expansions.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod apply;
mod expansion;
mod image;
mod location;
mod mutator;

pub use expansion::{Expansion, Generation};
pub use image::ImageParts;
pub use location::{FieldLocation, LocationError, LocationType, Step};
pub use mutator::{Mutation, Mutator, Mutators, PathTestError};
