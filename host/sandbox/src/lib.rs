//! Plugins as stages: WebAssembly components in instances of their own, with limits.
//!
//! A [`Sandbox`] is made once for a process. It [prepares](Sandbox::prepare) a module, which checks
//! it, configures it and compiles what `configure` left; and it [loads](Sandbox::load) what was
//! prepared as a [`Plugin`], which is a [`Hook`](admittance_admission::Hook) for a chain.
//!
//! - Every call has an instance of its own. Nothing that a call does is there for the next one.
//! - A guest runs on the caller's worker and lets other work go on once a millisecond, so a loop in
//!   one plugin blocks nobody. It ends at its deadline.
//! - A plugin reaches nothing but clocks, randomness and the log, unless its stage grants more.
//! - Every way to end badly is a [`Failure`](admittance_admission::Failure) with a kind of its own.

mod background;
mod capability;
mod compiler;
mod complexity;
mod contract;
mod engine;
mod error;
mod failure;
mod imports;
mod inspect;
mod logging;
mod plugin;
mod prepare;
mod snapshot;
mod stdio;
mod store;

pub use capability::{HttpError, HttpRequest, HttpResponse, HttpSender};
pub use compiler::compile;
pub use contract::{Capability, Description, ResourceHint};
pub use engine::{Sandbox, SandboxConfig};
pub use error::{Error, SettingsMistake, Step};
pub use inspect::{Grant, Import, Inspection};
pub use logging::LogLimits;
pub use plugin::{Plugin, PluginConfig};
pub use prepare::{Configured, Prepared};
pub use store::Limits;
