//! Plugins as stages: runs WebAssembly components and Kubewarden policies within limits, each call in a fresh instance.
//!
//! A process creates one [`Sandbox`]. [Preparing](Sandbox::prepare) a module checks it, configures it, and compiles a
//! snapshot of the configured memory; [loading](Sandbox::load) the result gives a [`Plugin`], which is a
//! [`Hook`](admittance_admission::Hook) for a chain.
//!
//! - Every call has its own instance, so no state is kept between calls.
//! - A guest runs on the caller's worker and yields once a millisecond, so a loop in one plugin does not
//!   block other work. It is stopped at its deadline.
//! - A plugin has access only to clocks, randomness and the log, unless its stage grants more.
//! - Every kind of failed call is a [`Failure`](admittance_admission::Failure) with its own kind.
//!
//! The crate has the same interface without the feature `engine`, but [`Sandbox::new`] fails.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "engine")]
mod capabilities;
#[cfg(feature = "engine")]
mod compilation_limit;
#[cfg(feature = "engine")]
mod compiler;
#[cfg(feature = "engine")]
mod complexity;
mod config;
#[cfg(feature = "engine")]
mod confinement;
#[cfg(feature = "engine")]
mod contract;
mod description;
#[cfg(not(feature = "engine"))]
mod disabled;
#[cfg(feature = "engine")]
mod engine;
mod error;
#[cfg(feature = "engine")]
mod failure;
#[cfg(feature = "engine")]
mod imports;
#[cfg(feature = "engine")]
mod inspect;
#[cfg(feature = "engine")]
mod kubewarden;
#[cfg(feature = "engine")]
mod merge;
#[cfg(feature = "engine")]
mod meter;
#[cfg(feature = "engine")]
mod plugin;
#[cfg(feature = "engine")]
mod prepare;
#[cfg(feature = "engine")]
mod shared;
#[cfg(feature = "engine")]
mod snapshot;
#[cfg(feature = "engine")]
mod snapshot_template;
#[cfg(feature = "engine")]
mod store;

pub use config::{CallLimits, LogLimits, PluginConfig, SandboxConfig};
pub use description::{Capability, ConfigurationTime, Description, Grant, ResourceHint};
#[cfg(not(feature = "engine"))]
pub use disabled::{Plugin, Prepared, Sandbox, SharedModule};
pub use error::{Error, LoadStep, SettingsMistake};
#[cfg(feature = "engine")]
pub use {
    compiler::compile,
    engine::Sandbox,
    inspect::{ModuleImport, ModuleInspection},
    meter::{CallCost, CallMeter},
    plugin::Plugin,
    prepare::Prepared,
    shared::SharedModule,
};
