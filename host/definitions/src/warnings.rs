//! Warns about settings of chains that are valid, but probably not intended.

use std::{cell::LazyCell, path::Path};

use admittance_admission::{
    GroupVersionKind, GroupVersionResource, Matcher, Operation, Phase, Reach, Rule, Scope, UnreachedEntry,
};

use crate::{
    ChainDefinition, Mistake, Mistakes, StageDefinition,
    document::{self, Document, Node},
};

/// The subresource of Pods that adds a container to a running Pod. The object of such a request is the whole Pod.
const EPHEMERAL_CONTAINERS: &str = "ephemeralcontainers";

impl ChainDefinition {
    /// Returns warnings about settings of the chain that are valid, but probably not intended: fields without an
    /// effect, rules that match nothing, and rules that match Pods but not the containers that are added to Pods later.
    pub fn warnings(&self) -> Vec<Mistake> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.warnings_of_entries(useless_entries));
        warnings.extend(self.ephemeral_containers_warning());
        for stage in &self.stages {
            warnings.extend(stage.hook.warnings().into_iter().map(|(message, fix)| {
                let message = format!("chain {}, {}: {message}", self.name, stage.spec.name);
                Mistake::new(&stage.location, "", message, fix)
            }));
        }
        warnings
    }

    /// Warns if the chain's rules match requests that are never sent to the host. Also warns about an entry of a rule,
    /// such as a resource, if no request that matches the entry is ever sent to the host.
    pub fn unreached_warnings(&self, reach: &Reach) -> Vec<Mistake> {
        let mut warnings = self.warnings_of_entries(|rule| {
            // If a stage has an `expansion`, it checks generated objects. Such objects are never sent in a request, so
            // it is normal that the rules of its chain match no request. The chain gets no warnings.
            if self.stages.iter().any(|stage| stage.spec.expansion.is_some()) {
                return Vec::new();
            }
            let known_entries = useless_entries(rule);
            let is_new = |unreached_entry: &UnreachedEntry| {
                !known_entries.iter().any(|entry| entry.entry == unreached_entry.entry)
            };
            let new_entries = reach.unreached_entries(rule).into_iter().filter(is_new);
            let useless = new_entries.map(|UnreachedEntry { field, entry, fix }| UselessEntry {
                field,
                message: format!("`{entry}` in `{field}` matches no request: no route of the dialect has it"),
                fix,
                entry,
            });
            useless.collect()
        });
        let misses = reach.find_unreached(self.namespace.as_deref(), &self.rules);
        warnings.extend(misses.map(|misses| {
            let prefix = if misses.is_whole { "it is never called: " } else { "" };
            let message = format!("chain {}: {prefix}{}", self.name, misses.reasons.join("; "));
            Mistake::new(&self.location, "", message, "")
        }));
        warnings
    }

    fn warnings_of_entries(&self, find: impl Fn(&Rule) -> Vec<UselessEntry>) -> Vec<Mistake> {
        let stage_rules = self.stages.iter().map(|stage| &stage.spec.rules);
        let rules = std::iter::once(&self.rules).chain(stage_rules).flatten();
        let documents = LazyCell::new(|| document::read_file(Path::new(&self.location.file), &mut Mistakes::new()));
        let mut warnings: Vec<Mistake> = Vec::new();
        for useless in rules.flat_map(find) {
            let message = format!("chain {}: {}", self.name, useless.message);
            if warnings.iter().any(|warning| warning.message == message) {
                continue;
            }
            // The warning points to the entry of the rule if the entry is found in the file that defines the chain. If
            // it is not, for example because the file has changed since it was read, the warning points to the chain.
            let mut roots = documents.iter().map(Document::root_ignoring_mistakes);
            let entry = roots
                .find_map(|root| root.object_at(&self.location))
                .and_then(|chain| find_entry(&chain, useless.field, &useless.entry));
            warnings.push(match entry {
                Some(entry) => entry.mistake(message, useless.fix),
                None => Mistake::new(&self.location, "", message, useless.fix),
            });
        }
        warnings
    }

    fn ephemeral_containers_warning(&self) -> Option<Mistake> {
        let stages: Vec<_> = self
            .stages
            .iter()
            .filter(|stage| self.misses_ephemeral_containers(stage))
            .map(|stage| &*stage.spec.name)
            .collect();
        (!stages.is_empty()).then(|| {
            let message = format!(
                "chain {}, {}: the rules match pods and not pods/{EPHEMERAL_CONTAINERS}, so a container that is \
                 added to a running Pod (kubectl debug) is not seen",
                self.name,
                stages.join(", ")
            );
            let fix = format!("add pods/{EPHEMERAL_CONTAINERS} to `resources`, with the operation UPDATE");
            Mistake::new(&self.location, "", message, fix)
        })
    }

    /// Returns whether the stage checks Pods, but not the containers added to running Pods. A mutating stage that is
    /// called only for CREATE does not count: it probably completes new Pods, for example by injecting a sidecar.
    fn misses_ephemeral_containers(&self, stage: &StageDefinition) -> bool {
        let updates = self.sees_pods(stage, Operation::Update, None);
        let judges = self.phase == Phase::Validating && self.sees_pods(stage, Operation::Create, None);
        (updates || judges) && !self.sees_pods(stage, Operation::Update, Some(EPHEMERAL_CONTAINERS))
    }

    fn sees_pods(&self, stage: &StageDefinition, operation: Operation, subresource: Option<&str>) -> bool {
        let pods = GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
        };
        let is_seen = |rules: &[Rule]| {
            rules
                .iter()
                .any(|rule| rule.scope != Scope::Cluster && rule.covers(operation, &pods, subresource, "Pod"))
        };
        is_seen(&self.rules) && (stage.spec.rules.is_empty() || is_seen(&stage.spec.rules))
    }
}

/// An entry of a rule that matches no request, for example because it is a kind where a resource is expected.
struct UselessEntry {
    field: &'static str,
    entry: String,
    message: String,
    fix: String,
}

fn useless_entries(rule: &Rule) -> Vec<UselessEntry> {
    let mut useless = Vec::new();
    for pattern in &rule.resources {
        let entry = pattern.to_string();
        let resource = entry.split('/').next().unwrap_or_default();
        let is_kind = resource.chars().any(char::is_uppercase);
        if is_kind || SINGULAR_RESOURCES.contains(&resource) {
            let plural = GroupVersionKind::from_api_version("v1", resource)
                .guess_resource()
                .resource;
            useless.push(UselessEntry {
                field: "resources",
                message: format!("`{entry}` in `resources` matches no request: resources are in lower case and plural"),
                fix: format!("write {plural}, or write {resource} in `kinds`"),
                entry,
            });
        }
    }
    for (field, matcher) in [("apiGroups", &rule.api_groups), ("apiVersions", &rule.api_versions)] {
        let Matcher::Only(entries) = matcher else { continue };
        for entry in entries.iter().filter(|entry| entry.contains('/')) {
            let (group, version) = entry.split_once('/').unwrap_or_default();
            useless.push(UselessEntry {
                field,
                message: format!("`{entry}` in `{field}` matches no request: it is a group and a version"),
                fix: format!("write {group} in `apiGroups` and {version} in `apiVersions`"),
                entry: entry.clone(),
            });
        }
    }
    useless
}

fn find_entry<'a>(node: &Node<'a>, field: &str, text: &str) -> Option<Node<'a>> {
    node.children().into_iter().find_map(|(key, child)| {
        let mut entries = child.children().into_iter().filter(|_| key == Some(field));
        let entry = entries.find(|(_, entry)| entry.json().as_str() == Some(text));
        entry
            .map(|(_, entry)| entry)
            .or_else(|| find_entry(&child, field, text))
    })
}

/// Words that people often write in place of the plural resource. None of them is the name of a resource in Kubernetes.
const SINGULAR_RESOURCES: [&str; 16] = [
    "pod",
    "deployment",
    "service",
    "node",
    "namespace",
    "secret",
    "configmap",
    "job",
    "cronjob",
    "ingress",
    "daemonset",
    "statefulset",
    "replicaset",
    "serviceaccount",
    "role",
    "clusterrole",
];

#[cfg(test)]
mod tests;
