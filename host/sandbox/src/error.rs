use std::{fmt, time::Duration};

use admittance_admission::Failure;
use serde::{Deserialize, Serialize};

/// An error of creating a sandbox, or of making a plugin of a module.
///
/// Failures of calls of a loaded plugin are [`Failure`](admittance_admission::Failure)s.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This program was built without the feature `plugins` of the crate `admittance`.
    #[error(
        "this program was built without plugins; build it with the feature `plugins` of the crate `admittance`"
    )]
    NoEngine,
    /// The engine rejects its configuration, or the pool's address space cannot be reserved.
    #[error("the WebAssembly engine cannot be started: {0}")]
    Engine(String),
    /// The ticker thread cannot be started.
    #[error("the epoch timer thread cannot be started: {0}")]
    Ticker(#[source] std::io::Error),
    /// The module is larger than [`SandboxConfig::module_size_max`](crate::SandboxConfig).
    #[error(
        "the module has {size} bytes; the limit is {limit}; build it for release and without debug symbols"
    )]
    TooLarge {
        /// Size of the module in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes are not WebAssembly. The text is empty, or a semicolon and what they are.
    #[error("these bytes are not WebAssembly: a component begins with the bytes 00 61 73 6d 0d 00 01 00{0}")]
    NotWebAssembly(&'static str),
    /// The module ends too early.
    #[error(
        "the module is cut off: {0}; it is complete only if its build or its download ended without an error: \
         build or copy it again"
    )]
    Truncated(String),
    /// The component needs component-model async.
    #[error(
        "the component needs component-model async, which this host does not support: {0}; build it with \
         synchronous functions and for WASI 0.2"
    )]
    NeedsAsync(String),
    /// A core module that is not a policy of Kubewarden.
    #[error(
        "this is a WebAssembly core module, but a plugin must be a component; build it for wasm32-wasip2, \
         or convert it with `wasm-tools component new`; if it is a policy of Kubewarden, annotate it with \
         `kwctl annotate`"
    )]
    CoreModule,
    /// A policy of Kubewarden that this host cannot run.
    #[error("the Kubewarden policy cannot be used: {0}")]
    Policy(String),
    /// The component cannot be compiled.
    #[error(
        "the component does not compile: {0}; this host does not support garbage collection, threads, \
         exceptions or component-model async"
    )]
    Compile(String),
    /// Compiling the component exceeded a limit, and was stopped.
    #[error(
        "compiling the component took more than {0} and was stopped; it is too large, or built to exhaust the compiler"
    )]
    CompileLimit(String),
    /// The compiler did not start, or exited without an answer.
    #[error("the compiler failed: {0}")]
    Compiler(String),
    /// Compiling exceeded its wall-clock limit.
    #[error("the module was not compiled within {0:?}; it may be too large for this machine")]
    PrepareTimeout(Duration),
    /// The component was built for a version of the contract that this host does not support.
    #[error(
        "the component is built for version {found} of admittance:plugin, and this host accepts \
         {accepted}; use a plugin, or a host, of a matching version"
    )]
    UnknownVersion {
        /// The version in the component.
        found: String,
        /// The versions that this host accepts.
        accepted: &'static str,
    },
    /// The component is not a plugin: exports of the world are missing or have another type.
    #[error("the component is not a plugin: {0}; it must export the world `plugin` of admittance:plugin")]
    NotAPlugin(String),
    /// The component imports something that this host does not provide.
    #[error("the component imports {0}, which this host does not have")]
    UnknownImport(String),
    /// The component imports something that this host provides with another type.
    #[error("an import of the component does not fit this host: {0}")]
    WrongImport(String),
    /// The component needs more memories, tables or instances than one call may take.
    #[error("the component needs {needed} {what}; the limit per call is {limit}")]
    TooManyParts {
        /// `memories` or `tables`.
        what: &'static str,
        /// The required number.
        needed: u32,
        /// The limit per call.
        limit: u32,
    },
    /// The component exceeds a complexity limit.
    #[error(
        "the component has {count} {what}; the limit is {limit}, because compiling it could take far more time \
         and memory than its size suggests"
    )]
    TooComplex {
        /// The counted items, in the plural.
        what: &'static str,
        /// The count; a lower bound when counting stopped at the limit.
        count: u64,
        /// The largest allowed count.
        limit: u64,
    },
    /// The component instantiates a component that is not part of it, so its cost is unknown.
    #[error(
        "the component instantiates a component that it imports or takes from an instance; this host \
         instantiates only components that are defined inside the loaded component"
    )]
    ImportedComponent,
    /// `describe` or `configure` failed.
    #[error("the plugin's `{step}` failed: {failure}")]
    Call {
        /// The failed step.
        step: Step,
        /// The failure of the step.
        failure: Failure,
    },
    /// `configure` leaves more in memory than is kept for the calls.
    #[error(
        "`configure` leaves {bytes} bytes of memory that are not zero, and at most {limit} can be kept for the calls; \
         prepare less in it, such as only what the settings name, or overwrite with zeros what calls do not need"
    )]
    KeptMemory {
        /// The bytes in pages of 64 KiB that are not zero; a lower bound.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The plugin rejected its settings. Contains every mistake that it found.
    #[error("the plugin rejected its settings: {}", join(.0))]
    Settings(Vec<SettingsMistake>),
    /// A limit of the stage is above the sandbox's maximum.
    #[error("a memory limit of {wanted} bytes is above this host's maximum of {maximum} bytes for a plugin")]
    MemoryLimit {
        /// The stage's limit.
        wanted: usize,
        /// The sandbox's maximum.
        maximum: usize,
    },
    /// Prepared bytes are invalid, or of another engine or version of this program.
    #[error("the prepared plugin cannot be used: {0}; prepare it again from its module")]
    Artifact(String),
    /// The work was interrupted: the runtime is shutting down, or the compiler panicked.
    #[error("preparing the plugin was interrupted: {0}")]
    Interrupted(String),
}

impl Error {
    pub(crate) fn refused(reason: String) -> Self {
        // The name of the feature in the reason is the only sign of it.
        let needs_async = ["component model async", "component-model-async"];
        if needs_async.iter().any(|text| reason.contains(text)) {
            Self::NeedsAsync(reason)
        } else {
            Self::Compile(reason)
        }
    }
}

/// A step of loading a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `describe`
    Describe,
    /// `configure`
    Configure,
    /// The start-up code of a policy, or `protocol_version`.
    Start,
    /// `validate_settings` of a policy.
    ValidateSettings,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Describe => "describe",
            Self::Configure => "configure",
            Self::Start => "start",
            Self::ValidateSettings => "validate_settings",
        })
    }
}

/// A mistake in a plugin's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsMistake {
    /// Its location, as a JSON Pointer (RFC 6901) into the settings; empty for the settings as a whole.
    pub pointer: String,
    /// The plugin's message.
    pub message: String,
}

impl fmt::Display for SettingsMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.message),
            pointer => write!(f, "{pointer}: {}", self.message),
        }
    }
}

pub(crate) fn join(mistakes: &[SettingsMistake]) -> String {
    mistakes
        .iter()
        .map(SettingsMistake::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
