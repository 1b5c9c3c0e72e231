use super::*;
use crate::GroupVersionKind;

fn request(operation: Operation, group: &str, version: &str, resource: &str, namespace: Option<&str>) -> Request {
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

fn matcher_of(values: &[&str]) -> Matcher<String> {
    match values {
        ["*"] => Matcher::Any,
        values => Matcher::Only(values.iter().map(|value| (*value).to_owned()).collect()),
    }
}

#[test]
fn a_rule_matches_by_group_version_and_operation() {
    use Operation::*;
    // (rule's groups, rule's versions, rule's operations, request's group, request's version, request's operation,
    // whether the rule matches), as in kube-apiserver.
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
            api_groups: matcher_of(groups),
            api_versions: matcher_of(versions),
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
fn an_equivalent_rule_matches_other_versions_of_a_resource() {
    // (rule's group and version, request's resource, whether `Exact` matches, whether `Equivalent` matches)
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
        for (match_policy, expected) in [(MatchPolicy::Exact, exact), (MatchPolicy::Equivalent, equivalent)] {
            let rule = Rule {
                api_groups: matcher_of(&[group]),
                api_versions: matcher_of(&[version]),
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
fn the_first_part_of_a_rule_that_does_not_match_is_reported() {
    let rule = Rule {
        api_groups: matcher_of(&["apps"]),
        resources: vec![ResourcePattern::parse("deployments").unwrap()],
        scope: Scope::Namespaced,
        kinds: matcher_of(&["Pod"]),
        ..Rule::for_operations([Operation::Create])
    };
    for (operation, group, resource, namespace, expected) in [
        (Operation::Delete, "", "pods", None, Some(RulePart::Operations)),
        (Operation::Create, "", "pods", None, Some(RulePart::GroupAndVersion)),
        (Operation::Create, "apps", "pods", None, Some(RulePart::Resources)),
        (Operation::Create, "apps", "deployments", None, Some(RulePart::Scope)),
        (Operation::Create, "apps", "deployments", Some("a"), None),
    ] {
        let request = request(operation, group, "v1", resource, namespace);
        assert_eq!(rule.mismatch(&request), expected, "{operation} {group}/{resource}");
    }
    let other = Rule {
        kinds: matcher_of(&["Node"]),
        ..rule
    };
    let pods = request(Operation::Create, "apps", "v1", "deployments", Some("a"));
    assert_eq!(other.mismatch(&pods), Some(RulePart::Kinds));
}

#[test]
fn an_exact_rule_matches_only_the_clients_version() {
    let rule = |version: &str| Rule {
        api_groups: matcher_of(&["apps"]),
        api_versions: matcher_of(&[version]),
        match_policy: MatchPolicy::Exact,
        ..Rule::for_operations([Operation::Create])
    };
    let mut converted = request(Operation::Create, "apps", "v1", "deployments", Some("ns"));
    converted.requested_kind = Some(Box::new(crate::RequestedKind {
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
fn a_rule_matches_by_resource_and_subresource() {
    // (the rule's entries, requested resource, whether the rule matches), as in kube-apiserver's rules predicate.
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
        let texts: Vec<_> = rule.resources.iter().map(ToString::to_string).collect();
        assert_eq!(texts, entries);
    }
    for wrong in ["", "/", "/status", "pods/"] {
        assert!(ResourcePattern::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_rule_matches_by_scope() {
    // (group, resource, namespace, whether the scope `Cluster` matches, whether the scope `Namespaced` matches)
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
fn a_rule_matches_kinds_in_any_letter_case() {
    let rule = Rule {
        kinds: matcher_of(&["pod"]),
        ..Rule::for_operations([Operation::Create])
    };
    assert!(rule.matches(&request(Operation::Create, "", "v1", "pods", None)));
    let rule = Rule {
        kinds: matcher_of(&["pods"]),
        ..rule
    };
    assert!(!rule.matches(&request(Operation::Create, "", "v1", "pods", None)));
}

#[test]
fn the_outline_of_a_request_excludes_only_rules_that_cannot_match() {
    let rule = Rule {
        resources: vec![ResourcePattern::parse("pods/status").unwrap()],
        kinds: matcher_of(&["pod"]),
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
