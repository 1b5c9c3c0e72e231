//! Converts the `match` field of a constraint or mutator to the rules, selectors and conditions of a stage.

use admittance_admission::{
    GroupVersionKind, LabelSelector, MatchConditions, MatchPolicy, Matcher, Operation, ResourcePattern, Rule, Scope,
};
use admittance_conditions::{CelConditions, MatchCondition};

use crate::{
    document::{Node, quoted, readers},
    model::any_rule,
    selectors::{self, LabelSyntax},
};

/// The resources in the rules of Gatekeeper's webhook configuration. In such a rule, `*` does not include subresources,
/// so the subresources are listed as well.
const RESOURCES: [&str; 16] = [
    "*",
    "pods/ephemeralcontainers",
    "pods/exec",
    "pods/log",
    "pods/eviction",
    "pods/portforward",
    "pods/proxy",
    "pods/attach",
    "pods/binding",
    "deployments/scale",
    "replicasets/scale",
    "statefulsets/scale",
    "replicationcontrollers/scale",
    "services/proxy",
    "nodes/proxy",
    "services/status",
];

/// A CEL expression for the namespace of a request. If the object is itself a Namespace, it is the object's name; for
/// other cluster-wide objects, it is empty.
const NAMESPACE: &str = "(request.kind.kind == 'Namespace' && request.kind.group == '' ? \
                         (has(request.name) ? request.name : '') : \
                         (has(request.namespace) ? request.namespace : ''))";

/// A CEL expression for the name of the object; if it has no name yet, for its `generateName`.
const NAME: &str = "(has(request.name) ? request.name : \
                    object != null && has(object.metadata) && has(object.metadata.generateName) ? \
                    object.metadata.generateName : '')";

#[derive(Clone, Debug, Default)]
pub(super) struct Match {
    /// The matching API groups and kinds, in pairs. An empty list matches every kind.
    kinds: Vec<(Matcher<String>, Matcher<String>)>,
    scope: Scope,
    namespaces: Vec<String>,
    excluded_namespaces: Vec<String>,
    pub(super) labels: LabelSelector,
    pub(super) namespace_labels: LabelSelector,
    name: Option<String>,
    pub(super) source: ObjectSource,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ObjectSource {
    #[default]
    All,
    Original,
    Generated,
}

impl ObjectSource {
    pub(super) fn includes(self, other: Self) -> bool {
        self == Self::All || self == other
    }
}

pub(super) fn read(node: &Node<'_>) -> Option<Match> {
    const SOURCES: [(&str, ObjectSource); 3] = [
        ("All", ObjectSource::All),
        ("Original", ObjectSource::Original),
        ("Generated", ObjectSource::Generated),
    ];
    let mut fields = node.object()?;
    Some(Match {
        kinds: fields.get_or_default("kinds", readers::list_of(read_kinds)),
        scope: fields.get_or_default("scope", Node::word),
        namespaces: fields.get_or_default("namespaces", readers::list_of(read_glob)),
        excluded_namespaces: fields.get_or_default("excludedNamespaces", readers::list_of(read_glob)),
        labels: selectors::read_labels_of_field(&mut fields, "labelSelector", LabelSyntax::Kubernetes),
        namespace_labels: selectors::read_labels_of_field(&mut fields, "namespaceSelector", LabelSyntax::Kubernetes),
        name: fields.get_optional("name", read_glob),
        source: fields.get_or_default("source", readers::one_of("source", &SOURCES)),
    })
}

fn read_kinds(node: &Node<'_>) -> Option<(Matcher<String>, Matcher<String>)> {
    let mut fields = node.object()?;
    let mut words = |name: &'static str| {
        let words = fields.get_or_default(name, Node::strings);
        if words.is_empty() || words.iter().any(|word| word == "*") {
            Matcher::Any
        } else {
            Matcher::Only(words)
        }
    };
    let (groups, kinds) = (words("apiGroups"), words("kinds"));
    Some((groups, kinds))
}

/// Reads a name with an optional `*` at the beginning or the end.
fn read_glob(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    let rest = text.strip_prefix('*').unwrap_or(text);
    let inner = rest.strip_suffix('*').unwrap_or(rest);
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':');
    if inner.chars().all(is_name) {
        return Some(text.to_owned());
    }
    let fix = "write a name, with `*` only at its beginning or end: `kube-*`";
    node.reject(format!("{} is not a name", quoted(text)), fix)
}

impl Match {
    /// Returns rules for requests with these operations, limited to the kinds and the scope of the match.
    pub(super) fn rules(&self, operations: &[Operation]) -> Vec<Rule> {
        let resources = RESOURCES
            .iter()
            .filter_map(|resource| ResourcePattern::parse(resource).ok());
        let rule = Rule {
            operations: Matcher::Only(operations.to_vec()),
            resources: resources.collect(),
            scope: self.scope,
            match_policy: MatchPolicy::Equivalent,
            ..any_rule()
        };
        if self.kinds.is_empty() {
            return vec![rule];
        }
        let kinds_rule = |(groups, kinds): &(Matcher<String>, Matcher<String>)| Rule {
            api_groups: groups.clone(),
            kinds: kinds.clone(),
            ..rule.clone()
        };
        self.kinds.iter().map(kinds_rule).collect()
    }

    pub(super) fn is_for(&self, kind: &GroupVersionKind) -> bool {
        let fits = |matcher: &Matcher<String>, word: &String| match matcher {
            Matcher::Any => true,
            Matcher::Only(words) => words.contains(word),
        };
        let mut entries = self.kinds.iter();
        self.kinds.is_empty() || entries.any(|(groups, kinds)| fits(groups, &kind.group) && fits(kinds, &kind.kind))
    }

    /// Returns match conditions for the parts of `match` that rules and selectors cannot express, such as namespaces
    /// with wildcards. Requests in the namespaces `excluded` do not match either.
    pub(super) fn conditions(&self, excluded: &[String]) -> MatchConditions {
        let any_of = |globs: &[String], value: &str| {
            let tests: Vec<String> = globs.iter().map(|glob| glob_test(glob, value)).collect();
            tests.join(" || ")
        };
        let mut conditions = Vec::new();
        if !self.namespaces.is_empty() {
            let namespace_test = any_of(&self.namespaces, NAMESPACE);
            conditions.push(("namespaces", format!("{NAMESPACE} == '' || {namespace_test}")));
        }
        let excluded = [&self.excluded_namespaces, excluded].concat();
        if !excluded.is_empty() {
            let excluded_test = any_of(&excluded, NAMESPACE);
            conditions.push(("excludedNamespaces", format!("{NAMESPACE} == '' || !({excluded_test})")));
        }
        if let Some(name) = &self.name {
            conditions.push(("name", glob_test(name, NAME)));
        }
        // Compiling cannot fail, because the expressions contain only checked names.
        let compiled: CelConditions = conditions
            .iter()
            .filter_map(|(name, text)| MatchCondition::compile(name, text).ok())
            .collect();
        compiled.into()
    }
}

fn glob_test(glob: &str, value: &str) -> String {
    let (starts, ends) = (glob.starts_with('*'), glob.ends_with('*'));
    let name = glob.trim_matches('*');
    match (starts, ends) {
        (true, true) => format!("{value}.contains('{name}')"),
        (true, false) => format!("{value}.endsWith('{name}')"),
        (false, true) => format!("{value}.startsWith('{name}')"),
        (false, false) => format!("{value} == '{name}'"),
    }
}
