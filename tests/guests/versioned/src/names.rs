//! The texts by which tests recognize the versions of this guest. They are in a module of their own, which tests can
//! use without compiling the guest.

/// The version string that the compiler puts into the component, where it occurs once. Tests overwrite it.
pub const VERSION: &str = "version-000000";

/// The prefix of the annotation that contains the version. In the path of a patch, the `/` after it is written as `~1`.
pub const VERSION_OF: &str = "version.admittance.dev";

/// The prefix of the annotation that contains the generation, a number from the settings.
pub const GENERATION_OF: &str = "generation.admittance.dev";
