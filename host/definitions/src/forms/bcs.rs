//! Reads the `admissionwebhook` of BCS.
//!
//! Documents have the format of the BCS driver's API. Keys may be in any case, as for Go's decoder, because older
//! drivers return Go's names of fields (`ResourcesRef`, `CaBundle`). The driver accepts some definitions whose hook it
//! never calls, or calls too late. Here, such definitions are mistakes.

mod object;
mod shape;

use std::{collections::HashMap, sync::Arc, time::Duration};

use admittance_admission::{FailurePolicy, Matcher, Operation, Protocol, Rule, StageSpec};

pub use self::object::{BcsObject, NoBcsObject};
use super::{DocumentForm, DocumentKind, FormContent, ReadDefinition, TypedDocument, parts};
use crate::{
    Location, WebhookDefinition, client,
    document::{Fields, Mistakes, Node, ValueLocation, quoted, readers},
    forms::kubernetes::{KEPT_METADATA, read_labels},
    forms::native::{finish_stage, read_stage_name, read_timeout},
    model::{ChainDefinition, StageDefinition, any_rule},
    plugin, selectors,
};

/// The default timeout of a hook: kube-apiserver's default for webhooks, because the BCS driver has no timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const OPERATIONS: [(&str, Operation); 2] = [("Create", Operation::Create), ("Update", Operation::Update)];

/// The kinds of BCS objects that clients create and update through the BCS driver: (name in definitions, name in
/// request paths). The driver calls hooks only for `Application` and `Deployment`.
const RESOURCE_KINDS: [(&str, &str); 7] = [
    ("Application", "application"),
    ("Deployment", "deployment"),
    ("Process", "process"),
    ("DaemonSet", "daemonset"),
    ("ConfigMap", "configmap"),
    ("Secret", "secret"),
    ("Service", "service"),
];

/// The operation and kind of object for which hooks are called. In BCS, no two definitions may have the same pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HookTarget {
    operation: Operation,
    kind: &'static str,
}

impl std::fmt::Display for HookTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = match self.operation {
            Operation::Update => "Update",
            _ => "Create",
        };
        write!(f, "{operation} of {}", self.kind)
    }
}

static KINDS: [DocumentKind; 2] = [
    DocumentKind::namespaced("admissionwebhook", &["v4", ""]),
    DocumentKind::namespaced("AdmissionWebhookConfiguration", &["bkbcs.tencent.com/v2"]),
];

#[derive(Debug)]
pub(super) struct BcsForm;

impl DocumentForm for BcsForm {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn recognize(&self, kind: &str, _version: &str) -> Option<&'static DocumentKind> {
        let [object, resource] = &KINDS;
        match kind {
            _ if kind.eq_ignore_ascii_case(object.name) => Some(object),
            _ => (kind == resource.name).then_some(resource),
        }
    }

    fn metadata<'a>(&self, document: &TypedDocument<'a>) -> Option<Node<'a>> {
        let mut fields = document.root.ignoring_mistakes().object_of_any_case()?;
        let outer = fields.optional("metadata");
        if !is_resource(document) {
            return outer;
        }
        let mut spec = fields.optional("spec")?.object_of_any_case()?;
        spec.optional("metadata").or(outer)
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        if is_resource(document) {
            return read_custom_resource(&document.root);
        }
        let fields = document.root.object_of_any_case()?;
        Some(read_definition(fields, document.root.location(), None))
    }

    fn check_conflicts(&self, new: &ReadDefinition, earlier: &[Arc<ReadDefinition>], mistakes: &mut Mistakes) {
        let Some(located_target) = new.part::<LocatedTarget>() else {
            return;
        };
        let mut earlier_targets = parts::<LocatedTarget>(earlier).into_iter();
        if let Some(first) = earlier_targets.find(|other| other.target == located_target.target) {
            let message = format!(
                "{} already defines hooks for {}",
                first.location.location, located_target.target
            );
            let fix = "BCS has one definition for each operation and kind: put the hooks into one";
            mistakes.push(located_target.location.mistake(message, fix));
        }
    }
}

fn is_resource(document: &TypedDocument<'_>) -> bool {
    let [_, resource] = &KINDS;
    document.kind.name == resource.name
}

struct LocatedTarget {
    target: HookTarget,
    location: ValueLocation,
}

/// Reads a definition from the `spec` of a custom resource. If the `spec` has no `metadata`, the `metadata` of the
/// resource is used instead, as in the BCS driver.
fn read_custom_resource(root: &Node<'_>) -> Option<FormContent> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let metadata = fields.optional("metadata");
    let spec = fields
        .required("spec", "write the admissionwebhook there")
        .and_then(|spec| spec.object_of_any_case());
    Some(read_definition(spec?, root.location(), metadata))
}

fn read_definition<'a>(mut fields: Fields<'a>, source: Location, outer_metadata: Option<Node<'a>>) -> FormContent {
    fields.ignore(&["apiVersion", "kind"]);
    let metadata = match fields.optional("metadata").or(outer_metadata) {
        Some(metadata) => Some(metadata),
        None => fields.required("metadata", "write namespace and name"),
    };
    let name = metadata.and_then(|metadata| read_name(&metadata));
    let fix = "write operation and kind: `{ operation: Create, kind: Application }`";
    let read_located_target = |node: &Node<'a>| Some((read_target(node)?, node.clone()));
    let located_target = fields.get_required("resourcesRef", fix, read_located_target);
    let fix = "list the hooks that are called";
    // Go writes an empty list as null, so null is accepted as a list.
    let stages = if fields.is_null("admissionWebhooks") {
        fields.ignore(&["admissionWebhooks"]);
        Some(Vec::new())
    } else {
        fields.get_required("admissionWebhooks", fix, read_stages)
    };
    let Some((target, node)) = located_target else {
        return FormContent::default();
    };
    let content = name.zip(stages).map(|(name, stages)| {
        let rule = Rule {
            operations: Matcher::Only(vec![target.operation]),
            kinds: Matcher::Only(vec![target.kind.to_owned()]),
            ..any_rule()
        };
        FormContent::of_chain(ChainDefinition {
            location: source,
            ..ChainDefinition::new(name, vec![rule], stages)
        })
    });
    content.unwrap_or_default().with_part(LocatedTarget {
        target,
        location: node.value_location(),
    })
}

fn read_name(metadata: &Node<'_>) -> Option<String> {
    let mut fields = metadata.object_of_any_case()?;
    let read_segment = readers::parse_with(check_path_segment);
    let name = fields.get_required("name", "name the definition", &read_segment);
    let namespace = fields.get_required("namespace", "write the definition's namespace", &read_segment);
    read_labels(&mut fields);
    for key in ["creationTimestamp", "clusterName"] {
        fields.get_optional(key, Node::string);
    }
    fields.ignore(&KEPT_METADATA);
    Some(format!("{}/{}", namespace?, name?))
}

fn read_target(node: &Node<'_>) -> Option<HookTarget> {
    let mut fields = node.object_of_any_case()?;
    let read_operation = |node: &Node<'_>| node.one_of_any_case("operation", &OPERATIONS);
    let operation = fields.get_required("operation", "write Create or Update", read_operation);
    let read_kind = |node: &Node<'_>| node.one_of_any_case("kind of BCS", &RESOURCE_KINDS);
    let kind = fields.get_required("kind", "write Application or Deployment", read_kind);
    Some(HookTarget {
        operation: operation?,
        kind: kind?,
    })
}

fn read_stages(node: &Node<'_>) -> Option<Vec<StageDefinition>> {
    let mut name_locations = HashMap::new();
    let mut stages = Vec::new();
    for stage in node.list()? {
        stages.extend(read_stage(&stage, &mut name_locations));
    }
    Some(stages)
}

fn read_stage(node: &Node<'_>, name_locations: &mut HashMap<String, Location>) -> Option<StageDefinition> {
    let mut fields = node.object_of_any_case()?;
    let name = read_stage_name(&mut fields, "name the hook", check_printable, name_locations);
    let hook = plugin::read_client_or_plugin(&mut fields, "hook", read_client);
    let read_policy = |node: &Node<'_>| match node.string()? {
        // The driver returns `failurePolicy: ''` if the policy is unset. Like a missing policy, this means `Ignore`.
        "" => None,
        _ => node.word(),
    };
    let mut spec = StageSpec::new("");
    spec.namespace_selector = fields.get_optional("namespaceSelector", selectors::read_bcs_namespace_selector);
    spec.failure_policy = fields.get("failurePolicy", FailurePolicy::Ignore, read_policy);
    spec.timeout = fields.get("timeout", DEFAULT_TIMEOUT, read_timeout);
    finish_stage(fields, name, spec, hook)
}

fn read_client(node: &Node<'_>) -> Option<WebhookDefinition> {
    let mut fields = node.object_of_any_case()?;
    let protocol = Protocol::BcsResource;
    let before = node.mistake_count();
    let ca_bundle = fields.get_optional("caBundle", client::read_ca_bundle);
    let bundle_is_wrong = node.mistake_count() > before;
    let url = fields
        .optional("url")
        .filter(|url| !matches!(url.ignoring_mistakes().string(), Some("")));
    let target = match url {
        // Documents from the driver have both a URL and a service. As in the driver, the URL has precedence.
        Some(url) => {
            fields.ignore(&["namespace", "name", "path", "port"]);
            client::read_url(&url, &protocol)
        }
        None => {
            if ca_bundle.is_none() && !bundle_is_wrong {
                client::require_ca_bundle(&mut fields);
            }
            client::read_service(&mut fields, &protocol)
        }
    };
    Some(WebhookDefinition {
        protocol,
        target: target?,
        ca_bundle,
    })
}

/// Accepts a name without spaces and control characters, which would corrupt logs. BCS has no rules for names.
fn check_printable(text: &str) -> Result<String, String> {
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!(
            "{text} is not a valid name: remove the spaces and control characters",
            text = quoted(text)
        ));
    }
    Ok(text.to_owned())
}

/// Accepts a name that can be a segment of a path, in the URLs of the API and in ZooKeeper.
fn check_path_segment(text: &str) -> Result<String, String> {
    let name = check_printable(text)?;
    let text = quoted(text);
    if name.contains('/') {
        return Err(format!(
            "{text} is not a valid name: remove the `/`, which stands between namespace and name"
        ));
    }
    if matches!(name.as_str(), "." | "..") {
        return Err(format!("{text} is not a valid name: in a path it means something else"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
