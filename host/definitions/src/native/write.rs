//! Chains as documents of the native form.
//!
//! What has no native form is left out: whoever needs to know reads the document again and compares.

use std::time::Duration;

use admittance_admission::{
    FailurePolicy, Grants, LabelOperator, LabelSelector, MatchPolicy, Matcher, Mode, ModuleReference,
    NamespaceSelector, Operation, Phase, Protocol, Reinvocation, Rule, Scope, SideEffects, StageSpec,
    WebhookTarget,
};
use admittance_conditions::Validation;
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls_pki_types::CertificateDer;
use serde_json::{Map, Value as Json, json};

use crate::{
    Share,
    model::{
        CandidateDefinition, CelDefinition, ChainDefinition, HookDefinition, PluginDefinition,
        StageDefinition, WebhookDefinition,
    },
};

/// The document of a chain, which is called `name` in it.
pub(crate) fn chain(chain: &ChainDefinition, name: &str) -> Json {
    let mut spec = Map::new();
    if chain.phase != Phase::default() {
        put(&mut spec, "phase", chain.phase.as_str());
    }
    // Here all rules have the same policy.
    let match_policy = chain.rules.first().map(|rule| rule.match_policy);
    if let Some(policy) = match_policy.filter(|policy| *policy != MatchPolicy::default()) {
        put(&mut spec, "matchPolicy", policy.as_str());
    }
    put(&mut spec, "rules", rules(&chain.rules));
    let stages = chain.stages.iter().map(|stage| self::stage(chain, stage));
    put(&mut spec, "stages", stages.collect::<Vec<_>>());
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": { "name": name },
        "spec": spec,
    })
}

fn put(object: &mut Map<String, Json>, key: &str, value: impl Into<Json>) {
    object.insert(key.to_owned(), value.into());
}

fn rules(rules: &[Rule]) -> Vec<Json> {
    rules.iter().map(rule).collect()
}

fn rule(rule: &Rule) -> Json {
    let words = |matcher: &Matcher<String>| match matcher {
        Matcher::Any => json!(["*"]),
        Matcher::Only(words) => json!(words),
    };
    let mut object = Map::new();
    let operations = match &rule.operations {
        Matcher::Any => json!(["*"]),
        Matcher::Only(operations) => operations.iter().copied().map(Operation::as_str).collect(),
    };
    put(&mut object, "operations", operations);
    for (key, matcher) in [
        ("apiGroups", &rule.api_groups),
        ("apiVersions", &rule.api_versions),
    ] {
        if *matcher != Matcher::Any {
            put(&mut object, key, words(matcher));
        }
    }
    let has_kinds = rule.kinds != Matcher::Any;
    if !has_kinds || rule.resources != Rule::for_operations([]).resources {
        let resources = rule.resources.iter().map(ToString::to_string);
        put(&mut object, "resources", resources.collect::<Vec<_>>());
    }
    if has_kinds {
        put(&mut object, "kinds", words(&rule.kinds));
    }
    if rule.scope != Scope::default() {
        put(&mut object, "scope", rule.scope.as_str());
    }
    Json::Object(object)
}

fn stage(chain: &ChainDefinition, stage: &StageDefinition) -> Json {
    let spec = &stage.spec;
    let mut object = Map::new();
    put(&mut object, "name", &*spec.name);
    match &stage.hook {
        HookDefinition::Plugin(plugin) => put(&mut object, "plugin", self::plugin(plugin)),
        HookDefinition::Webhook(webhook) => put(&mut object, "webhook", self::webhook(webhook)),
        HookDefinition::Cel(cel) => put(&mut object, "cel", self::cel(cel)),
        // Those of Kubewarden and of Gatekeeper have no native form.
        HookDefinition::Group(_) | HookDefinition::Mutators(_) => {}
    }
    if let Some(candidate) = &stage.candidate {
        put(&mut object, "candidate", self::candidate(candidate));
    }
    if !spec.rules.is_empty() && spec.rules != chain.rules {
        put(&mut object, "rules", rules(&spec.rules));
    }
    if let Some(selector) = &spec.namespace_selector {
        put(&mut object, "namespaceSelector", namespaces(selector));
    }
    if !spec.object_selector.is_empty() {
        put(&mut object, "objectSelector", labels(&spec.object_selector));
    }
    let conditions = conditions(stage);
    if !conditions.is_empty() {
        let conditions = conditions
            .iter()
            .map(|(name, expression)| json!({"name": name, "expression": expression}));
        put(&mut object, "matchConditions", conditions.collect::<Vec<_>>());
    }
    how(spec, &mut object);
    Json::Object(object)
}

/// Failure policy, timeout and the like, unless they are the defaults.
fn how(spec: &StageSpec, object: &mut Map<String, Json>) {
    if spec.failure_policy != FailurePolicy::default() {
        put(object, "failurePolicy", spec.failure_policy.as_str());
    }
    if spec.timeout != StageSpec::DEFAULT_TIMEOUT {
        put(object, "timeout", duration(spec.timeout));
    }
    if spec.mode != Mode::default() {
        put(object, "mode", spec.mode.as_str());
    }
    if spec.side_effects != SideEffects::default() {
        put(object, "sideEffects", spec.side_effects.as_str());
    }
    if spec.reinvocation != Reinvocation::default() {
        put(object, "reinvocationPolicy", spec.reinvocation.as_str());
    }
}

/// Name and expression of the match conditions of a stage; those of a policy are part of its hook.
pub(crate) fn conditions(stage: &StageDefinition) -> Vec<(&str, &str)> {
    let mut conditions = stage.spec.match_conditions.expressions();
    if let HookDefinition::Cel(cel) = &stage.hook {
        let of_policy = cel.policy.conditions.iter();
        conditions.extend(of_policy.map(|condition| (condition.name(), condition.expression())));
    }
    conditions
}

fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn namespaces(selector: &NamespaceSelector) -> Json {
    match selector {
        NamespaceSelector::In(names) => json!({"operator": "In", "values": names}),
        NamespaceSelector::NotIn(names) => json!({"operator": "NotIn", "values": names}),
        NamespaceSelector::Labels(selector) => labels(selector),
    }
}

fn labels(selector: &LabelSelector) -> Json {
    let mut equal = Map::new();
    let mut expressions = Vec::new();
    for (key, operator, values) in selector.requirements() {
        match (operator, values) {
            // Labels are read before expressions.
            (LabelOperator::In, [value]) if expressions.is_empty() && !equal.contains_key(key) => {
                put(&mut equal, key, value.as_str());
            }
            (_, []) => expressions.push(json!({"key": key, "operator": operator})),
            _ => expressions.push(json!({"key": key, "operator": operator, "values": values})),
        }
    }
    let mut object = Map::new();
    if !equal.is_empty() {
        put(&mut object, "matchLabels", equal);
    }
    if !expressions.is_empty() {
        put(&mut object, "matchExpressions", expressions);
    }
    Json::Object(object)
}

fn candidate(candidate: &CandidateDefinition) -> Json {
    let mut object = plugin(&candidate.plugin);
    if candidate.share != Share::default() {
        put(&mut object, "share", candidate.share.to_string());
    }
    if let Some(rollout) = &candidate.rollout {
        put(&mut object, "rollout", rollout.to_json());
    }
    Json::Object(object)
}

fn plugin(plugin: &PluginDefinition) -> Map<String, Json> {
    let mut object = Map::new();
    put(&mut object, "source", source(&plugin.source));
    if let Some(digest) = plugin.digest {
        put(&mut object, "digest", digest.to_string());
    }
    if plugin.settings != json!({}) {
        put(&mut object, "settings", plugin.settings.clone());
    }
    if plugin.allow != Grants::default() {
        put(&mut object, "allow", allow(&plugin.allow));
    }
    if let Some(memory) = plugin.memory {
        put(&mut object, "memory", memory);
    }
    if let Some(refresh) = plugin.refresh {
        put(&mut object, "refresh", duration(refresh));
    }
    object
}

/// A stock plugin by its name: where it is may differ elsewhere.
fn source(source: &ModuleReference) -> String {
    match source.stock_name() {
        Some(name) => format!("stock:{name}"),
        None => source.to_string(),
    }
}

/// Grants of HTTP requests are left out.
fn allow(allow: &Grants) -> Json {
    let mut object = Map::new();
    if !allow.cluster.is_empty() {
        let kinds = allow.cluster.iter().map(ToString::to_string);
        put(&mut object, "cluster", kinds.collect::<Vec<_>>());
    }
    if !allow.images.is_empty() {
        let images = allow.images.iter().map(ToString::to_string);
        put(&mut object, "images", images.collect::<Vec<_>>());
    }
    if !allow.environment.is_empty() {
        put(&mut object, "environment", json!(allow.environment));
    }
    Json::Object(object)
}

fn webhook(webhook: &WebhookDefinition) -> Json {
    let mut object = Map::new();
    match &webhook.protocol {
        Protocol::BcsResource => put(&mut object, "protocol", "BcsResource"),
        Protocol::AdmissionReview { versions } => {
            put(&mut object, "protocol", "AdmissionReview");
            put(&mut object, "versions", json!(versions));
        }
    }
    match &webhook.target {
        WebhookTarget::Url(url) => put(&mut object, "url", url.as_str()),
        WebhookTarget::Service {
            namespace,
            name,
            port,
            path,
            naming: _,
        } => {
            let service = json!({"namespace": namespace, "name": name, "path": path, "port": port});
            put(&mut object, "service", service);
        }
    }
    if let Some(certificates) = &webhook.ca_bundle {
        put(&mut object, "caBundle", BASE64_STANDARD.encode(pem(certificates)));
    }
    Json::Object(object)
}

/// Certificates as the text of a PEM file.
fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = BASE64_STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at_checked(64).unwrap_or((rest, ""));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn cel(cel: &CelDefinition) -> Json {
    let policy = &cel.policy;
    let mut object = Map::new();
    let variables: Vec<_> = policy
        .variables()
        .map(|(name, expression)| json!({"name": name, "expression": expression}))
        .collect();
    let validations: Vec<_> = policy.validations.iter().map(validation).collect();
    let annotations = policy.audit_annotations.iter();
    let annotations: Vec<_> = annotations
        .map(|(key, value)| json!({"key": key, "valueExpression": value.text()}))
        .collect();
    let mutations: Vec<_> = policy
        .mutations
        .iter()
        .map(|mutation| match mutation.is_json_patch() {
            true => json!({"patchType": "JSONPatch", "jsonPatch": {"expression": mutation.text()}}),
            false => {
                json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation.text()}})
            }
        })
        .collect();
    let lists = [
        ("variables", variables),
        ("validations", validations),
        ("auditAnnotations", annotations),
        ("mutations", mutations),
    ];
    for (key, list) in lists {
        if !list.is_empty() {
            put(&mut object, key, list);
        }
    }
    Json::Object(object)
}

fn validation(validation: &Validation) -> Json {
    let mut object = Map::new();
    put(&mut object, "expression", validation.expression.text());
    if let Some(message) = &validation.message {
        put(&mut object, "message", message.as_str());
    }
    if let Some(expression) = &validation.message_expression {
        put(&mut object, "messageExpression", expression.text());
    }
    if validation.reason != Default::default() {
        put(&mut object, "reason", validation.reason.as_str());
    }
    Json::Object(object)
}
