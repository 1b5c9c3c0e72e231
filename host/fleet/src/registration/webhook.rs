//! Derives the webhooks of a webhook configuration from the chains.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use admittance::admission::{FailurePolicy, MatchPolicy, Matcher, Mode, Phase, Reinvocation, Rule, Scope, SideEffects};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value as Json, json};

use super::{
    IGNORE_LABEL, RegisteredChain, WebhookRegistration, excluded_namespaces,
    exclusions::{Exclusion, may_match},
};

#[derive(Debug)]
pub struct RegisteredWebhook {
    pub(super) phase: Phase,
    /// The chain that the webhook calls. `None` if it calls all chains of its phase and scope.
    chain: Option<String>,
    scope: Scope,
    /// The namespaces to which the webhook is limited; empty if it is called for all namespaces.
    namespaces: BTreeSet<String>,
    rules: Vec<Rule>,
    timeout: u64,
    pub failure_policy: FailurePolicy,
    side_effects: SideEffects,
    reinvocation: Reinvocation,
    pub(super) exclusions: Vec<&'static Exclusion>,
}

impl RegisteredWebhook {
    /// Returns the webhooks that call these chains, mutating ones first. A rule with a
    /// [problem](RegisteredChain::problem) is left out. `limit` is the timeout for one request in all chains together.
    pub fn for_all_chains(
        chains: &[RegisteredChain<'_>],
        registration: &WebhookRegistration,
        limit: Duration,
    ) -> Vec<Self> {
        let mut webhooks = Vec::new();
        for phase in [Phase::Mutating, Phase::Validating] {
            let chains: Vec<_> = chains
                .iter()
                .filter(|chain| chain.phase == phase && !chain.stages.is_empty())
                .collect();
            let webhook_for = |scope, chains: &[_]| {
                Some(Self::for_chains(phase, scope, chains, registration, limit))
                    .filter(|webhook| !webhook.rules.is_empty())
            };
            if registration.per_chain {
                webhooks.extend(chains.chunks(1).filter_map(|chain| webhook_for(Scope::Any, chain)));
                continue;
            }
            let mut cluster_chains = Vec::new();
            let mut by_namespace: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for chain in chains {
                match chain.namespace {
                    Some(namespace) => by_namespace.entry(namespace).or_default().push(chain),
                    None => cluster_chains.push(chain),
                }
            }
            let scope = if by_namespace.is_empty() {
                Scope::Any
            } else {
                Scope::Cluster
            };
            webhooks.extend(webhook_for(scope, &cluster_chains));
            let mut namespace_webhooks: Vec<Self> = Vec::new();
            for webhook in by_namespace
                .values()
                .filter_map(|chains| webhook_for(Scope::Namespaced, chains))
            {
                // If the webhooks for two namespaces differ in nothing but the namespace, one webhook is registered for
                // both. The API server then calls it for requests in both namespaces, and each chain checks whether the
                // request is in the chain's own namespace.
                match namespace_webhooks
                    .iter_mut()
                    .find(|candidate| candidate.has_same_settings(&webhook))
                {
                    Some(same_webhook) => same_webhook.namespaces.extend(webhook.namespaces),
                    None => namespace_webhooks.push(webhook),
                }
            }
            webhooks.extend(namespace_webhooks);
        }
        webhooks
    }

    fn has_same_settings(&self, other: &Self) -> bool {
        fn settings_of(webhook: &RegisteredWebhook) -> impl PartialEq + '_ {
            let RegisteredWebhook {
                rules,
                timeout,
                failure_policy,
                side_effects,
                reinvocation,
                ..
            } = webhook;
            (rules, timeout, failure_policy, side_effects, reinvocation)
        }
        settings_of(self) == settings_of(other)
    }

    fn for_chains(
        phase: Phase,
        scope: Scope,
        chains: &[&RegisteredChain<'_>],
        registration: &WebhookRegistration,
        limit: Duration,
    ) -> Self {
        let mut rules: Vec<Rule> = Vec::new();
        let scoped_rules = chains
            .iter()
            .flat_map(|chain| chain.rules.iter().map(|rule| (rule, chain.namespace.is_some())));
        for (rule, is_namespaced) in scoped_rules.filter(|(rule, _)| !rule.is_by_kind_alone()) {
            // A chain may select objects by kind, but the API server selects requests for a webhook by resource. So the
            // kinds are left out of the webhook's rule. The API server then calls the webhook for objects of other
            // kinds too, and the chain skips those.
            let mut rule = Rule {
                kinds: Matcher::Any,
                ..rule.clone()
            };
            if is_namespaced {
                rule.scope = Scope::Namespaced;
            }
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        let stages = || chains.iter().flat_map(|chain| chain.stages.iter().copied());
        let fails_closed =
            stages().any(|stage| stage.mode == Mode::Enforce && stage.failure_policy == FailurePolicy::Fail);
        let failure_policy = registration.failure_policy.unwrap_or(if fails_closed {
            FailurePolicy::Fail
        } else {
            FailurePolicy::Ignore
        });
        let side_effects = if stages().all(|stage| stage.side_effects == SideEffects::None) {
            SideEffects::None
        } else {
            // On a dry run, this program skips the stages that have side effects.
            SideEffects::NoneOnDryRun
        };
        let reinvocation = if stages().any(|stage| stage.reinvocation == Reinvocation::IfNeeded) {
            Reinvocation::IfNeeded
        } else {
            Reinvocation::Never
        };
        let sum: Duration = stages().map(|stage| stage.timeout).sum();
        let timeout = registration.timeout.map(u64::from);
        let chain = chains.first().filter(|_| registration.per_chain);
        Self {
            phase,
            chain: chain.map(|chain| chain.name.to_owned()),
            scope,
            namespaces: chains
                .iter()
                .filter_map(|chain| chain.namespace.map(str::to_owned))
                .collect(),
            timeout: timeout.unwrap_or_else(|| timeout_seconds(sum.min(limit))),
            failure_policy,
            side_effects,
            reinvocation,
            exclusions: Exclusion::for_rules(&rules),
            rules,
        }
    }

    pub fn may_match_nodes(&self) -> bool {
        may_match(&self.rules, "", "nodes")
    }

    /// Returns the namespaces to which the webhook is limited; empty if it is called for all namespaces.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    fn verb(&self) -> &'static str {
        match self.phase {
            Phase::Mutating => "mutate",
            Phase::Validating => "validate",
        }
    }

    /// Returns the name of the webhook, which the API server shows to users.
    fn name(&self, registration: &WebhookRegistration) -> String {
        let WebhookRegistration { name, namespace, .. } = registration;
        let verb = self.verb();
        let first = self.namespaces.first();
        // The name of a webhook must not contain a slash, so the slash in the name of a namespaced chain, such as
        // `a/b`, becomes a dot. A cluster-wide chain may have the name `a.b`. So the name of the webhook for `a/b` also
        // contains `-namespaced`, and the two webhooks have different names.
        let subject = self.chain.as_ref().map(|chain| chain.replace('/', "."));
        match (subject.as_ref().or(first), first) {
            (Some(subject), Some(_)) => format!("{subject}.{verb}-namespaced.{name}.{namespace}"),
            (Some(subject), None) => format!("{subject}.{verb}.{name}.{namespace}"),
            (None, _) => format!("{verb}.{name}.{namespace}"),
        }
    }

    fn path(&self) -> String {
        let verb = self.verb();
        match (&self.chain, self.scope) {
            (Some(chain), _) => format!("/{verb}/{chain}"),
            (None, Scope::Any) => format!("/{verb}"),
            (None, Scope::Cluster) => format!("/{verb}-cluster"),
            (None, Scope::Namespaced) => format!("/{verb}-namespaced"),
        }
    }

    pub(super) fn document(&self, registration: &WebhookRegistration, ca: &str) -> Json {
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
            "name": self.name(registration),
            "clientConfig": {
                "service": {
                    "namespace": registration.namespace,
                    "name": registration.name,
                    "path": self.path(),
                    "port": 443,
                },
                "caBundle": BASE64_STANDARD.encode(ca),
            },
            "rules": self.rules.iter().map(rule_document).collect::<Vec<_>>(),
            "matchPolicy": match_policy.as_str(),
            "namespaceSelector": namespace_selector(registration, &self.namespaces),
        });
        if registration.has_match_conditions && !self.exclusions.is_empty() {
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

/// Returns the timeout of a webhook in seconds, 1 to 30: the time of its stages and 250 ms for the answer, rounded up.
fn timeout_seconds(stages: Duration) -> u64 {
    const MARGIN: Duration = Duration::from_millis(250);
    let timeout = stages.saturating_add(MARGIN);
    let extra_second = u64::from(timeout.subsec_nanos() > 0);
    timeout.as_secs().saturating_add(extra_second).clamp(1, 30)
}

/// Returns the selector of the namespaces for which a webhook is called: the namespaces in `only`, or all namespaces if
/// `only` is empty. Excluded namespaces are never selected.
pub(super) fn namespace_selector(registration: &WebhookRegistration, only: &BTreeSet<String>) -> Json {
    const NAME: &str = "kubernetes.io/metadata.name";
    let mut names = excluded_namespaces(registration);
    names.insert(0, &registration.namespace);
    let mut expressions = vec![
        json!({"key": NAME, "operator": "NotIn", "values": names}),
        json!({"key": IGNORE_LABEL, "operator": "DoesNotExist"}),
    ];
    if !only.is_empty() {
        expressions.push(json!({"key": NAME, "operator": "In", "values": only}));
    }
    json!({"matchExpressions": expressions})
}

fn rule_document(rule: &Rule) -> Json {
    fn matcher_texts<T>(matcher: &Matcher<T>, word: impl Fn(&T) -> String) -> Vec<String> {
        match matcher {
            Matcher::Any => vec!["*".to_owned()],
            Matcher::Only(values) => values.iter().map(word).collect(),
        }
    }
    json!({
        "operations": matcher_texts(&rule.operations, |operation| operation.as_str().to_owned()),
        "apiGroups": matcher_texts(&rule.api_groups, String::clone),
        "apiVersions": matcher_texts(&rule.api_versions, String::clone),
        "resources": rule.resources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "scope": match rule.scope {
            Scope::Cluster => "Cluster",
            Scope::Namespaced => "Namespaced",
            Scope::Any => "*",
        },
    })
}
