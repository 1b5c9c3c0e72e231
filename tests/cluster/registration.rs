//! Webhook configurations for the API server.

use serde_json::{Value, json};

use crate::scene::{SCENE_LABEL, core};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutating,
    Validating,
}

impl Kind {
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

/// One webhook in a configuration of its own.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    kind: Kind,
    /// Distinguishes the name from other registrations of the same kind.
    suffix: &'static str,
    path: &'static str,
    rules: Value,
    failure_policy: &'static str,
    versions: &'static [&'static str],
    reinvocation_policy: &'static str,
}

impl Registration {
    /// Returns a webhook at `path` for created Pods, with the failure policy `Fail`.
    pub(crate) fn new(kind: Kind, path: &'static str) -> Self {
        Self {
            kind,
            suffix: "",
            path,
            rules: core(&["CREATE"], &["pods"]),
            failure_policy: "Fail",
            versions: &["v1"],
            reinvocation_policy: "Never",
        }
    }

    pub(crate) fn mutating(path: &'static str) -> Self {
        Self::new(Kind::Mutating, path)
    }

    pub(crate) fn validating(path: &'static str) -> Self {
        Self::new(Kind::Validating, path)
    }

    /// Appends a suffix to the name, which then sorts after the name without it.
    pub(crate) fn named(self, suffix: &'static str) -> Self {
        Self { suffix, ..self }
    }

    pub(crate) fn rules(self, rules: Value) -> Self {
        Self { rules, ..self }
    }

    pub(crate) fn failing_open(self) -> Self {
        Self {
            failure_policy: "Ignore",
            ..self
        }
    }

    /// Sets `admissionReviewVersions`, the preferred version first.
    pub(crate) fn versions(self, versions: &'static [&'static str]) -> Self {
        Self { versions, ..self }
    }

    pub(crate) fn reinvoked(self) -> Self {
        Self {
            reinvocation_policy: "IfNeeded",
            ..self
        }
    }

    pub(crate) fn name(&self, scene: &str) -> String {
        format!("{scene}-{}{}", self.kind.name(), self.suffix)
    }

    /// Returns the name of the configuration's kind for kubectl.
    pub(crate) fn resource(&self) -> String {
        self.kind.document_kind().to_lowercase()
    }

    /// Returns the webhook's name in the API server's messages.
    pub(crate) fn webhook_name(&self, scene: &str) -> String {
        format!("{}.{scene}.example.com", self.kind.name())
    }

    /// Returns the name of the additional webhook that shows whether a configuration is in effect.
    pub(crate) fn probe_name(probe: &str) -> String {
        format!("{probe}.probe.example.com")
    }

    /// Returns the configuration. Its first webhook is unreachable and matches only objects whose label `probe` has the
    /// value `probe`. Once the API server refuses such an object, the configuration is in effect.
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
        if self.kind == Kind::Mutating {
            webhook["reinvocationPolicy"] = self.reinvocation_policy.into();
        }
        let probing = json!({
            "name": Self::probe_name(probe),
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": core(&["CREATE"], &["configmaps"]),
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
