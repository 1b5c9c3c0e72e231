//! Write an admission plugin: one struct, typed settings, one function.
//!
//! ```
//! use admittance_sdk::prelude::*;
//!
//! /// The label that every object must carry.
//! #[settings]
//! struct Settings {
//!     label: String,
//! }
//!
//! struct RequireLabel {
//!     label: String,
//! }
//!
//! // Only the fields that are needed: the rest of the object is skipped, not parsed.
//! #[view]
//! struct Object {
//!     metadata: Metadata,
//! }
//!
//! #[view]
//! struct Metadata {
//!     #[serde(default)]
//!     labels: std::collections::BTreeMap<String, String>,
//! }
//!
//! #[plugin(resources = ["v1/pods", "apps/v1/deployments"])]
//! impl Plugin for RequireLabel {
//!     type Settings = Settings;
//!
//!     fn configure(Settings { label }: Settings) -> Result<Self, SettingsErrors> {
//!         if label.is_empty() {
//!             return Err(SettingsErrors::one(pointer!["label"], "the label has no name; give one"));
//!         }
//!         Ok(Self { label })
//!     }
//!
//!     fn admit(&self, request: &Request) -> Result<Response, Error> {
//!         let Some(object) = request.object::<Object>()? else { return Ok(Response::allow()) };
//!         if object.metadata.labels.contains_key(&self.label) {
//!             return Ok(Response::allow());
//!         }
//!         Ok(Response::deny(format!("metadata.labels: the label \"{}\" is missing; add it", self.label)))
//!     }
//! }
//!
//! // A plugin is tested natively, with `cargo test`.
//! # fn main() {
//! use admittance_sdk::serde_json::json;
//! use admittance_sdk::testing;
//!
//! let plugin = testing::configure::<RequireLabel>(json!({"label": "team"})).expect("the settings are right");
//! let outcome = testing::create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}))
//!     .namespace("shop")
//!     .admit(&plugin)
//!     .expect("there is a verdict");
//! assert!(outcome.denial().is_some_and(|denial| denial.message.contains("\"team\" is missing")));
//! # }
//! ```
//!
//! The crate of a plugin has `crate-type = ["cdylib", "rlib"]` and needs no dependency but this one.
//! `cargo build --target wasm32-wasip2 --release` builds the component. It imports only what the plugin
//! uses: a plugin that never logs does not import logging.
//!
//! # Overview
//!
//! | to | see |
//! |---|---|
//! | read the request | [`Request`] |
//! | respond to it | [`Response`], [`Denial`], [`Patch`], [`pointer!`] |
//! | change a typed object and generate the patch | [`Request::mutate`] |
//! | define settings | [`settings`](macro@settings), [`SettingsErrors`] |
//! | find the containers of any workload | [`workload`] |
//! | log, read from the control plane, send HTTP requests | [`log`], [`cluster`], [`http`] |
//! | test | [`testing`] |
#![cfg_attr(target_family = "wasm", doc = "\n[`testing`]: # \"there natively\"")]

#[doc(hidden)]
pub mod bindings;
pub mod cluster;
mod error;
pub mod http;
pub mod log;
mod merge;
mod patch;
mod plugin;
mod pointer;
mod reader;
mod request;
mod response;
mod sample;
mod settings;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod text;
pub mod workload;

pub use admittance_sdk_macros::{plugin, settings, view};
pub use error::{Document, Error};
pub use patch::Patch;
pub use plugin::{Capability, Describe, Description, Plugin, ResourceRule};
#[doc(hidden)]
pub use plugin::{Configured, settings_schema};
pub use pointer::{Pointer, PointerBuf};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request, UserInfo, View};
pub use response::{Denial, Response};
pub use settings::{NoSettings, Settings, SettingsError, SettingsErrors};
pub use text::Text;
pub use {schemars, serde, serde_json};

/// The items that nearly every plugin uses: `use admittance_sdk::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Denial, Error, NoSettings, Operation, Patch, Plugin, Request, Response, SettingsErrors, log, plugin, pointer,
        settings, view,
    };
}
