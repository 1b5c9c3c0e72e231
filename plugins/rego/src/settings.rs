//! The settings that a chain gives the plugin.

use std::collections::BTreeMap;

use admittance_sdk::prelude::*;
use admittance_sdk::serde_json::{Map, Value as Json};

/// A policy in Rego, with an entry point or as a template of Gatekeeper with its constraints.
#[settings]
#[derive(Debug, Default)]
pub struct Settings {
    /// The policy, as the text of a module.
    pub rego: String,
    /// The texts of further modules, which the policy imports.
    #[serde(default)]
    pub libs: Vec<String>,
    /// The version of Rego in which the policy is written.
    #[serde(default)]
    pub version: LanguageVersion,
    /// The rule that decides, such as `data.jobs.deny`. It can be a set or list of messages, or of objects with a
    /// `msg`; then each element denies the request. It can also be an object like the response of an AdmissionReview. A
    /// rule with the name `allow` is a boolean.
    pub entrypoint: Option<String>,
    /// The value of `input.parameters` for the rule at `entrypoint`. Constraints have parameters of their own.
    #[serde(default)]
    pub parameters: Map<String, Json>,
    /// The constraints, by name, if the policy is a Gatekeeper template. Such a policy has no entry point. If there are
    /// several constraints, the environment variable `CONSTRAINT` of a stage selects the constraint for that stage.
    #[serde(default)]
    pub constraints: BTreeMap<String, Constraint>,
    /// The kinds of objects in `data.inventory`, such as `v1/Service`. Each must be granted in `allow.cluster`.
    #[serde(default)]
    pub inventory: Vec<String>,
}

/// A constraint of a template.
#[settings]
#[derive(Debug, Default)]
pub struct Constraint {
    /// The value of `input.parameters`.
    #[serde(default)]
    pub parameters: Map<String, Json>,
    /// The effects of a violation.
    #[serde(default)]
    pub actions: Vec<EnforcementAction>,
    /// The text in front of each message of this constraint. Default: the name of the constraint in brackets.
    pub prefix: Option<String>,
}

/// The effect of a violation.
#[settings]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementAction {
    /// Denies the request.
    Deny,
    /// Warns the client.
    Warn,
}

/// A version of Rego, the language of policies.
#[settings]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LanguageVersion {
    /// The syntax before OPA 1.0, without `if` and `contains`. Templates of Gatekeeper are in this version unless they
    /// set another version.
    V0,
    /// The syntax since OPA 1.0, with `if` and `contains`.
    #[default]
    V1,
}
