//! Reads the webhook configurations and the CEL policies of Kubernetes.
//!
//! Every document that a Kubernetes API server accepts is accepted here, except for a few in which every call would
//! fail. In addition, a webhook can have the fields `plugin` (instead of `clientConfig`), `timeout` and `mode`.

mod openapi;
pub(super) mod policy;
mod resource;
pub(crate) mod typing;
mod webhook;

use std::collections::HashMap;

use admittance_admission::{ClusterKind, Phase, is_dns_label};

use self::{
    policy::{BindingDocument, PolicyDocument},
    webhook::ConfigurationVersion,
};
use super::{DocumentForm, DocumentKind, FormContent, FormDocuments, TypedDocument};
use crate::{
    Definitions, ImportResult,
    document::{Fields, Mistakes, Node, quoted, readers},
    model::{ChainDefinition, StageDefinition},
    names,
};

/// The ignored fields of `metadata`. API servers, clients and BCS write them in addition to the name and namespace.
pub(crate) const KEPT_METADATA: [&str; 12] = [
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

const V1: &str = "admissionregistration.k8s.io/v1";
const V1_BETA: &str = "admissionregistration.k8s.io/v1beta1";
/// The versions of policies. All of them are read in the same way as v1.
const POLICY_VERSIONS: &[&str] = &[V1, V1_BETA, "admissionregistration.k8s.io/v1alpha1"];

static KINDS: [DocumentKind; 8] = [
    DocumentKind::new("MutatingWebhookConfiguration", &[V1, V1_BETA]),
    DocumentKind::new("ValidatingWebhookConfiguration", &[V1, V1_BETA]),
    DocumentKind::needed("MutatingAdmissionPolicy", POLICY_VERSIONS),
    DocumentKind::needed("ValidatingAdmissionPolicy", POLICY_VERSIONS),
    DocumentKind::needed("MutatingAdmissionPolicyBinding", POLICY_VERSIONS),
    DocumentKind::needed("ValidatingAdmissionPolicyBinding", POLICY_VERSIONS),
    DocumentKind::supporting("CustomResourceDefinition", &["apiextensions.k8s.io/v1"]),
    DocumentKind {
        fields: &[openapi::VERSION, openapi::VERSION_2],
        ..DocumentKind::supporting("OpenAPI document", &[])
    },
];

#[derive(Debug)]
pub(super) struct KubernetesForm;

impl DocumentForm for KubernetesForm {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        let root = &document.root;
        let (phase, rest) = match document.kind.name.strip_prefix("Mutating") {
            Some(rest) => (Phase::Mutating, rest),
            None => (Phase::Validating, document.kind.name.trim_start_matches("Validating")),
        };
        Some(match rest {
            "WebhookConfiguration" => {
                let version = match document.version {
                    V1 => ConfigurationVersion::V1,
                    _ => ConfigurationVersion::V1Beta1,
                };
                FormContent::of_chain(read_configuration(root, phase, version)?)
            }
            "AdmissionPolicy" => {
                let policy = policy::read_policy(root, phase)?;
                FormContent::of_part("chain", phase, policy.name.clone(), policy)
            }
            "AdmissionPolicyBinding" => {
                let binding = policy::read_binding(root, phase)?;
                FormContent::of_part("binding", phase, binding.name.clone(), binding)
            }
            "CustomResourceDefinition" => {
                let resource = resource::read_resource(root)?;
                FormContent::of_part("CustomResourceDefinition", phase, resource.name.clone(), resource)
            }
            _ => {
                let resources = openapi::read(root)?;
                let name = resources.name.clone();
                FormContent::default()
                    .with_part(resources)
                    .with_shared_name("OpenAPI document", phase, name)
            }
        })
    }

    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, mistakes: &mut Mistakes) {
        defined.chains.extend(all.chains());
        let policies = all.parts::<PolicyDocument>();
        let bindings = all.parts::<BindingDocument>();
        for binding in &bindings {
            binding.check(&policies, mistakes);
        }
        let resources = all.parts();
        let policy_chains = policies.iter().map(|policy| policy.chain(&bindings, &resources));
        defined.chains.extend(policy_chains);
    }

    fn import(&self, kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        let reason = "it has schemas of resources, and no policy";
        kind.is_supporting.then_some((ImportResult::LeftOut, reason))
    }
}

fn read_configuration(root: &Node<'_>, phase: Phase, version: ConfigurationVersion) -> Option<ChainDefinition> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind"]);
    let fix = "name the configuration: `metadata: { name: ... }`";
    let name = fields.get_required("metadata", fix, read_name);
    let webhooks = fields.get("webhooks", Vec::new(), Node::list);
    let mut name_locations = HashMap::new();
    let stages: Vec<StageDefinition> = webhooks
        .iter()
        .filter_map(|webhook| webhook::read(webhook, phase, version, &mut name_locations))
        // Kubernetes never calls a webhook without rules, but a stage without rules would be called for every request.
        .filter(|stage| !stage.spec.rules.is_empty())
        .collect();
    let rules = stages.iter().flat_map(|stage| stage.spec.rules.clone()).collect();
    Some(ChainDefinition {
        phase,
        location: root.location(),
        ..ChainDefinition::new(name?, rules, stages)
    })
}

/// Reads the name and the `spec` of a cluster-wide resource. `fix` is the advice for a missing `spec`. The name is
/// `None` if it is missing or invalid.
pub(crate) fn read_head<'a>(root: &Node<'a>, fix: &str) -> Option<(Option<String>, Fields<'a>)> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let name = fields.get_required("metadata", "write `metadata: { name: ... }`", read_name);
    let spec = fields.get_required("spec", fix, Node::object);
    Some((name, spec?))
}

pub(crate) fn read_name(metadata: &Node<'_>) -> Option<String> {
    let mut fields = metadata.object()?;
    let name = fields.get_required("name", "write its name", readers::parse_with(names::check_subdomain));
    // A cluster-wide resource belongs to no namespace. If its `metadata` contains a `namespace` nevertheless, the field
    // is ignored, as by the API server.
    fields.ignore(&["namespace"]);
    read_labels(&mut fields);
    fields.ignore(&KEPT_METADATA);
    name
}

/// Checks that labels and annotations are strings, as an API server does. This program does not use them otherwise.
pub(crate) fn read_labels(metadata: &mut Fields<'_>) {
    for field in ["labels", "annotations"] {
        let pairs = metadata.get_or_default(field, Node::map);
        for (_, value) in pairs.into_iter().filter(|(_, value)| !value.is_null()) {
            value.string();
        }
    }
}

/// Reads a kind of objects in the cluster, which a policy may read, such as `{ apiVersion: v1, kind: ConfigMap }`.
pub(crate) fn read_kind(node: &Node<'_>) -> Option<ClusterKind> {
    let mut fields = node.object()?;
    let version = fields.get_required("apiVersion", "write `v1` or `apps/v1`", readers::text);
    let kind = fields.get_required("kind", "write the kind, `ConfigMap`", readers::text);
    let kind: ClusterKind = node.accept(format!("{}/{}", version?, kind?).parse())?;
    if !is_dns_label(&kind.kind().to_ascii_lowercase()) {
        let message = format!("{} is not a kind", quoted(kind.kind()));
        node.add_mistake(message, "write letters and digits, `ConfigMap`");
    }
    Some(kind)
}

#[cfg(test)]
mod tests;
