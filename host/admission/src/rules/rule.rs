use std::fmt;

use crate::{GroupVersionResource, Operation, Request, keywords};

/// Selects requests. A request must match every field. A rule means the same as in a Kubernetes webhook configuration.
/// The field `kinds` is an addition, for control planes whose requests name a kind in their body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The operations that the rule matches.
    pub operations: Matcher<Operation>,
    /// The API groups that the rule matches; `""` is the core group.
    pub api_groups: Matcher<String>,
    /// The API versions that the rule matches.
    pub api_versions: Matcher<String>,
    /// The resources and subresources that the rule matches.
    pub resources: Vec<ResourcePattern>,
    /// The scope of the resources that the rule matches: cluster-scoped, namespaced, or both.
    pub scope: Scope,
    /// The kinds that the rule matches. Letter case is ignored.
    pub kinds: Matcher<String>,
    /// Whether the rule also matches requests for other API versions of a resource than those in `api_versions`.
    pub match_policy: MatchPolicy,
    /// The names of the objects that the rule matches. An empty list matches all objects.
    pub names: Vec<String>,
}

/// Whether a rule that names one API version of a resource also matches requests for its other versions, as in
/// Kubernetes' `matchPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchPolicy {
    /// The rule matches a request only if the client used an API version in the rule.
    Exact,
    /// The rule matches requests for a resource in any of its API versions. Kubernetes serves some resources in two
    /// groups, such as `extensions` and `apps`; a rule for one of the groups also matches requests for the other one.
    /// The object is not converted.
    #[default]
    Equivalent,
}

keywords!(MatchPolicy, "match policy": Exact = "Exact", Equivalent = "Equivalent");

/// The resources that Kubernetes serves in two API groups: (resource, old group, new group).
const MOVED_RESOURCES: [(&str, &str, &str); 7] = [
    ("deployments", "extensions", "apps"),
    ("daemonsets", "extensions", "apps"),
    ("replicasets", "extensions", "apps"),
    ("ingresses", "extensions", "networking.k8s.io"),
    ("networkpolicies", "extensions", "networking.k8s.io"),
    ("podsecuritypolicies", "extensions", "policy"),
    ("events", "", "events.k8s.io"),
];

fn other_group(resource: &GroupVersionResource) -> Option<&'static str> {
    MOVED_RESOURCES.iter().find_map(|(name, old, new)| {
        let is_moved = *name == resource.resource;
        match resource.group.as_str() {
            group if is_moved && group == *old => Some(*new),
            group if is_moved && group == *new => Some(*old),
            _ => None,
        }
    })
}

/// The values that a field of a rule matches: all values, or those in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher<T> {
    /// The field matches all values. It is written as `*`.
    Any,
    /// The field matches the values in this list.
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

/// The scope of the resources that a rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Cluster-scoped resources. Namespaces are among them.
    Cluster,
    /// Resources that are in a namespace.
    Namespaced,
    /// Resources with and without a namespace.
    #[default]
    Any,
}

keywords!(Scope, "scope": Cluster = "Cluster", Namespaced = "Namespaced", Any = "*");

/// An entry in a rule's `resources`: `pods`, `pods/status`, `pods/*`, `*/status`, `*` or `*/*`.
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

/// The reason why a rule cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The part before or after the slash in an entry of `resources` is empty.
    #[error("`{0}` is not a valid resource: write `pods`, `pods/status`, `pods/*`, `*/status`, `*` or `*/*`")]
    ResourceEmpty(String),
}

impl ResourcePattern {
    /// Returns the pattern `*/*`, which matches every resource and subresource.
    pub fn everything() -> Self {
        Self {
            resource: None,
            subresource: Subresource::Any,
        }
    }

    /// Parses an entry of a rule's `resources`.
    ///
    /// # Errors
    ///
    /// Fails when the resource or subresource is empty.
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

    /// Returns the resource in the entry; `None` if the entry matches all resources.
    pub fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }

    fn matches_resource(&self, resource: &str) -> bool {
        self.resource.as_deref().is_none_or(|name| name == resource)
    }

    pub(super) fn matches(&self, resource: &str, subresource: Option<&str>) -> bool {
        self.matches_resource(resource)
            && match &self.subresource {
                Subresource::None => subresource.is_none(),
                Subresource::One(name) => subresource == Some(name),
                Subresource::Any => true,
            }
    }
}

/// Writes the entry in the form that [`ResourcePattern::parse`] reads.
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

/// The fields of a rule, in the order in which they are compared with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulePart {
    /// The field `operations` of a rule.
    Operations,
    /// The fields `apiGroups` and `apiVersions` of a rule.
    GroupAndVersion,
    /// The field `resources` of a rule.
    Resources,
    /// The field `scope` of a rule.
    Scope,
    /// The field `kinds` of a rule.
    Kinds,
    /// The field `resourceNames` of a rule.
    Names,
}

/// The facts about a request that are known before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// The requested operation.
    pub operation: Operation,
    /// The resource, if the request's path contains it.
    pub resource: Option<&'a GroupVersionResource>,
    /// The kind of the object; `None` if only the body of the request says it.
    pub kind: Option<&'a str>,
}

impl Rule {
    /// Creates a rule that matches these operations on all resources.
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

    /// Returns whether the rule matches this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.mismatch(request).is_none()
    }

    /// Returns the first field of the rule that does not match this request; `None` if all fields match.
    pub fn mismatch(&self, request: &Request) -> Option<RulePart> {
        let (resource, subresource, kind) = match (&request.requested_kind, self.match_policy) {
            (Some(requested), MatchPolicy::Exact) => (&requested.resource, &requested.subresource, &requested.kind),
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

    /// Returns whether the rule may match a request of which only this outline is known.
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

    /// Returns whether the rule can match requests with this operation, resource, subresource and kind.
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
        // As in kube-apiserver, a Namespace counts as cluster-scoped, although a request for it has a namespace.
        let cluster_wide = request.is_cluster_wide();
        match self.scope {
            Scope::Any => true,
            Scope::Cluster => cluster_wide,
            Scope::Namespaced => !cluster_wide,
        }
    }
}

#[cfg(test)]
mod tests;
