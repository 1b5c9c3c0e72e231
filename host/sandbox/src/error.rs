use std::fmt;

use admittance_admission::Failure;
use serde::{Deserialize, Serialize};

/// The reason why a sandbox cannot be created, or a plugin cannot be prepared or loaded.
///
/// A failed call of a loaded plugin is a [`Failure`] instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This program was built without the feature `plugins` of the crate `admittance`.
    #[error("this program was built without plugins; build it with the feature `plugins` of the crate `admittance`")]
    NoEngine,
    /// The engine rejects its configuration, for example because it does not support the processor.
    #[error("the WebAssembly engine cannot be started: {0}")]
    Engine(String),
    /// The ticker thread cannot be started.
    #[error("the epoch timer thread cannot be started: {0}")]
    Ticker(#[source] std::io::Error),
    /// This host refuses the module, or a limit that the module's stage sets. The text gives the reason and the fix.
    #[error("{0}")]
    Unusable(String),
    /// The module is truncated.
    #[error(
        "the module is cut off: {0}; it is complete only if its build or its download ended without an error: \
         build or copy it again"
    )]
    Truncated(String),
    /// The component needs the async features of the component model.
    #[error(
        "the component needs component-model async, which this host does not support: {0}; build it with \
         synchronous functions and for WASI 0.2"
    )]
    NeedsAsync(String),
    /// This host cannot run the Kubewarden policy.
    #[error("the Kubewarden policy cannot be used: {0}")]
    Policy(String),
    /// The component cannot be compiled.
    #[error(
        "the component does not compile: {0}; this host does not support garbage collection, threads, \
         exceptions or component-model async"
    )]
    Compile(String),
    /// The compiler was stopped because compiling the component exceeded a limit.
    #[error(
        "compiling the component took more than {0} and was stopped; it is too large, or built to exhaust the compiler"
    )]
    CompileLimit(String),
    /// The compiler did not start, or exited without a result.
    #[error("the compiler failed: {0}")]
    Compiler(String),
    /// The component is not a plugin: exports of the world `plugin` are missing or have other types.
    #[error("the component is not a plugin: {0}; it must export the world `plugin` of admittance:plugin")]
    NotAPlugin(String),
    /// The component imports something that this host does not provide.
    #[error("the component imports {0}, which this host does not have")]
    UnknownImport(String),
    /// The component imports an interface of this host, but with types that differ from the host's.
    #[error("an import of the component does not fit this host: {0}")]
    WrongImport(String),
    /// The component exceeds a complexity limit.
    #[error(
        "the component has {count} {items}; the limit is {limit}, because compiling it could take far more time \
         and memory than its size suggests"
    )]
    TooComplex {
        /// The kind of item of which the component has too many, as a plural.
        items: &'static str,
        /// The number of items in the component, or a lower bound if counting stopped at the limit.
        count: u64,
        /// The maximum number of items of this kind.
        limit: u64,
    },
    /// `describe` or `configure` failed.
    #[error("the plugin's `{step}` failed: {failure}")]
    Call {
        /// The step that failed.
        step: LoadStep,
        /// The reason why the step failed.
        failure: Failure,
    },
    /// The plugin rejected its settings. The list contains every mistake that the plugin found.
    #[error("the plugin rejected its settings: {}", join_mistakes(.0))]
    Settings(Vec<SettingsMistake>),
    /// The prepared plugin is invalid, or was prepared by another engine or version of this program.
    #[error("the prepared plugin cannot be used: {0}; prepare it again from its module")]
    Artifact(String),
    /// The preparation was interrupted, because the runtime is shutting down or the compiler panicked.
    #[error("preparing the plugin was interrupted: {0}")]
    Interrupted(String),
}

#[cfg(feature = "engine")]
impl Error {
    pub(crate) fn from_compile_failure(reason: String) -> Self {
        // The name of the feature in the text is the only sign by which wasmtime's error can be recognised.
        let needs_async = ["component model async", "component-model-async"];
        if needs_async.iter().any(|text| reason.contains(text)) {
            Self::NeedsAsync(reason)
        } else {
            Self::Compile(reason)
        }
    }
}

/// A step of loading a plugin, which calls its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum LoadStep {
    /// The call of the plugin's export `describe`.
    #[display("describe")]
    Describe,
    /// The call of the plugin's export `configure`.
    #[display("configure")]
    Configure,
    /// The start-up code of a Kubewarden policy, or the call of its `protocol_version`.
    #[display("start")]
    Start,
    /// The call of a Kubewarden policy's operation `validate_settings`.
    #[display("validate_settings")]
    ValidateSettings,
}

/// A mistake in a plugin's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsMistake {
    /// The place of the mistake in the settings, as a JSON Pointer (RFC 6901); empty for the settings as a whole.
    pub pointer: String,
    /// The message of the plugin about the mistake.
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

pub(crate) fn join_mistakes(mistakes: &[SettingsMistake]) -> String {
    mistakes
        .iter()
        .map(SettingsMistake::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
