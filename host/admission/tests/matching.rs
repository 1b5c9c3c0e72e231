//! Rules, namespace selectors and object selectors. The cases are from kube-apiserver's tests, and have the same names
//! as in `tests/whole/kubernetes/conformance/list.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Chain, Deadline, Evaluation, EvaluationSources, Failure, GroupVersionKind, GroupVersionResource, Hook,
    LabelOperator, LabelRequirement, LabelSelector, Labels, MatchPolicy, Matcher, NamespaceSelector, NamespaceSource,
    NoAuthorizer, Object, Operation, Request, ResourcePattern, Response, Rule, Scope, Stage, StaticNamespaces,
    async_trait,
};
use serde_json::{Value, json};

/// Creates a request. `resource` has the form `group/version/resource` or `group/version/resource/subresource`.
fn request(operation: Operation, resource: &str, namespace: Option<&str>) -> Request {
    let mut parts = resource.split('/').map(str::to_owned);
    let mut part = || parts.next().unwrap();
    let resource = GroupVersionResource {
        group: part(),
        version: part(),
        resource: part(),
    };
    let mut request = Request::new(operation, GroupVersionKind::default(), resource);
    request.subresource = parts.next();
    request.namespace = namespace.map(str::to_owned);
    request.name = "name".into();
    request
}

fn any_rule() -> Rule {
    Rule {
        match_policy: MatchPolicy::Exact,
        ..Rule::for_operations(Operation::ALL)
    }
}

fn text_matcher(texts: &[&str]) -> Matcher<String> {
    Matcher::Only(texts.iter().map(|text| (*text).to_owned()).collect())
}

fn resource_rule(patterns: &[&str]) -> Rule {
    let patterns = patterns.iter().map(|text| ResourcePattern::parse(text).unwrap());
    Rule {
        resources: patterns.collect(),
        ..any_rule()
    }
}

/// (request, whether the rule of the test matches it)
type RuleCase = (Request, bool);

#[test]
fn a_rule_matches_like_kube_apiserver() {
    use Operation::*;
    let rule_case = |resource, matches| (request(Create, resource, Some("ns")), matches);
    let operations = |operations: &[Operation], expected: [bool; 4]| {
        let rule = Rule {
            operations: Matcher::Only(operations.to_vec()),
            ..any_rule()
        };
        let cases = [Create, Update, Delete, Connect]
            .into_iter()
            .zip(expected)
            .map(|(operation, matches)| (request(operation, "g/v/r", None), matches));
        (rule, cases.collect::<Vec<RuleCase>>())
    };
    let group = |matcher| Rule {
        api_groups: matcher,
        ..any_rule()
    };
    let version = |matcher| Rule {
        api_versions: matcher,
        ..any_rule()
    };
    let scopes = |scope, expected: fn(bool) -> bool| {
        let cases = [
            ("g/v/r", None, true),
            ("g/v/r/exec", None, true),
            ("/v1/namespaces", None, true),
            ("/v1/namespaces", Some("ns"), true),
            ("/v1/namespaces/finalize", None, true),
            ("/v1/namespaces/finalize", Some("ns"), true),
            ("g/v/namespaces", Some("ns"), false),
            ("g/v/r", Some("ns"), false),
            ("g/v/r/exec", Some("ns"), false),
        ]
        .map(|(resource, namespace, is_cluster_wide)| {
            (request(Create, resource, namespace), expected(is_cluster_wide))
        });
        (Rule { scope, ..any_rule() }, cases.to_vec())
    };
    let with_cases = |rule: Rule, cases: &[RuleCase]| (rule, cases.to_vec());
    let table: Vec<(&str, (Rule, Vec<RuleCase>))> = vec![
        (
            "C7.1",
            with_cases(
                group(Matcher::Any),
                &[rule_case("g/v/r", true), rule_case("/v/r", true)],
            ),
        ),
        (
            "C7.2",
            with_cases(
                group(text_matcher(&["g1", "g2"])),
                &[
                    rule_case("g1/v/r", true),
                    rule_case("g2/v/r", true),
                    rule_case("g3/v/r", false),
                ],
            ),
        ),
        (
            "C7.3",
            with_cases(
                version(Matcher::Any),
                &[rule_case("g/v/r", true), rule_case("g/v2/r", true)],
            ),
        ),
        (
            "C7.4",
            with_cases(
                version(text_matcher(&["v1", "v2"])),
                &[
                    rule_case("g/v1/r", true),
                    rule_case("g/v2/r", true),
                    rule_case("g/v3/r", false),
                ],
            ),
        ),
        ("C7.5", {
            let (_, cases) = operations(&[], [true; 4]);
            (
                Rule {
                    operations: Matcher::Any,
                    ..any_rule()
                },
                cases,
            )
        }),
        ("C7.6", operations(&[Create], [true, false, false, false])),
        ("C7.7", operations(&[Update], [false, true, false, false])),
        ("C7.8", operations(&[Delete], [false, false, true, false])),
        ("C7.9", operations(&[Connect], [false, false, false, true])),
        ("C7.10", operations(&[Update, Delete], [false, true, true, false])),
        (
            "C7.11",
            with_cases(
                resource_rule(&["*"]),
                &[
                    rule_case("g/v/r", true),
                    rule_case("g/v/r2", true),
                    rule_case("g/v/r/exec", false),
                ],
            ),
        ),
        (
            "C7.12",
            with_cases(
                resource_rule(&["r/*"]),
                &[
                    rule_case("g/v/r", true),
                    rule_case("g/v/r/exec", true),
                    rule_case("g/v/r2", false),
                    rule_case("g/v/r2/exec", false),
                ],
            ),
        ),
        (
            "C7.13",
            with_cases(
                resource_rule(&["r/*", "r2"]),
                &[
                    rule_case("g/v/r", true),
                    rule_case("g/v/r/exec", true),
                    rule_case("g/v/r2", true),
                    rule_case("g/v/r2/proxy", false),
                ],
            ),
        ),
        (
            "C7.14",
            with_cases(
                resource_rule(&["*/proxy", "*/exec"]),
                &[
                    rule_case("g/v/r/exec", true),
                    rule_case("g/v/r2/proxy", true),
                    rule_case("g/v/r", false),
                    rule_case("g/v/r2/portforward", false),
                ],
            ),
        ),
        ("C7.15", scopes(Scope::Cluster, |is_cluster_wide| is_cluster_wide)),
        ("C7.16", scopes(Scope::Namespaced, |is_cluster_wide| !is_cluster_wide)),
        ("C7.17", scopes(Scope::Any, |_| true)),
    ];
    for (row, (rule, cases)) in table {
        for (request, expected) in cases {
            let case = format!(
                "{row}: {} {}/{:?} in {:?}",
                request.operation, request.resource, request.subresource, request.namespace
            );
            assert_eq!(rule.matches(&request), expected, "{case}");
        }
    }
}

fn labelled_object(labels: &Value) -> Option<Object> {
    Object::parse(json!({"metadata": {"labels": labels}}).to_string()).ok()
}

struct ExpectedLookups(StaticNamespaces, &'static [&'static str]);

#[async_trait]
impl NamespaceSource for ExpectedLookups {
    async fn labels(&self, namespace: &str) -> Result<Labels, admittance_admission::NamespaceLookupError> {
        assert!(self.1.contains(&namespace), "{namespace} need not be looked up");
        self.0.labels(namespace).await
    }
}

#[tokio::test]
async fn a_namespace_selector_compares_the_same_labels_as_kube_apiserver() {
    use Operation::*;
    let stored = || Labels::from([("which".to_owned(), "stored".to_owned())]);
    let source = |looked_up| {
        ExpectedLookups(
            StaticNamespaces::new([("ns".to_owned(), stored()), ("new".to_owned(), stored())]),
            looked_up,
        )
    };
    let own_labels = json!({"which": "own"});
    let old_labels = json!({"which": "old"});
    // (row, request, object, old object, namespaces that are looked up, label)
    // The selector is compared with labels in which `which` has the value in the last column. If this column is `None`,
    // every value matches.
    let table = [
        (
            "C8.1",
            request(Create, "/v1/namespaces", Some("new")),
            labelled_object(&own_labels),
            None,
            &[][..],
            Some("own"),
        ),
        (
            "C8.2",
            request(Update, "/v1/namespaces", Some("ns")),
            labelled_object(&own_labels),
            labelled_object(&old_labels),
            &[],
            Some("own"),
        ),
        (
            "C8.3",
            request(Delete, "/v1/namespaces", Some("ns")),
            None,
            labelled_object(&old_labels),
            &["ns"],
            Some("stored"),
        ),
        (
            "C8.4",
            request(Create, "/v1/namespaces/finalizers", Some("ns")),
            labelled_object(&own_labels),
            None,
            &["ns"],
            Some("stored"),
        ),
        (
            "C8.5",
            request(Create, "/v1/pods", Some("ns")),
            labelled_object(&own_labels),
            None,
            &["ns"],
            Some("stored"),
        ),
        (
            "C8.6",
            request(Create, "/v1/nodes", None),
            labelled_object(&own_labels),
            None,
            &[],
            None,
        ),
    ];
    for (row, mut request, object, old_object, looked_up, counts) in table {
        (request.object, request.old_object) = (object, old_object);
        let namespaces = source(looked_up);
        for which in ["own", "old", "stored"] {
            let selector = LabelSelector::new(vec![LabelRequirement::equals("which", which).unwrap()]);
            let matches = NamespaceSelector::Labels(selector).matches(&request, &namespaces).await;
            let expected = counts.is_none_or(|counts| counts == which);
            assert_eq!(matches, Ok(expected), "{row}: {which}");
        }
    }
}

struct AllowingHook;

#[async_trait]
impl Hook for AllowingHook {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        Ok(Response::allow())
    }
}

#[tokio::test]
async fn an_object_selector_matches_the_object_or_the_old_object() {
    use Operation::*;
    let not_in = || {
        let values = vec!["value".to_owned()];
        LabelSelector::new(vec![
            LabelRequirement::new("label", LabelOperator::NotIn, values).unwrap(),
        ])
    };
    let everything = LabelSelector::default;
    let none = json!({});
    let other = json!({"label": "other"});
    let value = json!({"label": "value"});
    let bare = || Object::parse("{\"kind\":\"PodExecOptions\"}").ok();
    // (row, object selector, operation, object, old object, whether the stage is called)
    let table = [
        ("C9.1", everything(), Create, labelled_object(&value), None, true),
        ("C9.2", everything(), Delete, None, None, true),
        ("C9.3", everything(), Connect, bare(), None, true),
        ("C9.4", not_in(), Create, labelled_object(&none), None, true),
        ("C9.4", not_in(), Create, labelled_object(&other), None, true),
        (
            "C9.4",
            not_in(),
            Update,
            labelled_object(&other),
            labelled_object(&value),
            true,
        ),
        ("C9.5", not_in(), Delete, None, labelled_object(&none), true),
        (
            "C9.5",
            not_in(),
            Update,
            labelled_object(&value),
            labelled_object(&none),
            true,
        ),
        ("C9.6", not_in(), Create, labelled_object(&value), None, false),
        ("C9.7", not_in(), Delete, None, labelled_object(&value), false),
        ("C9.8", not_in(), Connect, bare(), None, false),
    ];
    for (row, selector, operation, object, old_object, is_called) in table {
        let mut request = request(operation, "/v1/pods", Some("ns"));
        (request.object, request.old_object) = (object, old_object);
        let mut stage = Stage::new("stage", AllowingHook);
        stage.spec.object_selector = selector;
        let chain = Chain::new("chain", vec![any_rule()], vec![stage]);
        let mut evaluation = Evaluation::new(request, Deadline::after(Duration::from_secs(60)));
        let sources = EvaluationSources {
            namespaces: &StaticNamespaces::default(),
            authorizer: &NoAuthorizer,
        };
        evaluation.run(&[&chain], sources).await;
        let outcome = evaluation.outcome();
        let words: Vec<_> = outcome.trace.iter().map(|row| row.result.as_str()).collect();
        assert_eq!(words, [if is_called { "allow" } else { "skipped" }], "{row}");
    }
}
