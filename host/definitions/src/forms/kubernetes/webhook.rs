//! Reads an entry of `webhooks` in a webhook configuration.

use std::{collections::HashMap, time::Duration};

use admittance_admission::{
    FailurePolicy, MatchPolicy, Phase, Protocol, Reinvocation, ReviewVersion, SideEffects, StageSpec,
};

use crate::{
    Location, WebhookDefinition, client, conditions,
    document::{Fields, Node},
    forms::native::{self, finish_stage, read_stage_name},
    model::StageDefinition,
    names, plugin, rules,
    selectors::{self, LabelSyntax},
};

/// The API version of a webhook configuration. Both versions have the same fields, but different defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationVersion {
    V1,
    V1Beta1,
}

impl ConfigurationVersion {
    fn failure_policy(self) -> FailurePolicy {
        match self {
            Self::V1 => FailurePolicy::Fail,
            Self::V1Beta1 => FailurePolicy::Ignore,
        }
    }

    fn match_policy(self) -> MatchPolicy {
        match self {
            Self::V1 => MatchPolicy::Equivalent,
            Self::V1Beta1 => MatchPolicy::Exact,
        }
    }

    fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::V1 => 10,
            Self::V1Beta1 => 30,
        })
    }
}

pub(super) fn read(
    node: &Node<'_>,
    phase: Phase,
    version: ConfigurationVersion,
    name_locations: &mut HashMap<String, Location>,
) -> Option<StageDefinition> {
    let mut fields = node.object()?;
    let fix = "name the webhook, `pods.hooks.example.com`";
    let name = read_stage_name(&mut fields, fix, names::check_webhook_name, name_locations);
    // A webhook on a server must declare its side effects and its review versions. If the webhook is a plugin, this
    // program already knows them, so they may be missing.
    let is_remote = fields.has("clientConfig") || !fields.has("plugin");
    let versions = read_versions(&mut fields, version, is_remote).unwrap_or_default();
    let read_client = |node: &Node<'_>| read_client(node, versions.clone());
    let hook = plugin::read_client_or_plugin(&mut fields, "webhook", read_client);
    let match_policy = fields.get("matchPolicy", version.match_policy(), Node::word);
    let read_rules = |node: &Node<'_>| Some(rules::read_kubernetes(node, match_policy, false));
    let mut spec = StageSpec::new("");
    spec.rules = fields.get("rules", Vec::new(), read_rules);
    let namespaces = selectors::read_labels_of_field(&mut fields, "namespaceSelector", LabelSyntax::Kubernetes);
    spec.namespace_selector = selectors::namespaces_with_labels(namespaces);
    spec.object_selector = selectors::read_labels_of_field(&mut fields, "objectSelector", LabelSyntax::Kubernetes);
    spec.match_conditions = conditions::read(&mut fields);
    spec.failure_policy = fields.get("failurePolicy", version.failure_policy(), Node::word);
    spec.timeout = read_timeout(&mut fields).unwrap_or(version.timeout());
    spec.side_effects = read_side_effects(&mut fields, version, is_remote);
    spec.reinvocation = match phase {
        Phase::Mutating => fields.get("reinvocationPolicy", Reinvocation::default(), Node::word),
        Phase::Validating => Reinvocation::Never,
    };
    finish_stage(fields, name, spec, hook)
}

/// Reads the timeout of a webhook: `timeoutSeconds`, or `timeout`, whose value has a unit.
fn read_timeout(fields: &mut Fields<'_>) -> Option<Duration> {
    let has_both = fields.has("timeoutSeconds") && fields.has("timeout");
    let read_seconds = |node: &Node<'_>| node.integer(1..=30_u8);
    let seconds = fields.get_optional("timeoutSeconds", read_seconds);
    let read_duration = |node: &Node<'_>| {
        if has_both {
            let message = "the webhook has `timeoutSeconds` and `timeout`";
            node.add_mistake(message, "keep one of them");
        }
        native::read_timeout(node)
    };
    let duration = fields.get_optional("timeout", read_duration);
    duration.or(seconds.map(|seconds| Duration::from_secs(seconds.into())))
}

fn read_side_effects(fields: &mut Fields<'_>, version: ConfigurationVersion, is_remote: bool) -> SideEffects {
    let node = match version {
        ConfigurationVersion::V1 if is_remote => fields.required("sideEffects", "write None or NoneOnDryRun"),
        _ => fields.optional("sideEffects"),
    };
    let default = match version {
        ConfigurationVersion::V1Beta1 if is_remote => SideEffects::Unknown,
        _ => SideEffects::None,
    };
    node.and_then(|node| node.word()).unwrap_or(default)
}

/// Reads `admissionReviewVersions`. It must contain a supported version; unsupported ones are then ignored.
fn read_versions(
    fields: &mut Fields<'_>,
    version: ConfigurationVersion,
    is_remote: bool,
) -> Option<Vec<ReviewVersion>> {
    let fix = "list v1, v1beta1 or both";
    let node = match version {
        ConfigurationVersion::V1 if is_remote => fields.required("admissionReviewVersions", fix)?,
        _ => match fields.optional("admissionReviewVersions") {
            Some(node) => node,
            None => return Some(vec![ReviewVersion::V1Beta1]),
        },
    };
    let mut texts = Vec::new();
    let mut versions = Vec::new();
    for entry in node.filled_list(fix)? {
        let Some(text) = entry.text() else {
            continue;
        };
        if texts.contains(&text) {
            entry.add_mistake("the version is listed twice", "remove one of them");
            continue;
        }
        texts.push(text);
        if let Err(message) = names::check_version(text) {
            entry.add_mistake(message, "");
        }
        versions.extend(text.parse::<ReviewVersion>());
    }
    if versions.is_empty() {
        node.add_mistake("none of these versions is supported", fix);
    }
    Some(versions)
}

fn read_client(node: &Node<'_>, versions: Vec<ReviewVersion>) -> Option<WebhookDefinition> {
    let mut fields = node.object()?;
    let protocol = Protocol::AdmissionReview { versions };
    let ca_bundle = fields.get_optional("caBundle", client::read_ca_bundle);
    let url = fields.optional("url");
    let service = fields.optional("service");
    if url.is_some() == service.is_some() {
        let message = match url {
            Some(_) => "the webhook has a URL and a service",
            None => "the webhook has no address",
        };
        node.add_mistake(message, "write one of `url` and `service`");
    }
    let url = url.and_then(|url| client::read_url(&url, &protocol));
    let service = service.and_then(|service| client::read_service_object(&service, &protocol));
    Some(WebhookDefinition {
        protocol,
        target: url.or(service)?,
        ca_bundle,
    })
}
