//! The webhook configurations that the scenarios register at the API server.

use serde_json::{Value, json};

use crate::scene::{SCENE_LABEL, core_rules};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistrationKind {
    Mutating,
    Validating,
}

impl RegistrationKind {
    fn name(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }

    fn document_kind(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }
}

/// A webhook that is registered at the API server, in a configuration of its own.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    kind: RegistrationKind,
    suffix: &'static str,
    path: &'static str,
    rules: Value,
    failure_policy: &'static str,
    versions: &'static [&'static str],
    reinvocation_policy: &'static str,
}

impl Registration {
    /// Returns a webhook at `path` for created Pods, to be registered with the failure policy `Fail`.
    pub(crate) fn new(kind: RegistrationKind, path: &'static str) -> Self {
        Self {
            kind,
            suffix: "",
            path,
            rules: core_rules(&["CREATE"], &["pods"]),
            failure_policy: "Fail",
            versions: &["v1"],
            reinvocation_policy: "Never",
        }
    }

    pub(crate) fn mutating(path: &'static str) -> Self {
        Self::new(RegistrationKind::Mutating, path)
    }

    pub(crate) fn validating(path: &'static str) -> Self {
        Self::new(RegistrationKind::Validating, path)
    }

    /// Sets the end of the configuration's name. The API server calls webhooks in the order of these names.
    pub(crate) fn with_suffix(self, suffix: &'static str) -> Self {
        Self { suffix, ..self }
    }

    pub(crate) fn with_rules(self, rules: Value) -> Self {
        Self { rules, ..self }
    }

    pub(crate) fn with_failures_ignored(self) -> Self {
        Self {
            failure_policy: "Ignore",
            ..self
        }
    }

    /// Sets the versions of AdmissionReview that the webhook accepts. The API server uses the first that it supports.
    pub(crate) fn with_versions(self, versions: &'static [&'static str]) -> Self {
        Self { versions, ..self }
    }

    pub(crate) fn with_reinvocation(self) -> Self {
        Self {
            reinvocation_policy: "IfNeeded",
            ..self
        }
    }

    pub(crate) fn name(&self, scene: &str) -> String {
        format!("{scene}-{}{}", self.kind.name(), self.suffix)
    }

    pub(crate) fn resource(&self) -> String {
        self.kind.document_kind().to_lowercase()
    }

    pub(crate) fn webhook_name(&self, scene: &str) -> String {
        format!("{}.{scene}.example.com", self.kind.name())
    }

    pub(crate) fn probe_name(probe: &str) -> String {
        format!("{probe}.probe.example.com")
    }

    /// Returns the webhook configuration. It has one more webhook, the probe, which is unreachable and matches only
    /// objects with the label `probe: {probe}`. As soon as the API server refuses such an object, the whole
    /// configuration is in effect.
    pub(crate) fn document(&self, scene: &str, url: &str, ca_bundle: &str, probe: &str) -> Value {
        let mut webhook = json!({
            "name": self.webhook_name(scene),
            "clientConfig": {"url": format!("{url}{}", self.path), "caBundle": ca_bundle},
            "rules": self.rules,
            "namespaceSelector": {"matchLabels": {SCENE_LABEL: scene}},
            "failurePolicy": self.failure_policy,
            "sideEffects": "None",
            "admissionReviewVersions": self.versions,
            "timeoutSeconds": 10,
        });
        if self.kind == RegistrationKind::Mutating {
            webhook["reinvocationPolicy"] = self.reinvocation_policy.into();
        }
        let probing = json!({
            "name": Self::probe_name(probe),
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": core_rules(&["CREATE"], &["configmaps"]),
            "objectSelector": {"matchLabels": {"probe": probe}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": self.kind.document_kind(),
            "metadata": {"name": self.name(scene)},
            "webhooks": [probing, webhook],
        })
    }
}
