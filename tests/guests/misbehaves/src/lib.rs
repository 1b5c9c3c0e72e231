//! One guest for every way to behave badly that settings can choose. Built for WebAssembly it is a plugin; built
//! natively it is the list of [`Behaviour`]s, so that a test table over it misses none.
//!
//! It stands on the bare contract rather than on the SDK's types, which do not let a plugin answer
//! with half a JSON text.

#[cfg(target_family = "wasm")]
mod component;

use admittance_sdk::settings;

/// What an operator writes under `settings`.
#[settings]
#[derive(Debug)]
pub struct Settings {
    /// What the plugin does.
    pub behaviour: Behaviour,
    /// The JSON Patch that `answers-patch` answers with.
    pub patch: Option<String>,
}

macro_rules! behaviours {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One way to behave. By its name it is chosen in the settings.
        #[settings]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Behaviour {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Behaviour {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in the settings.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

behaviours! {
    /// The one good way: sets the annotation `well-behaved` to `true`, and keeps the others.
    WellBehaved = "well-behaved",
    /// Executes `unreachable`.
    Traps = "traps",
    /// Panics with the message `no way out`.
    Panics = "panics",
    /// Ends its own process with the exit code 1.
    Exits = "exits",
    /// Computes without end.
    LoopsForever = "loops-forever",
    /// Sleeps for an hour.
    Sleeps = "sleeps",
    /// Takes memory until there is none.
    GrowsMemory = "grows-memory",
    /// Fills 48 MiB of memory again and again, with one instruction each time.
    FillsMemory = "fills-memory",
    /// Calls itself without end.
    Recurses = "recurses",
    /// Logs without end.
    LogsWithoutEnd = "logs-without-end",
    /// Logs ten thousand lines, and allows.
    LogsTooMuch = "logs-too-much",
    /// Answers with a patch of 8 MiB.
    HugePatch = "huge-patch",
    /// Answers with the patch of its settings, and reports an error when there is none.
    AnswersPatch = "answers-patch",
    /// Answers with half a JSON text for a patch.
    InvalidJson = "invalid-json",
    /// Answers with a patch that is JSON and no JSON Patch.
    NoPatch = "no-patch",
    /// Removes what is not there.
    PatchDoesNotApply = "patch-does-not-apply",
    /// Gives the object another name.
    ChangesName = "changes-name",
    /// Gives the object another namespace, by answering with a whole one.
    ChangesNamespace = "changes-namespace",
    /// Answers with an empty object in place of the resource.
    EmptiesObject = "empties-object",
    /// Reads from the control plane, which its stage does not grant.
    AsksForCluster = "asks-for-cluster",
    /// Sends a request, which its stage does not grant.
    AsksForHttp = "asks-for-http",
    /// Reports an error in place of a verdict.
    ReturnsError = "returns-error",
    /// Refuses its settings, with two mistakes.
    RefusesSettings = "refuses-settings",
    /// Panics in `configure`.
    PanicsInConfigure = "panics-in-configure",
}
