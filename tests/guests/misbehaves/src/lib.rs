//! A guest with every kind of bad behaviour, selected by its settings. Built for WebAssembly it is a plugin; built
//! natively it is the list of [`Behaviour`]s, so that a test table cannot miss one.
//!
//! The guest uses the bare contract instead of the SDK, whose types do not let a plugin return incomplete
//! JSON.

#[cfg(target_family = "wasm")]
mod component;

use admittance_sdk::settings;

/// The settings, which choose the misbehaviour.
#[settings]
#[derive(Debug)]
pub struct Settings {
    /// The misbehaviour of the plugin.
    pub behaviour: Behaviour,
    /// The JSON Patch returned by `answers-patch`.
    pub patch: Option<String>,
}

macro_rules! behaviours {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A behaviour, selected by its name in the settings.
        #[settings]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Behaviour {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Behaviour {
            /// Every misbehaviour.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in the settings.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

behaviours! {
    /// The only correct behaviour: sets the annotation `well-behaved` to `true`, and keeps the others.
    WellBehaved = "well-behaved",
    /// Executes `unreachable`.
    Traps = "traps",
    /// Panics with the message `deliberate panic`.
    Panics = "panics",
    /// Ends its own process with the exit code 1.
    Exits = "exits",
    /// Loops forever.
    LoopsForever = "loops-forever",
    /// Sleeps for an hour.
    Sleeps = "sleeps",
    /// Allocates memory until it fails.
    GrowsMemory = "grows-memory",
    /// Fills 48 MiB of memory again and again, with one instruction each time.
    FillsMemory = "fills-memory",
    /// Recurses forever.
    Recurses = "recurses",
    /// Logs forever.
    LogsWithoutEnd = "logs-without-end",
    /// Logs ten thousand lines, and allows.
    LogsTooMuch = "logs-too-much",
    /// Returns a patch of 8 MiB.
    HugePatch = "huge-patch",
    /// Returns the patch of its settings, or an error if there is none.
    AnswersPatch = "answers-patch",
    /// Returns incomplete JSON as a patch.
    InvalidJson = "invalid-json",
    /// Returns a patch that is JSON but not a JSON Patch.
    NoPatch = "no-patch",
    /// Returns a patch that removes a missing value.
    PatchDoesNotApply = "patch-does-not-apply",
    /// Changes the name of the object.
    ChangesName = "changes-name",
    /// Changes the namespace of the object, by returning a whole object.
    ChangesNamespace = "changes-namespace",
    /// Returns an empty object instead of the resource.
    EmptiesObject = "empties-object",
    /// Reads from the control plane, which its stage does not grant.
    AsksForCluster = "asks-for-cluster",
    /// Sends an HTTP request, which its stage does not grant.
    AsksForHttp = "asks-for-http",
    /// Returns an error instead of a verdict.
    ReturnsError = "returns-error",
    /// Rejects its settings, with two mistakes.
    RefusesSettings = "refuses-settings",
    /// Panics in `configure`.
    PanicsInConfigure = "panics-in-configure",
    /// Fills 800 MiB of memory in `configure`, which calls then begin with.
    FillsMemoryInConfigure = "fills-memory-in-configure",
}
