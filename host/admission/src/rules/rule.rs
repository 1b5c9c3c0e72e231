use std::fmt;

use crate::{GroupVersionResource, Operation, Request, words};

/// Selects the requests of a chain. Every part must match. The semantics are those of a rule in a Kubernetes
/// webhook configuration, with `kinds` added for control planes whose requests are identified by the kind in
/// their body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The operations.
    pub operations: Matcher<Operation>,
    /// The API groups; `""` is the core group.
    pub api_groups: Matcher<String>,
    /// The API versions.
    pub api_versions: Matcher<String>,
    /// The resources and subresources.
    pub resources: Vec<ResourcePattern>,
    /// Cluster-wide resources, namespaced ones, or both.
    pub scope: Scope,
    /// The kinds, case-insensitive.
    pub kinds: Matcher<String>,
    /// Whether other versions of a resource are matched too.
    pub match_policy: MatchPolicy,
    /// The names of the objects; empty for all.
    pub names: Vec<String>,
}

/// Whether a rule matches other versions of the resources that it lists. Kubernetes' `matchPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchPolicy {
    /// Only the version that the client used is matched.
    Exact,
    /// A resource that exists in several groups and versions is matched by any of them. All versions of a
    /// group are treated as the same resource; the core group has no other version. The object is not
    /// converted: it stays in the received version.
    #[default]
    Equivalent,
}

words!(MatchPolicy, "match policy": Exact = "Exact", Equivalent = "Equivalent");

/// Resources that Kubernetes serves in two groups.
const MOVED: [(&str, &str, &str); 7] = [
    ("deployments", "extensions", "apps"),
    ("daemonsets", "extensions", "apps"),
    ("replicasets", "extensions", "apps"),
    ("ingresses", "extensions", "networking.k8s.io"),
    ("networkpolicies", "extensions", "networking.k8s.io"),
    ("podsecuritypolicies", "extensions", "policy"),
    ("events", "", "events.k8s.io"),
];

/// The other group of such a resource.
fn other_group(resource: &GroupVersionResource) -> Option<&'static str> {
    MOVED.iter().find_map(|(name, old, new)| {
        let is_moved = *name == resource.resource;
        match resource.group.as_str() {
            group if is_moved && group == *old => Some(*new),
            group if is_moved && group == *new => Some(*old),
            _ => None,
        }
    })
}

/// A wildcard, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher<T> {
    /// `*`.
    Any,
    /// Only these.
    Only(Vec<T>),
}

impl<T: PartialEq> Matcher<T> {
    fn matches(&self, value: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Only(values) => values.contains(value),
        }
    }
}

impl Matcher<String> {
    fn matches_text(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(values) => values.iter().any(|value| value == text),
        }
    }
}

/// The scope of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Cluster-scoped resources, and Namespaces themselves.
    Cluster,
    /// Namespaced resources.
    Namespaced,
    /// All resources.
    #[default]
    Any,
}

words!(Scope, "scope": Cluster = "Cluster", Namespaced = "Namespaced", Any = "*");

/// One entry of a rule's resources: `pods`, `pods/status`, `pods/*`, `*/status`, `*`, `*/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    resource: Option<String>,
    subresource: Subresource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subresource {
    None,
    One(String),
    Any,
}

/// Why a part of a rule is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// An entry of `resources` without a name.
    #[error("`{0}` is not a valid resource: write `pods`, `pods/status`, `pods/*`, `*/status`, `*` or `*/*`")]
    ResourceEmpty(String),
}

impl ResourcePattern {
    /// Every resource and every subresource: `*/*`.
    pub fn everything() -> Self {
        Self {
            resource: None,
            subresource: Subresource::Any,
        }
    }

    /// Parses an entry of `resources`.
    ///
    /// # Errors
    ///
    /// When a part of it is empty.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let (resource, subresource) = match text.split_once('/') {
            None => (text, Subresource::None),
            Some((resource, "*")) => (resource, Subresource::Any),
            Some((_, "")) => return Err(RuleError::ResourceEmpty(text.to_owned())),
            Some((resource, subresource)) => (resource, Subresource::One(subresource.to_owned())),
        };
        match resource {
            "" => Err(RuleError::ResourceEmpty(text.to_owned())),
            "*" => Ok(Self {
                resource: None,
                subresource,
            }),
            name => Ok(Self {
                resource: Some(name.to_owned()),
                subresource,
            }),
        }
    }

    /// The resource, unless it is `*`.
    pub fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }

    fn matches_resource(&self, resource: &str) -> bool {
        self.resource.as_deref().is_none_or(|name| name == resource)
    }

    fn matches(&self, resource: &str, subresource: Option<&str>) -> bool {
        self.matches_resource(resource)
            && match &self.subresource {
                Subresource::None => subresource.is_none(),
                Subresource::One(name) => subresource == Some(name),
                Subresource::Any => true,
            }
    }
}

/// The text in a rule, for [`ResourcePattern::parse`].
impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource.as_deref().unwrap_or("*"))?;
        match &self.subresource {
            Subresource::None => Ok(()),
            Subresource::One(name) => write!(f, "/{name}"),
            Subresource::Any => f.write_str("/*"),
        }
    }
}

/// A part of a rule, in the order in which the parts are compared with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulePart {
    /// `operations`.
    Operations,
    /// `apiGroups` and `apiVersions`.
    GroupAndVersion,
    /// `resources`.
    Resources,
    /// `scope`.
    Scope,
    /// `kinds`.
    Kinds,
    /// `resourceNames`.
    Names,
}

/// What is known of a request before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// The operation.
    pub operation: Operation,
    /// The resource, if the path contains it.
    pub resource: Option<&'a GroupVersionResource>,
    /// The kind, if it is known without the body.
    pub kind: Option<&'a str>,
}

impl Rule {
    /// Creates a rule for these operations on all resources.
    pub fn for_operations(operations: impl IntoIterator<Item = Operation>) -> Self {
        Self {
            operations: Matcher::Only(operations.into_iter().collect()),
            api_groups: Matcher::Any,
            api_versions: Matcher::Any,
            resources: vec![ResourcePattern::everything()],
            scope: Scope::Any,
            kinds: Matcher::Any,
            match_policy: MatchPolicy::default(),
            names: Vec::new(),
        }
    }

    /// Whether the rule matches this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.mismatch(request).is_none()
    }

    /// The first part that does not match this request; `None` if the rule matches it.
    pub fn mismatch(&self, request: &Request) -> Option<RulePart> {
        let (resource, subresource, kind) = match (&request.requested, self.match_policy) {
            (Some(requested), MatchPolicy::Exact) => {
                (&requested.resource, &requested.subresource, &requested.kind)
            }
            _ => (&request.resource, &request.subresource, &request.kind),
        };
        let matches_resource = || {
            let mut patterns = self.resources.iter();
            patterns.any(|pattern| pattern.matches(&resource.resource, subresource.as_deref()))
        };
        if !self.operations.matches(&request.operation) {
            Some(RulePart::Operations)
        } else if !self.matches_group_version(resource) {
            Some(RulePart::GroupAndVersion)
        } else if !matches_resource() {
            Some(RulePart::Resources)
        } else if !self.matches_scope(request) {
            Some(RulePart::Scope)
        } else if !self.matches_kind(&kind.kind) {
            Some(RulePart::Kinds)
        } else if !self.names.is_empty() && !self.names.contains(&request.name) {
            Some(RulePart::Names)
        } else {
            None
        }
    }

    /// Whether the rule may match a request of which only this is known; false only if it cannot.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        self.operations.matches(&outline.operation)
            && outline.resource.is_none_or(|resource| {
                self.matches_group_version(resource)
                    && self
                        .resources
                        .iter()
                        .any(|pattern| pattern.matches_resource(&resource.resource))
            })
            && outline.kind.is_none_or(|kind| self.matches_kind(kind))
    }

    /// Whether the rule matches some request with this operation on this resource or subresource, whose
    /// objects are of this kind.
    pub fn covers(
        &self,
        operation: Operation,
        resource: &GroupVersionResource,
        subresource: Option<&str>,
        kind: &str,
    ) -> bool {
        self.operations.matches(&operation)
            && self.matches_group_version(resource)
            && self
                .resources
                .iter()
                .any(|pattern| pattern.matches(&resource.resource, subresource))
            && self.matches_kind(kind)
    }

    fn matches_group_version(&self, resource: &GroupVersionResource) -> bool {
        let exact = self.api_groups.matches(&resource.group) && self.api_versions.matches(&resource.version);
        exact
            || self.match_policy == MatchPolicy::Equivalent
                && (!resource.group.is_empty() && self.api_groups.matches(&resource.group)
                    || other_group(resource).is_some_and(|group| self.api_groups.matches_text(group)))
    }

    fn matches_kind(&self, kind: &str) -> bool {
        match &self.kinds {
            Matcher::Any => true,
            Matcher::Only(kinds) => kinds.iter().any(|name| name.eq_ignore_ascii_case(kind)),
        }
    }

    fn matches_scope(&self, request: &Request) -> bool {
        // kube-apiserver: a Namespace is a cluster-wide resource although its requests carry its own
        // name as their namespace.
        let cluster_wide = request.is_cluster_wide();
        match self.scope {
            Scope::Any => true,
            Scope::Cluster => cluster_wide,
            Scope::Namespaced => !cluster_wide,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupVersionKind;

    fn request(
        operation: Operation,
        group: &str,
        version: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Request {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        let resource = GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        };
        let kind = GroupVersionKind {
            kind: "Pod".into(),
            ..Default::default()
        };
        let mut request = Request::new(operation, kind, resource);
        request.subresource = subresource;
        request.namespace = namespace.map(str::to_owned);
        request
    }

    fn only(values: &[&str]) -> Matcher<String> {
        match values {
            ["*"] => Matcher::Any,
            values => Matcher::Only(values.iter().map(|value| (*value).to_owned()).collect()),
        }
    }

    #[test]
    fn groups_versions_and_operations() {
        use Operation::*;
        // (groups, versions, operations, request's group, version, operation, expectation); source:
        // kube-apiserver's rules predicate.
        let table: [(&[&str], &[&str], &[Operation], &str, &str, Operation, bool); 10] = [
            (&["*"], &["*"], &[Create], "g", "v", Create, true),
            (&["g", "h"], &["*"], &[Create], "g", "v", Create, true),
            (&["h"], &["*"], &[Create], "g", "v", Create, false),
            (&[""], &["*"], &[Create], "", "v", Create, true),
            (&[""], &["*"], &[Create], "g", "v", Create, false),
            (&["*"], &["v"], &[Create], "g", "v", Create, true),
            (&["*"], &["v1"], &[Create], "g", "v", Create, false),
            (&["*"], &["*"], &[Update, Delete], "g", "v", Delete, true),
            (&["*"], &["*"], &[Update, Delete], "g", "v", Create, false),
            (&["*"], &["*"], &[Connect], "g", "v", Connect, true),
        ];
        for (groups, versions, operations, group, version, operation, expected) in table {
            let rule = Rule {
                api_groups: only(groups),
                api_versions: only(versions),
                match_policy: MatchPolicy::Exact,
                ..Rule::for_operations(operations.iter().copied())
            };
            assert_eq!(
                rule.matches(&request(operation, group, version, "r", None)),
                expected,
                "{rule:?}"
            );
        }
    }

    #[test]
    fn other_versions_of_a_resource() {
        // (rule's group and version, request's resource, matches Exact, matches Equivalent); source:
        // kube-apiserver, `matchPolicy`.
        let table = [
            ("apps", "v1", "apps/v1/deployments", true, true),
            ("apps", "v1", "apps/v1beta1/deployments", false, true),
            ("apps", "v1", "extensions/v1beta1/deployments", false, true),
            ("extensions", "v1beta1", "apps/v1/deployments", false, true),
            ("apps", "v1", "batch/v1/jobs", false, false),
            ("", "v1", "/v2/pods", false, false),
            ("", "v1", "events.k8s.io/v1/events", false, true),
            ("events.k8s.io", "v1", "/v1/events", false, true),
        ];
        for (group, version, resource, exact, equivalent) in table {
            let parts: Vec<_> = resource.split('/').collect();
            let request = request(Operation::Update, parts[0], parts[1], parts[2], Some("ns"));
            for (match_policy, expected) in
                [(MatchPolicy::Exact, exact), (MatchPolicy::Equivalent, equivalent)]
            {
                let rule = Rule {
                    api_groups: only(&[group]),
                    api_versions: only(&[version]),
                    match_policy,
                    ..Rule::for_operations([Operation::Update])
                };
                assert_eq!(
                    rule.matches(&request),
                    expected,
                    "{group}/{version} {match_policy:?} {resource}"
                );
            }
        }
    }

    #[test]
    fn the_first_part_that_differs_is_named() {
        let rule = Rule {
            api_groups: only(&["apps"]),
            resources: vec![ResourcePattern::parse("deployments").unwrap()],
            scope: Scope::Namespaced,
            kinds: only(&["Pod"]),
            ..Rule::for_operations([Operation::Create])
        };
        for (operation, group, resource, namespace, expected) in [
            (Operation::Delete, "", "pods", None, Some(RulePart::Operations)),
            (
                Operation::Create,
                "",
                "pods",
                None,
                Some(RulePart::GroupAndVersion),
            ),
            (Operation::Create, "apps", "pods", None, Some(RulePart::Resources)),
            (
                Operation::Create,
                "apps",
                "deployments",
                None,
                Some(RulePart::Scope),
            ),
            (Operation::Create, "apps", "deployments", Some("a"), None),
        ] {
            let request = request(operation, group, "v1", resource, namespace);
            assert_eq!(
                rule.mismatch(&request),
                expected,
                "{operation} {group}/{resource}"
            );
        }
        let other = Rule {
            kinds: only(&["Node"]),
            ..rule
        };
        let pods = request(Operation::Create, "apps", "v1", "deployments", Some("a"));
        assert_eq!(other.mismatch(&pods), Some(RulePart::Kinds));
    }

    #[test]
    fn exact_is_what_the_caller_named() {
        let rule = |version: &str| Rule {
            api_groups: only(&["apps"]),
            api_versions: only(&[version]),
            match_policy: MatchPolicy::Exact,
            ..Rule::for_operations([Operation::Create])
        };
        let mut converted = request(Operation::Create, "apps", "v1", "deployments", Some("ns"));
        converted.requested = Some(Box::new(crate::Requested {
            kind: converted.kind.clone(),
            resource: GroupVersionResource {
                version: "v1beta1".into(),
                ..converted.resource.clone()
            },
            subresource: None,
        }));
        assert!(!rule("v1").matches(&converted));
        assert!(rule("v1beta1").matches(&converted));
    }

    #[test]
    fn resources() {
        // (entries, resource, expectation); source: kube-apiserver's rules predicate.
        let table: [(&[&str], &str, bool); 14] = [
            (&["*"], "r", true),
            (&["*"], "r/exec", false),
            (&["*/*"], "r", true),
            (&["*/*"], "r/exec", true),
            (&["r/*"], "r", true),
            (&["r/*"], "r/exec", true),
            (&["r/*"], "r2", false),
            (&["r/*", "r2"], "r2", true),
            (&["r/*", "r2"], "r2/proxy", false),
            (&["*/proxy", "*/exec"], "r/exec", true),
            (&["*/proxy", "*/exec"], "r", false),
            (&["r"], "r", true),
            (&["r"], "r/status", false),
            (&["R"], "r", false),
        ];
        for (entries, resource, expected) in table {
            let resources = entries
                .iter()
                .map(|entry| ResourcePattern::parse(entry).unwrap())
                .collect();
            let rule = Rule {
                resources,
                ..Rule::for_operations([Operation::Create])
            };
            let request = request(Operation::Create, "g", "v", resource, None);
            assert_eq!(rule.matches(&request), expected, "{entries:?} {resource}");
            let written: Vec<_> = rule.resources.iter().map(ToString::to_string).collect();
            assert_eq!(written, entries);
        }
        for wrong in ["", "/", "/status", "pods/"] {
            assert!(ResourcePattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn scope() {
        // (group, resource, namespace, matches Cluster, matches Namespaced); source: as above.
        for (group, resource, namespace, cluster, namespaced) in [
            ("g", "r", None, true, false),
            ("g", "r", Some("ns"), false, true),
            ("", "namespaces", None, true, false),
            ("", "namespaces", Some("ns"), true, false),
            ("", "namespaces/finalize", Some("ns"), true, false),
            ("g", "namespaces", Some("ns"), false, true),
        ] {
            let request = request(Operation::Create, group, "v", resource, namespace);
            for (scope, expected) in [
                (Scope::Cluster, cluster),
                (Scope::Namespaced, namespaced),
                (Scope::Any, true),
            ] {
                let rule = Rule {
                    scope,
                    ..Rule::for_operations([Operation::Create])
                };
                assert_eq!(
                    rule.matches(&request),
                    expected,
                    "{scope:?} {group}/{resource} {namespace:?}"
                );
            }
        }
    }

    #[test]
    fn kinds_whatever_their_case() {
        let rule = Rule {
            kinds: only(&["pod"]),
            ..Rule::for_operations([Operation::Create])
        };
        assert!(rule.matches(&request(Operation::Create, "", "v1", "pods", None)));
        let rule = Rule {
            kinds: only(&["pods"]),
            ..rule
        };
        assert!(!rule.matches(&request(Operation::Create, "", "v1", "pods", None)));
    }

    #[test]
    fn an_outline_rules_out_only_what_cannot_match() {
        let rule = Rule {
            resources: vec![ResourcePattern::parse("pods/status").unwrap()],
            kinds: only(&["pod"]),
            ..Rule::for_operations([Operation::Create])
        };
        let pods = GroupVersionResource {
            resource: "pods".into(),
            ..Default::default()
        };
        let nodes = GroupVersionResource {
            resource: "nodes".into(),
            ..Default::default()
        };
        let outline = Outline {
            operation: Operation::Create,
            resource: None,
            kind: None,
        };
        assert!(rule.may_match(&outline));
        assert!(rule.may_match(&Outline {
            resource: Some(&pods),
            ..outline
        }));
        assert!(rule.may_match(&Outline {
            kind: Some("POD"),
            ..outline
        }));
        assert!(!rule.may_match(&Outline {
            resource: Some(&nodes),
            ..outline
        }));
        assert!(!rule.may_match(&Outline {
            kind: Some("node"),
            ..outline
        }));
        assert!(!rule.may_match(&Outline {
            operation: Operation::Update,
            ..outline
        }));
    }
}
