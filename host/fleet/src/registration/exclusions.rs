use admittance::admission::{GroupVersionResource, Operation, Outline, Rule, Scope};

/// Requests of one kind that are always excluded from the webhooks.
#[derive(Debug)]
pub(super) struct Exclusion {
    pub(super) name: &'static str,
    group: &'static str,
    resource: &'static str,
    pub(super) expression: &'static str,
    pub(super) subject: &'static str,
}

/// The requests that must not wait for a webhook, because the cluster depends on them.
pub(super) static EXCLUSIONS: [Exclusion; 3] = [
    Exclusion {
        name: "exclude-leases",
        group: "coordination.k8s.io",
        resource: "leases",
        expression: "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')",
        subject: "leases",
    },
    Exclusion {
        name: "exclude-authentication",
        group: "authentication.k8s.io",
        resource: "tokenreviews",
        expression: "request.resource.group != 'authentication.k8s.io'",
        subject: "reviews of tokens",
    },
    Exclusion {
        name: "exclude-authorization",
        group: "authorization.k8s.io",
        resource: "subjectaccessreviews",
        expression: "request.resource.group != 'authorization.k8s.io'",
        subject: "reviews of access",
    },
];

impl Exclusion {
    pub(super) fn for_rules(rules: &[Rule]) -> Vec<&'static Self> {
        let exclusions = EXCLUSIONS
            .iter()
            .filter(|exclusion| may_match(rules, exclusion.group, exclusion.resource));
        exclusions.collect()
    }
}

pub(super) fn may_match(rules: &[Rule], group: &str, resource: &str) -> bool {
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
