//! The webhook registrations of the chains.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use std::{collections::BTreeSet, time::Duration};

use admittance::{
    admission::{
        FailurePolicy, GroupVersionResource, MatchPolicy, Matcher, Mode, Operation, Outline, Phase,
        Reinvocation, ResourcePattern, Rule, Scope, SideEffects,
    },
    definitions::ChainDefinition,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value as Json, json};

use super::{Installation, layout::IGNORE_LABEL, roles::RESOURCES, values::Version};

/// The namespace of the cluster's own components.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// The namespace of node leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// One webhook.
#[derive(Debug)]
pub(super) struct Webhook {
    phase: Phase,
    /// The chain that it is for, if it is for one only.
    chain: Option<String>,
    rules: Vec<Rule>,
    timeout: u64,
    pub(super) failure_policy: FailurePolicy,
    side_effects: SideEffects,
    reinvocation: Reinvocation,
    /// The excluded requests that its rules could match.
    exclusions: Vec<&'static Exclusion>,
}

/// Requests that are always excluded from webhooks.
#[derive(Debug)]
struct Exclusion {
    name: &'static str,
    /// The group and the resource, to check whether a rule could match them.
    group: &'static str,
    resource: &'static str,
    expression: &'static str,
    /// What they are, for messages.
    what: &'static str,
}

/// Leases are used for leader election and node heartbeats; every API call, including a webhook's own, may
/// need reviews of tokens and of access.
static EXCLUSIONS: [Exclusion; 3] = [
    Exclusion {
        name: "exclude-leases",
        group: "coordination.k8s.io",
        resource: "leases",
        expression: "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')",
        what: "leases",
    },
    Exclusion {
        name: "exclude-authentication",
        group: "authentication.k8s.io",
        resource: "tokenreviews",
        expression: "request.resource.group != 'authentication.k8s.io'",
        what: "reviews of tokens",
    },
    Exclusion {
        name: "exclude-authorization",
        group: "authorization.k8s.io",
        resource: "subjectaccessreviews",
        expression: "request.resource.group != 'authorization.k8s.io'",
        what: "reviews of access",
    },
];

impl Webhook {
    /// The webhooks for these chains, mutating ones first. `limit` is the timeout of all chains together.
    pub(super) fn of(
        chains: &[ChainDefinition],
        installation: &Installation,
        limit: Duration,
    ) -> Result<Vec<Self>, String> {
        let mut webhooks = Vec::new();
        for phase in [Phase::Mutating, Phase::Validating] {
            // A chain without stages needs no webhook.
            let chains: Vec<_> = chains
                .iter()
                .filter(|chain| chain.phase == phase && !chain.stages.is_empty())
                .collect();
            let size = if installation.per_chain {
                1
            } else {
                chains.len().max(1)
            };
            for chains in chains.chunks(size) {
                webhooks.push(Self::one(phase, chains, installation, limit)?);
            }
        }
        Ok(webhooks)
    }

    fn one(
        phase: Phase,
        chains: &[&ChainDefinition],
        installation: &Installation,
        limit: Duration,
    ) -> Result<Self, String> {
        let mut rules: Vec<Rule> = Vec::new();
        for chain in chains {
            for rule in &chain.rules {
                let by_kind_alone =
                    rule.kinds != Matcher::Any && rule.resources == [ResourcePattern::everything()];
                if by_kind_alone {
                    return Err(format!(
                        "{}: the chain {} has a rule with only `kinds`, but the API server matches requests by \
                         resource; list `resources` in it",
                        chain.source, chain.name
                    ));
                }
                // Kinds are checked by the chain, which matches its rules again.
                let mut rule = Rule {
                    kinds: Matcher::Any,
                    ..rule.clone()
                };
                if chain.namespace.is_some() {
                    rule.scope = Scope::Namespaced;
                }
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        let stages = || chains.iter().flat_map(|chain| &chain.stages);
        // A stage in audit mode refuses nothing.
        let fails_closed = stages().any(|stage| {
            stage.spec.mode == Mode::Enforce && stage.spec.failure_policy == FailurePolicy::Fail
        });
        let failure_policy = installation.failure_policy.unwrap_or(if fails_closed {
            FailurePolicy::Fail
        } else {
            FailurePolicy::Ignore
        });
        let side_effects = if stages().all(|stage| stage.spec.side_effects == SideEffects::None) {
            SideEffects::None
        } else {
            // Stages with side effects are not called in a dry run.
            SideEffects::NoneOnDryRun
        };
        let reinvocation = if stages().any(|stage| stage.spec.reinvocation == Reinvocation::IfNeeded) {
            Reinvocation::IfNeeded
        } else {
            Reinvocation::Never
        };
        let sum: Duration = stages().map(|stage| stage.spec.timeout).sum();
        let timeout = installation.timeout.map(u64::from);
        let exclusions = EXCLUSIONS.iter();
        let exclusions =
            exclusions.filter(|exclusion| may_match(&rules, exclusion.group, exclusion.resource));
        let chain = chains.first().filter(|_| installation.per_chain);
        Ok(Self {
            phase,
            chain: chain.map(|chain| chain.name.clone()),
            timeout: timeout.unwrap_or_else(|| seconds(sum.min(limit))),
            failure_policy,
            side_effects,
            reinvocation,
            exclusions: exclusions.collect(),
            rules,
        })
    }

    /// Whether a rule could match nodes.
    pub(super) fn may_match_nodes(&self) -> bool {
        may_match(&self.rules, "", "nodes")
    }

    fn verb(&self) -> &'static str {
        match self.phase {
            Phase::Mutating => "mutate",
            Phase::Validating => "validate",
        }
    }

    /// The name that the API server shows to users.
    fn name(&self, installation: &Installation) -> String {
        let Installation { name, namespace, .. } = installation;
        let verb = self.verb();
        match &self.chain {
            // A chain of a namespace has a slash in its name.
            Some(chain) => format!("{}.{verb}.{name}.{namespace}", chain.replace('/', ".")),
            None => format!("{verb}.{name}.{namespace}"),
        }
    }

    fn path(&self) -> String {
        let verb = self.verb();
        match &self.chain {
            Some(chain) => format!("/{verb}/{chain}"),
            None => format!("/{verb}"),
        }
    }

    fn document(&self, installation: &Installation, ca: &str) -> Json {
        let any_equivalent = self
            .rules
            .iter()
            .any(|rule| rule.match_policy == MatchPolicy::Equivalent);
        let match_policy = if any_equivalent {
            MatchPolicy::Equivalent
        } else {
            MatchPolicy::Exact
        };
        let mut webhook = json!({
            "name": self.name(installation),
            "clientConfig": {
                "service": {
                    "namespace": installation.namespace,
                    "name": installation.name,
                    "path": self.path(),
                    "port": 443,
                },
                "caBundle": BASE64_STANDARD.encode(ca),
            },
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
            "matchPolicy": match_policy.as_str(),
            "namespaceSelector": namespace_selector(installation),
        });
        if installation.supports(Version::has_match_conditions) && !self.exclusions.is_empty() {
            let conditions = self.exclusions.iter();
            webhook["matchConditions"] = conditions
                .map(|exclusion| json!({"name": exclusion.name, "expression": exclusion.expression}))
                .collect();
        }
        webhook["failurePolicy"] = self.failure_policy.as_str().into();
        webhook["sideEffects"] = self.side_effects.as_str().into();
        webhook["timeoutSeconds"] = self.timeout.into();
        webhook["admissionReviewVersions"] = json!(["v1", "v1beta1"]);
        if self.phase == Phase::Mutating {
            webhook["reinvocationPolicy"] = self.reinvocation.as_str().into();
        }
        webhook
    }
}

/// The webhook configurations: at most one of each phase.
pub(super) fn configurations(installation: &Installation, webhooks: &[Webhook], ca: &str) -> Vec<Json> {
    let phases = [
        (Phase::Mutating, "MutatingWebhookConfiguration"),
        (Phase::Validating, "ValidatingWebhookConfiguration"),
    ];
    let of_phase = |(phase, kind)| {
        let webhooks: Vec<_> = webhooks
            .iter()
            .filter(|webhook| webhook.phase == phase)
            .map(|webhook| webhook.document(installation, ca))
            .collect();
        (!webhooks.is_empty()).then(|| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": installation.name, "labels": installation.labels()},
                "webhooks": webhooks,
            })
        })
    };
    phases.into_iter().filter_map(of_phase).collect()
}

/// The path at which definitions are checked.
pub(super) const DEFINITIONS_PATH: &str = "/definitions";

/// The webhook that checks definitions that are resources before they are stored. It is a configuration of its own and
/// cannot lock anyone out: while no Pod answers, nothing is checked, and what the Pods write is not.
pub(super) fn of_definitions(installation: &Installation, ca: &str) -> Json {
    const SECONDS: u64 = 5;
    let Installation { name, namespace, .. } = installation;
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
            "resources": RESOURCES,
            "scope": "*",
        }],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]},
        ]},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": SECONDS,
        "admissionReviewVersions": ["v1", "v1beta1"],
    });
    if installation.supports(Version::has_match_conditions) {
        webhook["matchConditions"] = json!([{
            "name": "exclude-own-account",
            "expression": format!("request.userInfo.username != 'system:serviceaccount:{namespace}:{name}'"),
        }]);
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("{name}-definitions"), "labels": installation.labels()},
        "webhooks": [webhook],
    })
}

/// The webhook timeout that leaves the stages their time: the review is answered a quarter of a second before
/// the API server gives up. Kubernetes allows 1 to 30 seconds.
fn seconds(stages: Duration) -> u64 {
    const MARGIN: Duration = Duration::from_millis(250);
    let whole = stages.saturating_add(MARGIN);
    let up = u64::from(whole.subsec_nanos() > 0);
    whole.as_secs().saturating_add(up).clamp(1, 30)
}

/// The namespaces, beside that of the installation, that the webhooks are not called for.
pub(super) fn excluded_namespaces(installation: &Installation) -> Vec<&str> {
    let system = (!installation.include_kube_system).then_some(SYSTEM_NAMESPACE);
    let given = installation.exclude_namespace.iter().map(String::as_str);
    let mut names = Vec::new();
    for name in system.into_iter().chain([LEASE_NAMESPACE]).chain(given) {
        if name != installation.namespace && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Excludes the namespaces that the cluster and Admittance itself depend on.
fn namespace_selector(installation: &Installation) -> Json {
    let mut names = excluded_namespaces(installation);
    names.insert(0, &installation.namespace);
    json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names},
        {"key": IGNORE_LABEL, "operator": "DoesNotExist"},
    ]})
}

fn rule(rule: &Rule) -> Json {
    fn words<T>(matcher: &Matcher<T>, word: impl Fn(&T) -> String) -> Vec<String> {
        match matcher {
            Matcher::Any => vec!["*".to_owned()],
            Matcher::Only(values) => values.iter().map(word).collect(),
        }
    }
    json!({
        "operations": words(&rule.operations, |operation| operation.as_str().to_owned()),
        "apiGroups": words(&rule.api_groups, String::clone),
        "apiVersions": words(&rule.api_versions, String::clone),
        "resources": rule.resources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "scope": match rule.scope {
            Scope::Cluster => "Cluster",
            Scope::Namespaced => "Namespaced",
            Scope::Any => "*",
        },
    })
}

/// What is excluded from any of the webhooks, for messages; sorted.
pub(super) fn excluded(webhooks: &[Webhook]) -> Vec<&'static str> {
    let exclusions = webhooks.iter().flat_map(|webhook| &webhook.exclusions);
    let excluded: BTreeSet<_> = exclusions.map(|exclusion| exclusion.what).collect();
    excluded.into_iter().collect()
}

fn may_match(rules: &[Rule], group: &str, resource: &str) -> bool {
    let resource = GroupVersionResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
    };
    let in_namespaces = resource.resource == "leases";
    rules.iter().any(|rule| {
        let in_scope = match rule.scope {
            Scope::Any => true,
            Scope::Cluster => !in_namespaces,
            Scope::Namespaced => in_namespaces,
        };
        in_scope
            && Operation::ALL.into_iter().any(|operation| {
                rule.may_match(&Outline {
                    operation,
                    resource: Some(&resource),
                    kind: None,
                })
            })
    })
}

#[cfg(test)]
mod tests;
