//! The selectors that decide whether a stage is called.

use admittance_admission::{Precedence, SkipReason};

use super::*;

#[tokio::test]
async fn a_stage_is_called_if_its_selectors_match() {
    let on_label = |key: &str| LabelSelector::new(vec![LabelRequirement::equals(key, "yes").unwrap()]);
    let not_in = LabelSelector::new(vec![
        LabelRequirement::new("inject", admittance_admission::LabelOperator::DoesNotExist, vec![]).unwrap(),
    ]);
    let object = |text: &str| Object::parse(text).unwrap();
    let labelled = || Some(object(r#"{"metadata":{"labels":{"inject":"yes"}}}"#));
    let bare = || Some(object(r#"{"metadata":{}}"#));
    // (case, object selector, object, old object, whether the stage is called), as in kube-apiserver's predicate.
    let table = [
        ("empty selector, no object", LabelSelector::default(), None, None, true),
        (
            "empty selector, no metadata",
            LabelSelector::default(),
            Some(object("{}")),
            None,
            true,
        ),
        ("the new object", on_label("inject"), labelled(), None, true),
        ("the old object", on_label("inject"), bare(), labelled(), true),
        ("the old object alone", on_label("inject"), None, labelled(), true),
        ("neither", on_label("inject"), bare(), bare(), false),
        ("no object", on_label("inject"), None, None, false),
        ("DoesNotExist, without the label", not_in.clone(), bare(), None, true),
        ("DoesNotExist, with it", not_in.clone(), labelled(), None, false),
        (
            "DoesNotExist, without metadata",
            not_in.clone(),
            Some(object("{}")),
            None,
            false,
        ),
        ("DoesNotExist, no object", not_in, None, None, false),
    ];
    for (case, selector, new, old, called) in table {
        let mut stage = Stage::new("stage", Script::Allow);
        stage.spec.object_selector = selector;
        let mut request = request(Operation::Update);
        (request.object, request.old_object) = (new, old);
        let outcome = run(vec![stage], request, Duration::from_secs(1)).await;
        let word = if called { "allow" } else { "skipped" };
        assert_eq!(outcome.trace[0].result.as_str(), word, "{case}");
    }
    // The first stage removes the label `inject`. The second stage selects only objects with this label, so it is not
    // called, as in kube-apiserver.
    let removes = Script::Patch(json!([{"op": "remove", "path": "/metadata/labels/inject"}]));
    let mut second = Stage::new("second", Script::Deny("no"));
    second.spec.object_selector = on_label("inject");
    let outcome = run(
        vec![Stage::new("first", removes), second],
        request(Operation::Create),
        Duration::from_secs(1),
    )
    .await;
    assert_eq!(outcome.trace[1].result.as_str(), "skipped");
    assert!(outcome.is_allowed());
}

struct NoNamespaces;

#[async_trait]
impl NamespaceSource for NoNamespaces {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        Err(NamespaceLookupError(format!("namespace {namespace} not found")))
    }
}

#[tokio::test]
async fn a_stage_fails_if_the_labels_of_the_namespace_cannot_be_read() {
    let by_label = NamespaceSelector::Labels(LabelSelector::new(vec![LabelRequirement::equals("a", "b").unwrap()]));
    for policy in FailurePolicy::ALL {
        let mut stage = enforced_stage(Script::Allow, policy);
        stage.spec.namespace_selector = Some(by_label.clone());
        let mut evaluation = Evaluation::new(request(Operation::Create), Deadline::after(Duration::from_secs(1)));
        evaluation.run(&[&chain(vec![stage])], sources(&NoNamespaces)).await;
        let outcome = evaluation.outcome();
        let StageResult::Failed { failure, .. } = &outcome.trace[0].result else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            failure,
            &Failure::new(FailureKind::NamespaceUnknown, "namespace prod not found")
        );
        assert_eq!(outcome.is_allowed(), policy == FailurePolicy::Ignore);
    }
}

#[tokio::test]
async fn a_stage_yields_to_a_stage_that_takes_precedence() {
    let label = |key: &str, value: &str| LabelSelector::new(vec![LabelRequirement::equals(key, value).unwrap()]);
    let by_name = |name: &str| Some(NamespaceSelector::In(vec![name.to_owned()]));
    let by_label = |name: &str| Some(NamespaceSelector::Labels(label("kubernetes.io/metadata.name", name)));
    // In each row, a stage with these two selectors takes precedence over a second stage.
    // (namespace selector, object selector, whether the second stage is called)
    // The request is for a Pod in `prod` with the label `inject: yes`.
    for (namespaces, objects, called) in [
        (None, label("inject", "yes"), false),
        (None, label("inject", "no"), true),
        (by_name("prod"), label("inject", "yes"), false),
        (by_name("test"), label("inject", "yes"), true),
        (by_name("prod"), label("inject", "no"), true),
        (by_label("prod"), label("inject", "yes"), false),
        (by_label("test"), label("inject", "yes"), true),
    ] {
        let other = Precedence {
            chain: "other".into(),
            namespaces,
            objects,
        };
        let mut stage = Stage::new("stage", Script::Allow);
        stage.spec.yields_to = vec![Arc::new(other.clone())];
        let outcome = run(vec![stage], request(Operation::Create), Duration::from_secs(1)).await;
        let result = &outcome.trace[0].result;
        let is_skipped = *result == StageResult::Skipped(SkipReason::Precedence);
        assert_eq!(is_skipped, !called, "{other:?}: {result:?}");
    }
}
