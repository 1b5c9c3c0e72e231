//! Plugins as stages: WebAssembly components, with an instance per call and limits.
//!
//! A [`Sandbox`] is created once per process. It [prepares](Sandbox::prepare) a module, which checks it,
//! configures it and compiles what `configure` left; and it [loads](Sandbox::load) what was prepared as a
//! [`Plugin`], which is a [`Hook`](admittance_admission::Hook) for a chain.
//!
//! - Every call has its own instance. No state is kept between calls.
//! - A guest runs on the caller's worker and yields once a millisecond, so a loop in one plugin does not
//!   block other work. It is stopped at its deadline.
//! - A plugin has access only to clocks, randomness and the log, unless its stage grants more.
//! - Every kind of failed call is a [`Failure`](admittance_admission::Failure) with its own kind.

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
