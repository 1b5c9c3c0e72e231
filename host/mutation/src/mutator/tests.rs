use std::time::Duration;

use admittance_admission::{GroupVersionKind, LabelRequirement, NamespaceSelector, Operation, Rule, StaticNamespaces};
use serde_json::json;

use super::*;

fn assign(name: &str, location: &str, value: impl Into<Value>) -> Mutator {
    Mutator::new(
        name,
        FieldLocation::parse(location).unwrap(),
        Mutation::Assign(value.into()),
    )
}

fn with_path_test(mut mutator: Mutator, path: &str, must_exist: bool) -> Mutator {
    mutator
        .add_path_test(&FieldLocation::parse(path).unwrap(), must_exist)
        .unwrap();
    mutator
}

async fn admit(mutators: Vec<Mutator>, object: Value) -> Result<Response, Failure> {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    let mut request = Request::new(Operation::Create, kind, resource);
    request.namespace = Some("shop".to_owned());
    request.object = Object::from_value(object);
    let hook = Mutators::new(mutators, Arc::new(StaticNamespaces::default()));
    hook.admit(&Arc::new(request), Deadline::after(Duration::from_secs(600)))
        .await
}

/// Applies the mutators to the object. Returns the object afterwards, and the names of the mutators that changed it.
async fn admit_and_apply(mutators: Vec<Mutator>, object: Value) -> (Value, String) {
    let response = admit(mutators, object.clone()).await.unwrap();
    let Verdict::Patch(patch) = response.verdict else {
        assert!(matches!(response.verdict, Verdict::Allow), "{response:?}");
        return (object, String::new());
    };
    let after = patch.apply(&Object::from_value(object).unwrap()).unwrap();
    let [(key, names)] = response.audit_annotations.as_slice() else {
        panic!("{:?}", response.audit_annotations)
    };
    assert_eq!(key, "mutators");
    (after.value().clone(), names.clone())
}

/// Source: Gatekeeper 3.x, pkg/mutation/system.go and system_test.go.
#[tokio::test]
async fn mutators_are_applied_until_nothing_changes() {
    let chained = vec![
        with_path_test(assign("a", "spec.b.a", 1), "spec.b", true),
        with_path_test(assign("b", "spec.b.c", 1), "spec.b", false),
    ];
    let (after, names) = admit_and_apply(chained, json!({"spec": {}})).await;
    assert_eq!(after, json!({"spec": {"b": {"c": 1, "a": 1}}}));
    assert_eq!(names, "b, a");

    let disputed = vec![assign("a", "spec.x", 1), assign("b", "spec.x", 2)];
    let (after, _) = admit_and_apply(disputed.clone(), json!({"spec": {}})).await;
    assert_eq!(after, json!({"spec": {"x": 2}}));
    assert_eq!(admit_and_apply(disputed, after.clone()).await, (after, String::new()));

    // This mutator never comes to an end. Its first round replaces `nginx` by `gcr.io/repo`. In the next round,
    // `gcr.io` is the registry of that name, and only `repo` is replaced, which makes `gcr.io/gcr.io/repo`. Each
    // further round makes the name longer.
    let parts = ImageParts {
        path: Some("gcr.io/repo".to_owned()),
        ..ImageParts::default()
    };
    let location = FieldLocation::parse("spec.image").unwrap();
    let growing = Mutator::new("grow", location, Mutation::Image(parts));
    let failure = admit(vec![growing], json!({"spec": {"image": "nginx"}}))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Error);
    assert!(failure.message.contains("after 2 rounds"), "{failure}");
}

/// Source: Gatekeeper 3.x, pkg/mutation/system.go: if one mutator fails, the whole mutation fails.
#[tokio::test]
async fn a_mutator_that_cannot_be_applied_fails_the_hook() {
    let mutators = vec![assign("a", "spec.x", 1), assign("b", "spec.list.y", 2)];
    let failure = admit(mutators, json!({"spec": {"list": []}})).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::PatchFailed);
    let expected = "b cannot be applied: spec.list is a list, where its location expects an object";
    assert_eq!(failure.message, expected);
}

/// Source: Gatekeeper 3.x, pkg/mutation/match/match.go. The conditions of a mutator are checked again in each round.
#[tokio::test]
async fn a_mutator_applies_only_to_requests_and_labels_that_it_selects() {
    let object = json!({"metadata": {"name": "web"}, "spec": {}});
    let on = || LabelSelector::new(vec![LabelRequirement::equals("inject", "on").unwrap()]);
    let mut labelled = assign("a", "spec.a", 1);
    labelled.labels = on();
    let (after, _) = admit_and_apply(vec![labelled.clone()], object.clone()).await;
    assert_eq!(after, object);
    let label = Mutator::new(
        "label",
        FieldLocation::parse("metadata.labels.inject").unwrap(),
        Mutation::Assign("on".into()),
    );
    let (after, names) = admit_and_apply(vec![labelled, label], object.clone()).await;
    let expected = json!({"metadata": {"name": "web", "labels": {"inject": "on"}}, "spec": {"a": 1}});
    assert_eq!((after, names.as_str()), (expected, "label, a"));

    let mut updates = assign("a", "spec.a", 1);
    updates.request_filter.rules = vec![Rule::for_operations([Operation::Update])];
    let mut elsewhere = assign("b", "spec.b", 1);
    elsewhere.request_filter.namespace_selector = Some(NamespaceSelector::Labels(on()));
    let namespace = Mutator::new("c", FieldLocation::parse("spec.c").unwrap(), Mutation::AssignNamespace);
    let (after, names) = admit_and_apply(vec![updates, elsewhere, namespace], object).await;
    let expected = json!({"metadata": {"name": "web"}, "spec": {"c": "shop"}});
    assert_eq!((after, names.as_str()), (expected, "c"));
}

/// Source: Gatekeeper 3.x, pkg/mutation/path/tester/tester_test.go.
#[test]
fn invalid_path_tests_are_refused() {
    let parse_location = |text: &str| FieldLocation::parse(text).unwrap();
    for (tests, expected) in [
        (
            &[
                ("spec.containers[name: foo]", true),
                ("spec.containers[name: foo].image", false),
            ][..],
            None,
        ),
        (&[("spec", true), ("spec", true)], None),
        (
            &[("spec.containers[name: *]", true)],
            Some("spec.containers[name: *] is not the beginning"),
        ),
        (
            &[("spec.containers[name: foo].image.tag", true)],
            Some("is not the beginning"),
        ),
        (
            &[("spec", true), ("spec", false)],
            Some("contradict each other: spec must not exist"),
        ),
        (
            &[("spec.containers[name: foo].image", true), ("spec.containers", false)],
            Some("spec.containers must not exist"),
        ),
    ] {
        let mut mutator = Mutator::new(
            "m",
            parse_location("spec.containers[name: foo].image"),
            Mutation::AssignName,
        );
        let outcome = tests
            .iter()
            .try_for_each(|(path, must_exist)| mutator.add_path_test(&parse_location(path), *must_exist));
        match (outcome, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (outcome, expected) => panic!("{tests:?}: {outcome:?}, and not {expected:?}"),
        }
    }
}

/// A mutator that adds one field to each item can make an object with many items very large, so the size is limited.
#[tokio::test]
async fn the_size_of_a_mutated_object_is_limited() {
    let pod = |items: usize, item: Value| json!({"spec": {"containers": vec![item; items]}});
    let image = "registry.example.com/".to_owned() + &"a".repeat(10_000);
    let policy = || assign("policy", "spec.containers[name: *].imagePullPolicy", "Always");
    let short = || assign("image", "spec.containers[name: *].image", "a");
    for (case, mutators, object, expected) in [
        (
            "a field of many items",
            vec![policy()],
            pod(700_000, json!({})),
            Some(FailureKind::OutputTooLarge),
        ),
        (
            "many lists",
            vec![Mutator::new(
                "args",
                FieldLocation::parse("spec.containers[name: *].args").unwrap(),
                Mutation::Merge(vec!["a".repeat(1_000).into()]),
            )],
            pod(20_000, json!({})),
            Some(FailureKind::OutputTooLarge),
        ),
        (
            "many new items",
            vec![assign(
                "item",
                "spec.containers[name: *].ports[name: http].x",
                "a".repeat(1_000),
            )],
            pod(20_000, json!({})),
            Some(FailureKind::OutputTooLarge),
        ),
        ("a few", vec![policy()], pod(1_000, json!({})), None),
        (
            "smaller ones in place of others",
            vec![short(), policy()],
            pod(1_500, json!({"image": image.as_str()})),
            None,
        ),
    ] {
        let failure = admit(mutators, object).await.err().map(|failure| failure.kind);
        assert_eq!(failure, expected, "{case}");
    }
}
