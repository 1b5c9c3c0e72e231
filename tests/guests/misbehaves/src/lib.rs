//! A guest with every kind of bad behaviour, selected by its settings. Compiled natively, it lists its [`Behaviour`]s,
//! so that no table of a test can omit one.
//!
//! It uses the contract directly, because the SDK's types do not let a plugin return incomplete JSON.

#[cfg(target_family = "wasm")]
mod component;

use admittance_sdk::settings;

/// The settings of this plugin: how it behaves, and the values that it needs for that.
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
        /// A behaviour of the guest. The settings select it by its name.
        #[settings]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Behaviour {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Behaviour {
            /// All variants of this enum.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name by which the settings select this behaviour.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

behaviours! {
    /// The only correct behaviour: sets the annotation `well-behaved` to `true`, and keeps all other annotations.
    WellBehaved = "well-behaved",
    /// Executes `unreachable`.
    Traps = "traps",
    /// Panics with the message `deliberate panic`.
    Panics = "panics",
    /// Ends its own process with the exit code 1.
    Exits = "exits",
    /// Runs an endless loop.
    LoopsForever = "loops-forever",
    /// Sleeps for an hour.
    Sleeps = "sleeps",
    /// Allocates memory until it fails.
    GrowsMemory = "grows-memory",
    /// Fills 48 MiB of memory in an endless loop, with one instruction per iteration.
    FillsMemory = "fills-memory",
    /// Overflows its stack.
    Recurses = "recurses",
    /// Logs in an endless loop.
    LogsWithoutEnd = "logs-without-end",
    /// Logs ten thousand lines, and then allows the request.
    LogsTooMuch = "logs-too-much",
    /// Returns a patch of 8 MiB.
    HugePatch = "huge-patch",
    /// Returns the patch that the guest gets in its settings, or an error if the settings have no patch.
    AnswersPatch = "answers-patch",
    /// Returns incomplete JSON as a patch.
    InvalidJson = "invalid-json",
    /// Returns valid JSON that is not a JSON Patch.
    NoPatch = "no-patch",
    /// Returns a patch that removes a value which does not exist.
    PatchDoesNotApply = "patch-does-not-apply",
    /// Changes the name of the object.
    ChangesName = "changes-name",
    /// Changes the object's namespace, in an answer that replaces the whole object.
    ChangesNamespace = "changes-namespace",
    /// Replaces the object by an empty one.
    EmptiesObject = "empties-object",
    /// Reads from the control plane, although the stage with this plugin has no grant for that.
    AsksForCluster = "asks-for-cluster",
    /// Sends an HTTP request, although the stage with this plugin has no grant for that.
    AsksForHttp = "asks-for-http",
    /// Returns an error instead of a verdict.
    ReturnsError = "returns-error",
    /// Rejects its settings, with two mistakes.
    RefusesSettings = "refuses-settings",
    /// Panics when it gets its settings.
    PanicsInConfigure = "panics-in-configure",
    /// Fills 800 MiB of memory in `configure`; every call then starts with this memory.
    FillsMemoryInConfigure = "fills-memory-in-configure",
}
