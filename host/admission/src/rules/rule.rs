use std::fmt;

use crate::{GroupVersionResource, Operation, Request, keywords};

/// Selects requests; every part must match. A rule means the same as in a Kubernetes webhook configuration. `kinds` is
/// an addition for control planes that identify requests by the kind in their body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The operations on the resources.
    pub operations: Matcher<Operation>,
    /// The API groups; `""` is the core group.
    pub api_groups: Matcher<String>,
    /// The API versions.
    pub api_versions: Matcher<String>,
    /// The resources and subresources.
    pub resources: Vec<ResourcePattern>,
    /// The scope: cluster-scoped resources, namespaced ones, or both.
    pub scope: Scope,
    /// The kinds. Letter case is ignored.
    pub kinds: Matcher<String>,
    /// Whether other versions of a resource match too.
    pub match_policy: MatchPolicy,
    /// The names of the objects; empty matches all.
    pub names: Vec<String>,
}

/// Whether a rule matches other versions of its resources, as in Kubernetes' `matchPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchPolicy {
    /// Only the version that the client used matches.
    Exact,
    /// All versions of a resource match, except in the core group, which has only one. If Kubernetes serves the
    /// resource in two groups, the other group matches too. The object is not converted to the version in the rule.
    #[default]
    Equivalent,
}

keywords!(MatchPolicy, "match policy": Exact = "Exact", Equivalent = "Equivalent");

/// The resources that Kubernetes serves in two groups: (resource, old group, new group).
const MOVED: [(&str, &str, &str); 7] = [
    ("deployments", "extensions", "apps"),
    ("daemonsets", "extensions", "apps"),
    ("replicasets", "extensions", "apps"),
    ("ingresses", "extensions", "networking.k8s.io"),
    ("networkpolicies", "extensions", "networking.k8s.io"),
    ("podsecuritypolicies", "extensions", "policy"),
    ("events", "", "events.k8s.io"),
];

/// Returns the other group in which Kubernetes serves a resource.
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

/// All values, or a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher<T> {
    /// All values, written `*`.
    Any,
    /// The listed values.
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
    /// Cluster-scoped resources, which include Namespaces.
    Cluster,
    /// Namespaced resources.
    Namespaced,
    /// All resources.
    #[default]
    Any,
}

keywords!(Scope, "scope": Cluster = "Cluster", Namespaced = "Namespaced", Any = "*");

/// An entry of a rule's resources: `pods`, `pods/status`, `pods/*`, `*/status`, `*` or `*/*`.
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
    /// The entry of `resources` has an empty part.
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

    /// Parses an entry of `resources`.
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

    /// Returns the resource; `None` for `*`.
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

/// Writes the entry as [`ResourcePattern::parse`] reads it.
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

/// The parts of a rule, in the order in which they are compared with a request.
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

/// The parts of a request that are known before the body is read.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// The requested operation.
    pub operation: Operation,
    /// The resource, if the path contains it.
    pub resource: Option<&'a GroupVersionResource>,
    /// The kind, if it is known without the body.
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

    /// Returns the first part that does not match this request; `None` if all match.
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

    /// Returns whether the rule may match a request with this outline.
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

    /// Returns whether the rule can match a request with this operation, resource, subresource and kind.
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
        // As in kube-apiserver, a Namespace is cluster-scoped, although its requests have a namespace.
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
