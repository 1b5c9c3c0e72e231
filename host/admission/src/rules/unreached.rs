//! Finds rules that match no request, because no hook is called or no requests arrive for their resources.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GroupVersionResource, Matcher, ResourcePattern, Rule, enumerated, suggestion_or};

/// The resources for which no hook is called, by API group. Some of them configure admission, and must stay editable
/// even if hooks refuse every request. The others are reviews such as `TokenReview`, which are not stored. All groups
/// except `admittance.dev` are from kube-apiserver 1.37.
const NEVER_HOOKED: [(&str, &[&str]); 4] = [
    (
        "admittance.dev",
        &["admissionchains", "namespacedadmissionchains", "admissionexceptions"],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ],
    ),
    ("authentication.k8s.io", &["tokenreviews", "selfsubjectreviews"]),
    (
        "authorization.k8s.io",
        &[
            "subjectaccessreviews",
            "selfsubjectaccessreviews",
            "localsubjectaccessreviews",
            "selfsubjectrulesreviews",
        ],
    ),
];

impl GroupVersionResource {
    /// Returns whether requests for this resource are allowed unchanged, without calling any hook.
    pub fn is_never_hooked(&self) -> bool {
        is_never_hooked(&self.group, Some(&self.resource))
    }
}

fn is_never_hooked(group: &str, resource: Option<&str>) -> bool {
    NEVER_HOOKED.iter().any(|(entry_group, resources)| {
        group == *entry_group && resource.is_none_or(|resource| resources.contains(&resource))
    })
}

impl Rule {
    /// Returns whether the rule selects requests by kind and not by resource.
    pub fn is_by_kind_alone(&self) -> bool {
        self.kinds != Matcher::Any && self.resources == [crate::ResourcePattern::everything()]
    }

    fn is_never_hooked(&self) -> bool {
        let Matcher::Only(groups) = &self.api_groups else {
            return false;
        };
        groups.iter().all(|group| {
            let mut resources = self.resources.iter();
            resources.all(|pattern| is_never_hooked(group, pattern.resource()))
        })
    }
}

/// Describes which requests arrive at the chains. By default, all requests arrive, except for a few resources for which
/// hooks are never called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Whether the control plane sends requests according to webhook configurations. These select requests by resource,
    /// so a chain's rule that lists only `kinds` gets no requests from them.
    pub is_by_resource: bool,
    /// The namespaces whose requests do not arrive.
    pub excluded_namespaces: Vec<String>,
    /// The resources for which the control plane sends requests to the chains; `None` if they are not known in advance.
    pub resources: Option<Vec<ReachedResource>>,
}

/// A resource for which requests arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedResource {
    /// The resource's plural name, such as `pods`.
    pub resource: String,
    /// The subresource for which requests arrive, such as `scale`; `None` for the resource itself.
    pub subresource: Option<String>,
    /// The kind of the resource's objects; `None` if it depends on the request.
    pub kind: Option<String>,
}

impl ReachedResource {
    fn matches_pattern(&self, pattern: &ResourcePattern) -> bool {
        pattern.matches(&self.resource, self.subresource.as_deref())
    }
}

/// An entry in a rule's `resources` or `kinds`, such as `pod` instead of `pods`. The entry is useless, because no
/// request matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachedEntry {
    /// The field of the rule that has the entry: `resources` or `kinds`.
    pub field: &'static str,
    /// The entry as it is written in the rule.
    pub entry: String,
    /// A suggestion of a similar entry or, if there is none, the list of all entries that match requests.
    pub fix: String,
}

/// The reasons why a chain does not get requests that its rules match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unreached {
    /// Whether the chain gets no request at all.
    pub is_whole: bool,
    /// The reasons, each a sentence that says what to do.
    pub reasons: Vec<String>,
}

impl Reach {
    /// Checks whether a chain with these rules gets all requests that the rules match. Returns `None` if it does.
    /// Otherwise returns the reasons why some of these requests do not reach the chain. `namespace` is the namespace of
    /// the chain; `None` if the chain applies to all namespaces.
    pub fn find_unreached(&self, namespace: Option<&str>, rules: &[Rule]) -> Option<Unreached> {
        let excluded = namespace.filter(|namespace| self.excluded_namespaces.iter().any(|name| name == namespace));
        if let Some(namespace) = excluded {
            let reason = format!(
                "no request in the namespace {namespace} reaches chains, because the webhook configurations exclude it; \
                 move the chain, or let the operator include the namespace"
            );
            return Some(Unreached {
                is_whole: true,
                reasons: vec![reason],
            });
        }
        let reasons: Vec<_> = rules
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| {
                let (reason, fix) = if self.is_by_resource && rule.is_by_kind_alone() {
                    (
                        "has only `kinds`, but the API server matches requests by resource",
                        "list `resources` in it",
                    )
                } else if rule.is_never_hooked() {
                    ("is only for resources that no webhook is called for", "remove it")
                } else {
                    return None;
                };
                Some(format!("spec.rules[{index}] {reason}; {fix}"))
            })
            .collect();
        let is_whole = reasons.len() == rules.len();
        (!reasons.is_empty()).then_some(Unreached { is_whole, reasons })
    }

    /// Returns the entries of the rule's `resources` and `kinds` that match no request.
    pub fn unreached_entries(&self, rule: &Rule) -> Vec<UnreachedEntry> {
        let Some(reached_resources) = &self.resources else {
            return Vec::new();
        };
        let unreached_entry = |field, entry: String, mut alternatives: Vec<String>| {
            alternatives.sort();
            alternatives.dedup();
            let summary = format!("requests have {}", enumerated(&alternatives, "and"));
            let fix = suggestion_or(&entry, alternatives, &summary);
            UnreachedEntry { field, entry, fix }
        };
        let all_patterns = rule.resources.iter();
        let patterns = all_patterns.filter(|pattern| {
            !reached_resources
                .iter()
                .any(|resource| resource.matches_pattern(pattern))
        });
        let names = || {
            reached_resources.iter().map(|resource| match &resource.subresource {
                Some(subresource) => format!("{}/{subresource}", resource.resource),
                None => resource.resource.clone(),
            })
        };
        let mut entries: Vec<_> = patterns
            .map(|pattern| unreached_entry("resources", pattern.to_string(), names().collect()))
            .collect();
        // The kind of a resource is `None` if requests for it may contain objects of any kind. If there is such a
        // resource, this whole list is `None`, and no kind in the rule is reported as useless.
        let kinds: Option<Vec<String>> = reached_resources.iter().map(|resource| resource.kind.clone()).collect();
        if let (Matcher::Only(rule_kinds), Some(kinds)) = (&rule.kinds, kinds) {
            let is_unreached = |rule_kind: &&String| !kinds.iter().any(|kind| kind.eq_ignore_ascii_case(rule_kind));
            let unreached_kinds = rule_kinds.iter().filter(is_unreached);
            entries.extend(unreached_kinds.map(|kind| unreached_entry("kinds", kind.clone(), kinds.clone())));
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], kinds: &[&str]) -> Rule {
        let matcher_of = |texts: &[&str]| match texts {
            [] => Matcher::Any,
            texts => Matcher::Only(texts.iter().map(ToString::to_string).collect()),
        };
        Rule {
            api_groups: matcher_of(groups),
            resources: match resources {
                [] => vec![ResourcePattern::everything()],
                resources => resources
                    .iter()
                    .map(|text| ResourcePattern::parse(text).unwrap())
                    .collect(),
            },
            kinds: matcher_of(kinds),
            ..Rule::for_operations([crate::Operation::Create])
        }
    }

    #[test]
    fn a_chain_that_misses_requests_is_reported_with_the_reason() {
        let full_reach = Reach::default();
        let webhook_reach = Reach {
            is_by_resource: true,
            excluded_namespaces: vec!["kube-system".to_owned()],
            resources: None,
        };
        let kind_rule = || rule(&[], &[], &["Pod"]);
        let pod_rule = || rule(&[""], &["pods"], &[]);
        let review_rule = || rule(&["authentication.k8s.io"], &["tokenreviews"], &[]);
        // (case, requests that reach the chains, the chain's namespace, the chain's rules, expected result)
        // The expected result is `None` if the chain gets all requests that its rules match. Otherwise it has two
        // parts: whether the chain gets no request at all, and the number of reasons.
        for (case, reach, namespace, rules, expected) in [
            ("pods", &webhook_reach, None, vec![pod_rule()], None),
            ("pods of a team", &webhook_reach, Some("shop"), vec![pod_rule()], None),
            (
                "pods of the system",
                &webhook_reach,
                Some("kube-system"),
                vec![pod_rule()],
                Some((true, 1)),
            ),
            (
                "pods of the system, by other ways",
                &full_reach,
                Some("kube-system"),
                vec![pod_rule()],
                None,
            ),
            ("kinds", &webhook_reach, None, vec![kind_rule()], Some((true, 1))),
            (
                "kinds and pods",
                &webhook_reach,
                None,
                vec![kind_rule(), pod_rule()],
                Some((false, 1)),
            ),
            ("kinds, by other ways", &full_reach, None, vec![kind_rule()], None),
            (
                "kinds of a resource",
                &webhook_reach,
                None,
                vec![rule(&[], &["pods"], &["Pod"])],
                None,
            ),
            ("reviews", &full_reach, None, vec![review_rule()], Some((true, 1))),
            (
                "reviews and pods",
                &full_reach,
                None,
                vec![review_rule(), pod_rule()],
                Some((false, 1)),
            ),
            (
                "their group",
                &full_reach,
                None,
                vec![rule(&["authorization.k8s.io"], &["*"], &[])],
                Some((true, 1)),
            ),
            (
                "more groups",
                &full_reach,
                None,
                vec![rule(&["authorization.k8s.io", "apps"], &["*"], &[])],
                None,
            ),
            (
                "policies",
                &full_reach,
                None,
                vec![rule(
                    &["admissionregistration.k8s.io"],
                    &["validatingadmissionpolicies", "mutatingwebhookconfigurations"],
                    &[],
                )],
                Some((true, 1)),
            ),
            (
                "chains",
                &full_reach,
                None,
                vec![rule(&["admittance.dev"], &["admissionchains/status"], &[])],
                Some((true, 1)),
            ),
            (
                "another resource of a group",
                &full_reach,
                None,
                vec![rule(&["admissionregistration.k8s.io"], &["other"], &[])],
                None,
            ),
            ("everything", &full_reach, None, vec![rule(&[], &["*/*"], &[])], None),
            ("no rules", &full_reach, None, vec![], None),
        ] {
            let unreached = reach
                .find_unreached(namespace, &rules)
                .map(|misses| (misses.is_whole, misses.reasons.len()));
            assert_eq!(unreached, expected, "{case}");
        }
    }

    #[test]
    fn rule_entries_that_match_no_request_are_reported_with_a_fix() {
        let reached_resource = |resource: &str, subresource: Option<&str>, kind: Option<&str>| ReachedResource {
            resource: resource.to_owned(),
            subresource: subresource.map(str::to_owned),
            kind: kind.map(str::to_owned),
        };
        let reach_of_routes = |kind| Reach {
            resources: Some(vec![
                reached_resource("services", None, Some("Service")),
                reached_resource("services", Some("scale"), kind),
            ]),
            ..Reach::default()
        };
        let (reach_with_kind, reach_without_kind) = (reach_of_routes(Some("Scale")), reach_of_routes(None));
        for (reach, rule, expected) in [
            (
                &reach_with_kind,
                rule(&[], &["services", "*/scale", "*"], &["service", "Scale"]),
                vec![],
            ),
            (
                &reach_with_kind,
                rule(&[], &["servces", "services/status"], &["Servce", "Job"]),
                vec![
                    "resources servces: did you mean services?",
                    "resources services/status: requests have services and services/scale",
                    "kinds Servce: did you mean Service?",
                    "kinds Job: requests have Scale and Service",
                ],
            ),
            (&reach_without_kind, rule(&[], &["*/*"], &["Servce"]), vec![]),
            (&Reach::default(), rule(&[], &["servces"], &["Servce"]), vec![]),
        ] {
            let unreached = reach.unreached_entries(&rule);
            let entries = unreached
                .iter()
                .map(|entry| format!("{} {}: {}", entry.field, entry.entry, entry.fix));
            assert_eq!(entries.collect::<Vec<_>>(), expected, "{rule:?}");
        }
    }
}
