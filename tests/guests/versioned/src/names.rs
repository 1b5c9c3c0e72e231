//! The names by which tests recognize versions. They depend on nothing, so that the tests do not compile the guest.

/// The version as compiled. It occurs once in the component.
pub const VERSION: &str = "version-000000";

/// The prefix of the annotation with the version. A `/` is written `~1` in a path.
pub const VERSION_OF: &str = "version.admittance.dev";

/// The prefix of the annotation with the generation.
pub const GENERATION_OF: &str = "generation.admittance.dev";
