//! The native form: `AdmissionChain`.

use std::{collections::HashMap, ops::RangeInclusive, time::Duration};

use admittance_admission::{FailurePolicy, MatchPolicy, Mode, Phase, Reinvocation, SideEffects, Stage};

use crate::{
    Location, client, conditions,
    document::{Fields, Mistakes, Node, quoted},
    model::{
        ChainDefinition, HookDefinition, ReviewVersion, StageDefinition, WebhookDefinition, WebhookProtocol,
    },
    names, plugin, rules,
    selectors::{self, Syntax},
};

/// How long a stage may be given: up to what kube-apiserver gives a webhook.
pub(crate) const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30);

pub(crate) const MODES: [(&str, Mode); 2] = [("Enforce", Mode::Enforce), ("Audit", Mode::Audit)];

pub(crate) const FAILURE_POLICIES: [(&str, FailurePolicy); 2] =
    [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];

const PHASES: [(&str, Phase); 2] = [("Mutating", Phase::Mutating), ("Validating", Phase::Validating)];

pub(crate) const MATCH_POLICIES: [(&str, MatchPolicy); 2] = [
    ("Exact", MatchPolicy::Exact),
    ("Equivalent", MatchPolicy::Equivalent),
];

pub(crate) const SIDE_EFFECTS: [(&str, SideEffects); 4] = [
    ("None", SideEffects::None),
    ("NoneOnDryRun", SideEffects::NoneOnDryRun),
    ("Some", SideEffects::Some),
    ("Unknown", SideEffects::Unknown),
];

pub(crate) const REINVOCATIONS: [(&str, Reinvocation); 2] = [
    ("Never", Reinvocation::Never),
    ("IfNeeded", Reinvocation::IfNeeded),
];

pub(crate) const REVIEW_VERSIONS: [(&str, ReviewVersion); 2] =
    [("v1", ReviewVersion::V1), ("v1beta1", ReviewVersion::V1Beta1)];

/// A chain, as whole as it could be read: what is missing from it was reported.
pub(crate) fn read(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<ChainDefinition> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "kind"]);
    let name = fields
        .required("metadata", "name the chain: `metadata: { name: ... }`", mistakes)
        .and_then(|metadata| read_name(&metadata, mistakes));
    let spec = fields
        .required("spec", "write the chain's rules and stages", mistakes)
        .and_then(|spec| spec.object(mistakes));
    fields.finish(mistakes);
    let mut spec = spec?;
    let phase = spec
        .optional("phase")
        .and_then(|node| node.one_of("phase", &PHASES, mistakes))
        .unwrap_or_default();
    let match_policy = spec
        .optional("matchPolicy")
        .and_then(|node| node.one_of("match policy", &MATCH_POLICIES, mistakes))
        .unwrap_or_default();
    let fix = "say which requests the chain is for";
    let rules = spec
        .required("rules", fix, mistakes)
        .map(|node| rules::read(&node, fix, match_policy, mistakes));
    let stages = spec
        .required("stages", "list the hooks that are called", mistakes)
        .map(|node| read_stages(&node, phase, match_policy, mistakes));
    spec.finish(mistakes);
    Some(ChainDefinition {
        name: name?,
        phase,
        source: root.location(),
        rules: rules?,
        stages: stages?,
    })
}

fn read_name(metadata: &Node<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let mut fields = metadata.object(mistakes)?;
    let name = fields
        .required("name", "name the chain", mistakes)
        .and_then(|name| name.parse_with(names::subdomain, mistakes));
    fields.ignore(&["labels", "annotations"]);
    fields.finish(mistakes);
    name
}

fn read_stages(
    node: &Node<'_>,
    phase: Phase,
    match_policy: MatchPolicy,
    mistakes: &mut Mistakes,
) -> Vec<StageDefinition> {
    let stages = node
        .filled_list("list the hooks that are called", mistakes)
        .unwrap_or_default();
    let mut seen = HashMap::new();
    stages
        .iter()
        .filter_map(|stage| read_stage(stage, phase, match_policy, &mut seen, mistakes))
        .collect()
}

fn read_stage(
    node: &Node<'_>,
    phase: Phase,
    match_policy: MatchPolicy,
    seen: &mut HashMap<String, Location>,
    mistakes: &mut Mistakes,
) -> Option<StageDefinition> {
    let mut fields = node.object(mistakes)?;
    let name = fields
        .required("name", "name the stage", mistakes)
        .and_then(|name| {
            let text = name.parse_with(names::subdomain, mistakes)?;
            unique(&name, &text, seen, mistakes);
            Some(text)
        });
    let hook = read_hook(&mut fields, mistakes);
    let candidate = plugin::read_candidate(&mut fields, hook.as_ref(), mistakes);
    let fix = "say which of the chain's requests the stage is for, or remove `rules` for all";
    let rules = fields
        .optional("rules")
        .map(|node| rules::read(&node, fix, match_policy, mistakes))
        .unwrap_or_default();
    let namespace_selector = fields
        .optional("namespaceSelector")
        .and_then(|node| selectors::namespaces(&node, mistakes));
    let object_selector = fields
        .optional("objectSelector")
        .map(|node| selectors::labels(&node, Syntax::Free, mistakes))
        .unwrap_or_default();
    let match_conditions = conditions::read(&mut fields, mistakes);
    let failure_policy = fields
        .optional("failurePolicy")
        .and_then(|node| node.one_of("failure policy", &FAILURE_POLICIES, mistakes))
        .unwrap_or_default();
    let timeout = fields
        .optional("timeout")
        .and_then(|node| node.duration(TIMEOUT, mistakes))
        .unwrap_or(Stage::DEFAULT_TIMEOUT);
    let mode = fields
        .optional("mode")
        .and_then(|node| node.one_of("mode", &MODES, mistakes))
        .unwrap_or_default();
    let side_effects = fields
        .optional("sideEffects")
        .and_then(|node| node.one_of("kind of side effects", &SIDE_EFFECTS, mistakes))
        .unwrap_or_default();
    let reinvocation = fields
        .optional("reinvocationPolicy")
        .and_then(|node| {
            let policy = node.one_of("reinvocation policy", &REINVOCATIONS, mistakes)?;
            if phase == Phase::Validating && policy == Reinvocation::IfNeeded {
                let message = "a validating chain changes nothing, so no stage of it is called again";
                node.wrong(message, "remove it", mistakes);
            }
            Some(policy)
        })
        .unwrap_or_default();
    fields.finish(mistakes);
    Some(StageDefinition {
        name: name?,
        hook: hook?,
        candidate,
        rules,
        namespace_selector,
        object_selector,
        match_conditions,
        failure_policy,
        timeout,
        mode,
        side_effects,
        reinvocation,
        location: node.location(),
    })
}

/// Push a mistake if a stage before has this name.
pub(crate) fn unique(
    node: &Node<'_>,
    name: &str,
    seen: &mut HashMap<String, Location>,
    mistakes: &mut Mistakes,
) {
    match seen.get(name) {
        Some(first) => {
            let message = format!(
                "{} is also the name of the stage on line {}",
                quoted(name),
                first.line
            );
            node.wrong(message, "give each stage its own name", mistakes);
        }
        None => {
            seen.insert(name.to_owned(), node.location());
        }
    }
}

fn read_hook(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<HookDefinition> {
    match (fields.optional("plugin"), fields.optional("webhook")) {
        (Some(node), None) => plugin::read(&node, mistakes).map(HookDefinition::Plugin),
        (None, Some(node)) => read_webhook(&node, mistakes).map(HookDefinition::Webhook),
        (None, None) => {
            let fix = "write `plugin` or `webhook`";
            fields.node().wrong("the stage calls nothing", fix, mistakes);
            None
        }
        (Some(plugin), Some(webhook)) => {
            // What is in them is checked all the same.
            plugin::read(&plugin, mistakes);
            read_webhook(&webhook, mistakes);
            let fix = "keep one of them, or make two stages";
            fields
                .node()
                .wrong("the stage has a plugin and a webhook", fix, mistakes);
            None
        }
    }
}

fn read_webhook(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<WebhookDefinition> {
    let mut fields = node.object(mistakes)?;
    let protocol = read_protocol(&mut fields, mistakes);
    // Without a protocol, the address is held to what both of them take.
    let rules = protocol.clone().unwrap_or(WebhookProtocol::BcsResource);
    let before = mistakes.len();
    let ca_bundle = fields
        .optional("caBundle")
        .and_then(|node| client::ca_bundle(&node, mistakes));
    let bundle_is_wrong = mistakes.len() > before;
    let target = match (fields.optional("url"), fields.optional("service")) {
        (Some(url), None) => client::url(&url, &rules, mistakes),
        (None, Some(service)) => {
            if ca_bundle.is_none() && !bundle_is_wrong {
                client::require_ca_bundle(&mut fields, mistakes);
            }
            service.object(mistakes).and_then(|mut service| {
                let target = client::service(&mut service, &rules, mistakes);
                service.finish(mistakes);
                target
            })
        }
        (None, None) => {
            node.wrong("the webhook has no address", "write `url` or `service`", mistakes);
            None
        }
        (Some(_), Some(_)) => {
            node.wrong(
                "the webhook has a URL and a service",
                "keep one of them",
                mistakes,
            );
            None
        }
    };
    fields.finish(mistakes);
    Some(WebhookDefinition {
        protocol: protocol?,
        target: target?,
        ca_bundle,
    })
}

/// What `protocol` names, before its details.
#[derive(Clone, Copy)]
enum ProtocolName {
    AdmissionReview,
    BcsResource,
}

const PROTOCOLS: [(&str, ProtocolName); 2] = [
    ("AdmissionReview", ProtocolName::AdmissionReview),
    ("BcsResource", ProtocolName::BcsResource),
];

fn read_protocol(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<WebhookProtocol> {
    let fix = "write AdmissionReview or BcsResource";
    let protocol = fields
        .required("protocol", fix, mistakes)
        .and_then(|node| node.one_of("protocol", &PROTOCOLS, mistakes));
    let versions = fields.optional("versions");
    match protocol? {
        ProtocolName::BcsResource => {
            if let Some(versions) = versions {
                versions.wrong("only AdmissionReview has versions", "remove it", mistakes);
            }
            Some(WebhookProtocol::BcsResource)
        }
        ProtocolName::AdmissionReview => Some(WebhookProtocol::AdmissionReview {
            versions: match versions {
                None => vec![ReviewVersion::V1],
                Some(node) => read_versions(&node, mistakes)?,
            },
        }),
    }
}

fn read_versions(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<ReviewVersion>> {
    let mut versions = Vec::new();
    for entry in node.filled_list("list v1, v1beta1 or both", mistakes)? {
        let Some(version) = entry.one_of("version of AdmissionReview", &REVIEW_VERSIONS, mistakes) else {
            continue;
        };
        if versions.contains(&version) {
            entry.wrong("the version is listed twice", "remove one of them", mistakes);
        } else {
            versions.push(version);
        }
    }
    Some(versions)
}

#[cfg(test)]
mod tests;
