//! Implements the mutators and expansion templates of Gatekeeper.
//!
//! [`Mutators`] is a hook that sets values at locations of an object. An [`Expansion`] shows a stage the object that
//! the control plane will generate from the object of a request. Another crate parses the documents of mutators and
//! expansions.
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
