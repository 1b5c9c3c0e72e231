//! Grants the Pods their permissions in the cluster.

use std::collections::BTreeSet;

use admittance::{
    admission::{Matcher, Operation},
    definitions::ChainDefinition,
};
use admittance_fleet::{
    RESOURCE_PLURALS,
    audit::{AuditConfig, ReportApi},
};
use serde_json::{Value as Json, json};

use super::PreparedInstallation;

/// Returns the rules of the Pods' ClusterRole. The rules for webhook configurations are not among them, because the
/// templates of the chart contain those.
pub(super) fn cluster_rules(prepared: &PreparedInstallation) -> Vec<Json> {
    let configuration = &prepared.configuration;
    let mut rules = prepared.needs.cluster_rules();
    if configuration.reads_resources {
        rules.extend(rules_for_resources(configuration.has_admin_users()));
        let groups = configuration.policies.iter().flat_map(|system| system.groups());
        rules.extend(groups.map(|group| {
            let verbs = ["list", "watch"];
            json!({"apiGroups": [group.name], "resources": group.resources, "verbs": verbs})
        }));
    }
    if let Some(audit) = &configuration.audit {
        rules.extend(rules_for_audits(audit, &prepared.chains));
    }
    rules
}

/// Returns the rights to definitions in the cluster. If the admin API has users, they may change definitions there, and
/// the Pods write these changes. So the Pods then get the right to write definitions.
fn rules_for_resources(has_users: bool) -> Vec<Json> {
    let group = "admittance.dev";
    let statuses = RESOURCE_PLURALS.map(|resource| format!("{resource}/status"));
    let mut verbs = vec!["get", "list", "watch"];
    if has_users {
        verbs.extend(["create", "update", "patch", "delete"]);
    }
    vec![
        json!({"apiGroups": [group], "resources": RESOURCE_PLURALS, "verbs": verbs}),
        json!({"apiGroups": [group], "resources": statuses, "verbs": ["get", "update", "patch"]}),
        // An Event is in the namespace of its object, or in `default`, so Pods may write Events in all namespaces.
        json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}),
    ]
}

fn rules_for_audits(audit: &AuditConfig, chains: &[ChainDefinition]) -> Vec<Json> {
    let mut audited: BTreeSet<(String, String)> = audit
        .resources
        .iter()
        .map(|name| match name.split_once('.') {
            Some((resource, group)) => (group.to_owned(), resource.to_owned()),
            None => ("*".to_owned(), name.clone()),
        })
        .collect();
    let rules = chains.iter().flat_map(|chain| &chain.rules);
    for rule in rules.filter(|_| audit.resources.is_empty()) {
        let is_audited = match &rule.operations {
            Matcher::Any => true,
            Matcher::Only(operations) => operations
                .iter()
                .any(|operation| matches!(operation, Operation::Create | Operation::Update)),
        };
        if !is_audited {
            continue;
        }
        let groups = match &rule.api_groups {
            Matcher::Any => vec!["*".to_owned()],
            Matcher::Only(groups) => groups.clone(),
        };
        for pattern in &rule.resources {
            let pattern = pattern.to_string();
            let resource = match pattern.split_once('/') {
                None => &pattern,
                Some(("*", "*")) => "*",
                // Subresources are not audited, because they are not objects.
                Some(_) => continue,
            };
            audited.extend(groups.iter().map(|group| (group.clone(), resource.to_owned())));
        }
    }
    // The configuration may exclude namespaces from audits by label, so the Pods must be able to read namespaces.
    audited.insert((String::new(), "namespaces".to_owned()));
    let resource_rules = audited.into_iter().map(|(group, resource)| {
        let verbs = ["get", "list", "watch"];
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
    });
    let mut rules: Vec<_> = resource_rules.collect();
    if audit.writes_reports {
        rules.extend(ReportApi::ALL.into_iter().rev().map(|api| {
            let resources = [true, false].map(|is_namespaced| api.plural(is_namespaced));
            let verbs = ["get", "list", "create", "patch", "delete"];
            json!({"apiGroups": [api.group()], "resources": resources, "verbs": verbs})
        }));
    }
    rules
}
