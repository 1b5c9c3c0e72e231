//! Builds the webhook configurations for chains. `kubernetes manifests` prints them, and the leader registers them.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

mod exclusions;
mod webhook;

use std::{borrow::Borrow, collections::BTreeSet};

use admittance::{
    admission::{Chain, FailurePolicy, Phase, Reach, Rule, Stage, StageSpec},
    definitions::ChainDefinition,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value as Json, json};

pub use self::webhook::RegisteredWebhook;
use crate::RESOURCE_PLURALS;

/// The label that excludes a namespace from all webhooks.
pub const IGNORE_LABEL: &str = "admittance.dev/ignore";
/// The namespace of the cluster's own components.
const SYSTEM_NAMESPACE: &str = "kube-system";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The settings of the webhook configurations: how the API server reaches this program, and which requests it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRegistration {
    /// The name of this program's Service and of its webhook configurations.
    pub name: String,
    pub namespace: String,
    /// Whether each chain gets its own webhook. If not, all chains of a phase share a webhook.
    pub per_chain: bool,
    /// The timeout of the webhooks in seconds. `None` derives it from the stages.
    pub timeout: Option<u8>,
    /// The failure policy of the webhooks. `None` derives it from the stages.
    pub failure_policy: Option<FailurePolicy>,
    /// Namespaces excluded from the webhooks, besides the cluster's system namespaces and this program's namespace.
    pub excluded_namespaces: Vec<String>,
    pub includes_kube_system: bool,
    /// Whether the API server supports match conditions.
    pub has_match_conditions: bool,
}

impl Default for WebhookRegistration {
    fn default() -> Self {
        Self {
            name: "admittance".to_owned(),
            namespace: "admittance-system".to_owned(),
            per_chain: false,
            timeout: None,
            failure_policy: None,
            excluded_namespaces: Vec::new(),
            includes_kube_system: false,
            has_match_conditions: true,
        }
    }
}

/// The properties of a chain that determine the webhook for it.
#[derive(Debug)]
pub struct RegisteredChain<'a> {
    name: &'a str,
    phase: Phase,
    /// The namespace to which the chain is limited; `None` if it applies to all namespaces.
    namespace: Option<&'a str>,
    rules: &'a [Rule],
    stages: Vec<&'a StageSpec>,
}

impl<'a> From<&'a ChainDefinition> for RegisteredChain<'a> {
    fn from(chain: &'a ChainDefinition) -> Self {
        Self {
            name: &chain.name,
            phase: chain.phase,
            namespace: chain.namespace.as_deref(),
            rules: &chain.rules,
            stages: chain.stages.iter().map(|stage| &stage.spec).collect(),
        }
    }
}

impl<'a, S: Borrow<Stage>> From<&'a Chain<S>> for RegisteredChain<'a> {
    fn from(chain: &'a Chain<S>) -> Self {
        Self {
            name: &chain.name,
            phase: chain.phase,
            namespace: chain.namespace.as_deref(),
            rules: &chain.rules,
            stages: chain.stages.iter().map(|stage| &stage.borrow().spec).collect(),
        }
    }
}

impl WebhookRegistration {
    /// Returns which requests the webhooks send to the chains.
    pub fn reach(&self) -> Reach {
        let excluded = excluded_namespaces(self).into_iter().chain([self.namespace.as_str()]);
        Reach {
            is_by_resource: true,
            excluded_namespaces: excluded.map(str::to_owned).collect(),
            resources: None,
        }
    }
}

impl RegisteredChain<'_> {
    /// Describes why no webhook can be registered for a rule of the chain; `None` if all rules can be registered.
    pub fn problem(&self) -> Option<String> {
        self.rules.iter().any(Rule::is_by_kind_alone).then(|| {
            format!(
                "the chain {} has a rule with only `kinds`, but the API server matches requests by resource; list \
                 `resources` in it",
                self.name
            )
        })
    }
}

pub(crate) const PHASES: [(Phase, &str); 2] = [
    (Phase::Mutating, "MutatingWebhookConfiguration"),
    (Phase::Validating, "ValidatingWebhookConfiguration"),
];

pub fn configurations(registration: &WebhookRegistration, webhooks: &[RegisteredWebhook], ca: &str) -> Vec<Json> {
    let configuration_of = |(phase, kind)| {
        let webhooks = documents(registration, webhooks, phase, ca);
        (!webhooks.is_empty()).then(|| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": registration.name, "labels": labels(&registration.name)},
                "webhooks": webhooks,
            })
        })
    };
    PHASES.into_iter().filter_map(configuration_of).collect()
}

pub(crate) fn documents(
    registration: &WebhookRegistration,
    webhooks: &[RegisteredWebhook],
    phase: Phase,
    ca: &str,
) -> Vec<Json> {
    let phase_webhooks = webhooks.iter().filter(|webhook| webhook.phase == phase);
    phase_webhooks
        .map(|webhook| webhook.document(registration, ca))
        .collect()
}

pub const DEFINITIONS_PATH: &str = "/definitions";

/// Returns the webhook configuration that checks definitions before they are stored as resources. It must be installed
/// separately if the leader does not manage the webhook configurations.
pub fn definitions_configuration(registration: &WebhookRegistration, ca: &str) -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("{}-definitions", registration.name), "labels": labels(&registration.name)},
        "webhooks": [definitions_webhook(registration, ca)],
    })
}

/// Returns the webhook that checks definitions before they are stored. If this program is down, definitions are stored
/// without the check (`Ignore`), so that the webhook never prevents a repair.
pub(crate) fn definitions_webhook(registration: &WebhookRegistration, ca: &str) -> Json {
    const TIMEOUT_SECONDS: u64 = 5;
    let WebhookRegistration { name, namespace, .. } = registration;
    let mut webhook = json!({
        "name": format!("definitions.{name}.{namespace}"),
        "clientConfig": {
            "service": {"namespace": namespace, "name": name, "path": DEFINITIONS_PATH, "port": 443},
            "caBundle": BASE64_STANDARD.encode(ca),
        },
        "rules": [{
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": ["admittance.dev"],
            "apiVersions": ["*"],
            "resources": RESOURCE_PLURALS,
            "scope": "*",
        }],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]},
        ]},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1", "v1beta1"],
    });
    if registration.has_match_conditions {
        webhook["matchConditions"] = json!([{
            "name": "exclude-own-account",
            "expression": format!("request.userInfo.username != 'system:serviceaccount:{namespace}:{name}'"),
        }]);
    }
    webhook
}

/// Returns the labels that every object of an installation has.
pub fn labels(name: &str) -> Json {
    json!({
        "app.kubernetes.io/name": "admittance",
        "app.kubernetes.io/instance": name,
    })
}

/// Returns the namespaces that are excluded from the webhooks, except the namespace of this program.
pub fn excluded_namespaces(registration: &WebhookRegistration) -> Vec<&str> {
    let system = (!registration.includes_kube_system).then_some(SYSTEM_NAMESPACE);
    let configured_names = registration.excluded_namespaces.iter().map(String::as_str);
    let mut names = Vec::new();
    for name in system.into_iter().chain([LEASE_NAMESPACE]).chain(configured_names) {
        if name != registration.namespace && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the kinds of requests that at least one webhook excludes, named as in messages and sorted.
pub fn excluded_subjects(webhooks: &[RegisteredWebhook]) -> Vec<&'static str> {
    let exclusions = webhooks.iter().flat_map(|webhook| &webhook.exclusions);
    let excluded: BTreeSet<_> = exclusions.map(|exclusion| exclusion.subject).collect();
    excluded.into_iter().collect()
}

#[cfg(test)]
mod tests;
