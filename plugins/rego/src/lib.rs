//! The stock plugin `rego`: evaluates a policy in Rego, the language of OPA and Gatekeeper.
//!
//! ```yaml
//! rego: |
//!   package jobs
//!   deny contains msg if {
//!     input.review.object.Count > input.parameters.most
//!     msg := sprintf("%d instances, and %d are allowed", [input.review.object.Count, input.parameters.most])
//!   }
//! entrypoint: data.jobs.deny
//! parameters: { most: 10 }
//! ```
//!
//! A stage with `rego:`, and the templates of Gatekeeper, are stages of this plugin. The policy is compiled by
//! `configure`, so that calls start with the compiled policy.

mod cidr;
mod format;
mod functions;
mod globs;
mod policy;
mod remember;
mod review;
mod settings;
mod source;
mod verdict;
mod walk;

use std::{
    collections::BTreeMap,
    env,
    sync::{Mutex, PoisonError},
};

use admittance_sdk::cluster::{self, List};
use admittance_sdk::prelude::*;
use admittance_sdk::serde_json::{Map, Value as Json};
use regorus::Value;

use policy::CompiledModules;
pub use settings::{Constraint, EnforcementAction, LanguageVersion, Settings};
use verdict::PreparedConstraint;

const CONSTRAINT_VARIABLE: &str = "CONSTRAINT";

/// The plugin `rego`, configured with its settings.
#[derive(Debug)]
pub struct Rego {
    /// The compiled policy. It is locked because an evaluation changes it; each call has its own copy.
    policy: Mutex<CompiledModules>,
    rule: String,
    parameters: Value,
    /// The constraints of a Gatekeeper template, by name. The map is empty if the settings have an entry point.
    constraints: BTreeMap<String, PreparedConstraint>,
    inventory: Vec<(String, String)>,
    reads_namespace: bool,
}

#[plugin]
impl Plugin for Rego {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if settings.entrypoint.is_some() != settings.constraints.is_empty() {
            let message = "name the rule that decides, `data.jobs.deny`, or write `constraints` for a template";
            errors.push(pointer!["entrypoint"], message);
        }
        let mut inventory = Vec::new();
        for (index, kind) in settings.inventory.iter().enumerate() {
            match kind.rsplit_once('/') {
                Some((api_version, kind)) => inventory.push((api_version.to_owned(), kind.to_owned())),
                None => errors.push(pointer!["inventory", index], "write version and kind, `v1/Service`"),
            }
        }
        let (policy, rule) = match policy::compile(&settings) {
            Ok(compiled) => compiled,
            Err(mistakes) => {
                for error in mistakes.iter() {
                    let at = admittance_sdk::PointerBuf::parse(error.pointer()).unwrap_or_default();
                    errors.push(at, error.message());
                }
                return Err(errors);
            }
        };
        errors.check()?;
        let texts = || std::iter::once(&settings.rego).chain(&settings.libs);
        let reads_namespace = texts().any(|text| text.contains("namespaceObject") || text.contains("_unstable"));
        let constraints = settings.constraints.into_iter().map(|(name, constraint)| {
            let constrained = PreparedConstraint {
                prefix: constraint.prefix.unwrap_or_else(|| format!("[{name}]")),
                parameters: rego_value(constraint.parameters),
                actions: constraint.actions,
            };
            (name, constrained)
        });
        Ok(Self {
            policy: Mutex::new(policy),
            rule,
            parameters: rego_value(settings.parameters),
            constraints: constraints.collect(),
            inventory,
            reads_namespace,
        })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        if self.constraints.is_empty() {
            let entry_point_value = self.evaluate(request, &self.parameters, self.read_policy_objects(request)?)?;
            return verdict::entry_point_response(&self.rule, &entry_point_value);
        }
        let constraint = self.selected_constraint()?;
        if request.operation() == Operation::Delete && request.old_object_json().is_none() {
            return Err(Error::other("the request deletes an object, and does not contain it"));
        }
        let violations = self.evaluate(request, &constraint.parameters, self.read_policy_objects(request)?)?;
        verdict::constraint_response(constraint, &violations)
    }

    fn warm_up(&self, sample: &Request) {
        let constraint = self.constraints.values().next();
        let parameters = constraint.map_or(&self.parameters, |constraint| &constraint.parameters);
        // The cluster cannot be read during the warm-up, so the policy gets no objects.
        let _ = self.evaluate(sample, parameters, PolicyObjects::default());
    }
}

#[derive(Default)]
struct PolicyObjects {
    namespace: Option<Value>,
    inventory: Option<Value>,
}

impl Rego {
    fn selected_constraint(&self) -> Result<&PreparedConstraint, Error> {
        let constraint = match &env::var(CONSTRAINT_VARIABLE).ok() {
            Some(name) => self.constraints.get(name),
            None if self.constraints.len() == 1 => self.constraints.values().next(),
            None => None,
        };
        constraint.ok_or_else(|| {
            Error::other(format!(
                "there are several constraints, and the environment variable {CONSTRAINT_VARIABLE} names none of them"
            ))
        })
    }

    fn evaluate(&self, request: &Request, parameters: &Value, objects: PolicyObjects) -> Result<Value, Error> {
        let mut review = review::from_request(request)?;
        if let Some(namespace) = objects.namespace {
            let unstable = rego_object([("namespace", namespace.clone())]);
            set_fields(&mut review, [("namespaceObject", namespace), ("_unstable", unstable)])?;
        }
        let mut input = rego_object([("parameters", parameters.clone()), ("review", review.clone())]);
        // Only policies with an entry point, as OPA runs them, find the AdmissionReview in `input.request`. Gatekeeper
        // does not provide it there for its templates, which have constraints.
        if self.constraints.is_empty() {
            set_fields(&mut input, [("request", review)])?;
        }
        if let Some(inventory) = objects.inventory {
            set_fields(&mut input, [(source::INVENTORY_FIELD, inventory)])?;
        }
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        policy.evaluate(input).map_err(Error::other)
    }

    fn read_policy_objects(&self, request: &Request) -> Result<PolicyObjects, Error> {
        let namespace = match request.namespace().filter(|_| self.reads_namespace) {
            Some(namespace) => {
                let namespace_object: Option<Value> =
                    cluster::get("v1", "Namespace", None, namespace).map_err(Error::other)?;
                Some(namespace_object.unwrap_or(Value::Null))
            }
            None => None,
        };
        let inventory = if self.inventory.is_empty() {
            None
        } else {
            Some(self.read_inventory()?)
        };
        Ok(PolicyObjects { namespace, inventory })
    }

    /// Returns `data.inventory`: all objects of the kinds in the settings. It is passed as a part of the input.
    fn read_inventory(&self) -> Result<Value, Error> {
        let (mut namespaced, mut wide) = (Value::new_object(), Value::new_object());
        for (api_version, kind) in &self.inventory {
            for item in List::of(api_version, kind).objects::<Value>() {
                let stored_object = item.map_err(Error::other)?;
                let metadata = verdict::field(&stored_object, "metadata");
                let text = |name: &str| metadata.and_then(|metadata| verdict::field(metadata, name)).cloned();
                let name = text("name").unwrap_or_else(|| "".into());
                let kinds = match text("namespace") {
                    Some(namespace) if namespace != "".into() => get_or_insert_object(&mut namespaced, namespace)?,
                    _ => &mut wide,
                };
                let of_kind = get_or_insert_object(
                    get_or_insert_object(kinds, api_version.as_str().into())?,
                    kind.as_str().into(),
                )?;
                of_kind
                    .as_object_mut()
                    .map_err(engine_error)?
                    .insert(name, stored_object);
            }
        }
        Ok(rego_object([("namespace", namespaced), ("cluster", wide)]))
    }
}

fn get_or_insert_object(value: &mut Value, key: Value) -> Result<&mut Value, Error> {
    let object = value.as_object_mut().map_err(engine_error)?;
    Ok(object.get_or_insert_with(key, Value::new_object))
}

fn rego_value(map: Map<String, Json>) -> Value {
    Json::Object(map).into()
}

fn rego_object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut object = Value::new_object();
    let _ = set_fields(&mut object, fields);
    object
}

fn set_fields<const N: usize>(object: &mut Value, fields: [(&str, Value); N]) -> Result<(), Error> {
    let object = object.as_object_mut().map_err(engine_error)?;
    for (name, value) in fields {
        object.insert(name.into(), value);
    }
    Ok(())
}

fn engine_error(error: impl std::fmt::Display) -> Error {
    Error::other(policy::readable_message(&error.to_string()))
}

#[cfg(test)]
mod tests;
