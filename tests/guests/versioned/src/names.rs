//! The names by which tests recognize versions, in a module without dependencies, so that tests do not have to compile
//! the guest.

/// The compiled version string, which occurs once in the component.
pub const VERSION: &str = "version-000000";

/// The prefix of the annotation with the version. In a path of a patch, `/` is written as `~1`.
pub const VERSION_OF: &str = "version.admittance.dev";

/// The prefix of the annotation with the generation.
pub const GENERATION_OF: &str = "generation.admittance.dev";
