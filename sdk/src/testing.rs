//! Runs a plugin natively, in its own `cargo test`.
//!
//! ```
//! # use admittance_sdk::prelude::*;
//! # struct Frozen;
//! # #[plugin]
//! # impl Plugin for Frozen {
//! #     type Settings = NoSettings;
//! #     fn configure(_: NoSettings) -> Result<Self, SettingsErrors> { Ok(Self) }
//! #     fn admit(&self, request: &Request) -> Result<Response, Error> {
//! #         if request.operation() == Operation::Update { return Ok(Response::deny("frozen")); }
//! #         let mut patch = Patch::new();
//! #         patch.add(pointer!["frozen"], &true)?;
//! #         Ok(Response::patch(patch))
//! #     }
//! # }
//! use admittance_sdk::serde_json::json;
//! use admittance_sdk::testing;
//!
//! # fn main() {
//! let plugin = testing::configure::<Frozen>("{}").unwrap();
//!
//! let outcome = testing::create(json!({"kind": "Pod"})).user("alice").admit(&plugin).unwrap();
//! assert_eq!(outcome.object(), Some(&json!({"kind": "Pod", "frozen": true})));
//!
//! let outcome = testing::update(r#"{"kind": "Pod"}"#, r#"{"kind": "Pod"}"#).admit(&plugin).unwrap();
//! assert_eq!(outcome.denial().unwrap().message, "frozen");
//! # }
//! ```

use std::fmt;

use serde_json::Value;

use crate::bindings::admittance::plugin::types;
use crate::{
    Denial, Describe, Description, Error, Operation, Plugin, Request, Response, SettingsErrors, plugin, sample,
};

pub(crate) mod cluster;

pub use cluster::{with_access, with_cluster};

/// Configures a plugin as the host does, including warm-up. The settings are JSON text or a [`Value`].
///
/// # Errors
/// Fails if the plugin rejects the settings.
pub fn configure<P: Plugin>(settings: impl fmt::Display) -> Result<P, SettingsErrors> {
    plugin::configure(&settings.to_string())
}

/// Returns the description of a plugin.
pub fn describe<P: Plugin + Describe>() -> Description {
    P::describe()
}

/// Builds a CREATE request for an object, which is given as JSON text or a [`Value`].
///
/// Kind, resource, name and namespace are taken from the object if it has them.
pub fn create(object: impl fmt::Display) -> RequestBuilder {
    RequestBuilder::new(Operation::Create, Some(object.to_string()), None)
}

/// Builds an UPDATE request that replaces an old object with a new one.
pub fn update(old_object: impl fmt::Display, object: impl fmt::Display) -> RequestBuilder {
    RequestBuilder::new(
        Operation::Update,
        Some(object.to_string()),
        Some(old_object.to_string()),
    )
}

/// Builds a DELETE request for an object.
pub fn delete(old_object: impl fmt::Display) -> RequestBuilder {
    RequestBuilder::new(Operation::Delete, None, Some(old_object.to_string()))
}

/// Builds a CONNECT request, such as `exec`, whose object contains its options.
pub fn connect(options: impl fmt::Display) -> RequestBuilder {
    RequestBuilder::new(Operation::Connect, Some(options.to_string()), None)
}

/// Builds a request for a test.
#[derive(Debug)]
#[must_use = "a request does nothing until a plugin admits it"]
pub struct RequestBuilder(Request);

impl RequestBuilder {
    fn new(operation: Operation, object: Option<String>, old_object: Option<String>) -> Self {
        let mut request = sample::request();
        let contract = request.contract_mut();
        let described: Value = object
            .as_ref()
            .or(old_object.as_ref())
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let text = |pointer: &str| described.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let api_version = text("/apiVersion").unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let kind = text("/kind").unwrap_or_default();
        contract.resource = types::GroupVersionResource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: format!("{}s", kind.to_lowercase()),
        };
        contract.kind = types::GroupVersionKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind,
        };
        contract.name = text("/metadata/name").unwrap_or_default();
        contract.namespace = text("/metadata/namespace");
        contract.operation = operation;
        contract.object = object;
        contract.old_object = old_object;
        contract.dry_run = false;
        Self(request)
    }

    /// Sets the namespace of the object.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.with_contract(|contract| contract.namespace = Some(namespace.into()))
    }

    /// Sets the name of the object.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with_contract(|contract| contract.name = name.into())
    }

    /// Sets the name of the user who sends the request.
    pub fn user(self, username: impl Into<String>) -> Self {
        self.with_contract(|contract| contract.user.username = username.into())
    }

    /// Sets the groups of the user who sends the request.
    pub fn groups<G: Into<String>>(self, groups: impl IntoIterator<Item = G>) -> Self {
        self.with_contract(|contract| contract.user.groups = groups.into_iter().map(Into::into).collect())
    }

    /// Sets the plural name of the resource. The default is the kind in lower case with an `s`.
    pub fn resource(self, resource: impl Into<String>) -> Self {
        self.with_contract(|contract| contract.resource.resource = resource.into())
    }

    /// Sets the subresource, such as `status` or `scale`.
    pub fn subresource(self, subresource: impl Into<String>) -> Self {
        self.with_contract(|contract| contract.subresource = Some(subresource.into()))
    }

    /// Sets the options of the operation, as JSON text or a [`Value`].
    pub fn options(self, options: impl fmt::Display) -> Self {
        self.with_contract(|contract| contract.options = Some(options.to_string()))
    }

    /// Makes the request a dry run, whose result will not be stored.
    pub fn dry_run(self) -> Self {
        self.with_contract(|contract| contract.dry_run = true)
    }

    /// Returns the request itself.
    pub fn build(self) -> Request {
        self.0
    }

    /// Passes the request to a plugin, and applies its response.
    ///
    /// # Errors
    /// Returns the plugin's failure, or [`Error::Plugin`] for a patch that does not apply.
    pub fn admit(self, plugin: &impl Plugin) -> Result<Outcome, Error> {
        self.run(|request| plugin.admit(request))
    }

    /// Passes the request to a function, and applies its response.
    ///
    /// # Errors
    /// Returns the function's failure, or [`Error::Plugin`] for a patch that does not apply.
    pub fn run(self, admit: impl FnOnce(&Request) -> Result<Response, Error>) -> Result<Outcome, Error> {
        let types::Response {
            verdict,
            warnings,
            audit_annotations,
        } = cluster::with_user(self.0.user(), || admit(&self.0))?.into_contract();
        let mut object = self.0.object_value()?;
        let mut patch = None;
        let mut denial = None;
        match verdict {
            types::Verdict::Allow => {}
            types::Verdict::Replace(text) => object = Some(serde_json::from_str(&text).map_err(Error::other)?),
            types::Verdict::Deny(why) => denial = Some(why),
            types::Verdict::Patch(text) => {
                let operations: json_patch::Patch = serde_json::from_str(&text).map_err(Error::other)?;
                let target = object
                    .as_mut()
                    .ok_or_else(|| Error::other("a patch for a request without an object"))?;
                json_patch::patch(target, &operations).map_err(Error::other)?;
                patch = Some(serde_json::from_str(&text).map_err(Error::other)?);
            }
        }
        Ok(Outcome {
            object,
            patch,
            denial,
            warnings,
            audit_annotations,
        })
    }

    fn with_contract(mut self, change: impl FnOnce(&mut types::Request)) -> Self {
        change(self.0.contract_mut());
        self
    }
}

/// The outcome of a request in a test: the response, and the object after the response was applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    object: Option<Value>,
    patch: Option<Value>,
    denial: Option<Denial>,
    warnings: Vec<String>,
    audit_annotations: Vec<(String, String)>,
}

impl Outcome {
    /// Returns the object after the response was applied. It is unchanged if the verdict was `allow` or `deny`.
    pub fn object(&self) -> Option<&Value> {
        self.object.as_ref()
    }

    /// Returns the value at a JSON Pointer in the object after the response was applied.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.object.as_ref()?.pointer(pointer)
    }

    /// Returns the operations of the patch, if the verdict was `patch`.
    pub fn patch(&self) -> Option<&Value> {
        self.patch.as_ref()
    }

    /// Returns the denial, if the request was denied.
    pub fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }

    /// Returns whether the request is allowed, with or without a change.
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// Returns the warnings that the client gets.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the annotations for the audit log.
    pub fn audit_annotations(&self) -> &[(String, String)] {
        &self.audit_annotations
    }
}
