//! The effects of verdicts on the object.

use super::*;

#[tokio::test]
async fn the_result_of_a_verdict_must_satisfy_the_rules_for_incoming_objects() {
    use Script::{Patch, Replace};
    let with = |change: fn(&mut Value)| {
        let mut pod = pod();
        change(&mut pod);
        Replace(pod)
    };
    let raw = |text: &str| Script::Raw(text.to_owned());
    let cases: Vec<(&str, Script, Option<FailureKind>)> = vec![
        (
            "another metadata",
            add("/Metadata", json!({"name": "x"})),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "another kind",
            add("/KIND", json!("Job")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "another name",
            add("/metadata/Name", json!("x")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "Kelvin sign",
            add("/\u{212a}ind", json!("Job")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "inside a value",
            add(
                "/metadata",
                json!({"name": "web", "NAME": "x", "namespace": "prod", "uid": "1"}),
            ),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "a key twice in a value",
            raw(r#"[{"op":"add","path":"/spec","value":{"a":1,"a":2}}]"#),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "moved to where it counts",
            Patch(json!([
                {"op": "add", "path": "/spec/m", "value": {"Name": "x", "name": "web", "namespace": "prod", "uid": "1"}},
                {"op": "move", "from": "/spec/m", "path": "/metadata"},
            ])),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "copied to where it counts",
            Patch(json!([
                {"op": "add", "path": "/spec/m", "value": {"NAME": "x"}},
                {"op": "copy", "from": "/spec/m", "path": "/Metadata"},
            ])),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "another spelling alone is another name",
            with(|pod| {
                let name = json!("other");
                let metadata = pod["metadata"].as_object_mut().unwrap();
                metadata.remove("name");
                metadata.insert("Name".to_owned(), name);
            }),
            Some(FailureKind::IdentityChanged),
        ),
        (
            "two spellings in a replacement",
            with(|pod| pod["Kind"] = json!("Job")),
            Some(FailureKind::InvalidResponse),
        ),
        (
            "elsewhere keys are the object's own",
            add("/spec/Name", json!("x")),
            None,
        ),
        (
            "labels are the user's",
            add("/metadata/labels/Inject", json!("x")),
            None,
        ),
        (
            "respelled throughout, the same object",
            with(|pod| {
                let kind = pod.as_object_mut().unwrap().remove("kind").unwrap();
                pod["Kind"] = kind;
                pod["spec"]["b"] = json!(1);
            }),
            None,
        ),
    ];
    for (case, script, expected) in cases {
        for mode in Mode::ALL {
            let mut stage = Stage::new("stage", script.clone());
            stage.spec.mode = mode;
            let outcome = run(vec![stage], request(Operation::Create), Duration::from_secs(10)).await;
            let kind = match &outcome.trace[0].result {
                StageResult::Failed { failure, .. } => Some(failure.kind),
                _ => None,
            };
            assert_eq!(kind, expected, "{case}: {outcome:?}");
            // `summary` also checks the patch: applied to the original object, it must give the object of the outcome.
            summary(&outcome);
            let object = outcome.object.unwrap();
            assert_eq!(
                (&object.value()["kind"], object.value().get("Kind")),
                (&json!("Pod"), None),
                "{case}"
            );
        }
    }
}

/// kube-apiserver generates a name from `generateName` only if no webhook has set one.
#[tokio::test]
async fn a_verdict_may_set_a_name_that_would_be_generated() {
    for (metadata, script, is_allowed) in [
        (
            json!({"generateName": "web-"}),
            add("/metadata/name", json!("web-1")),
            true,
        ),
        (
            json!({"generateName": "web-", "name": ""}),
            add("/metadata/name", json!("web-1")),
            true,
        ),
        (json!({"generateName": "web-"}), add("/metadata/name", json!(1)), false),
        (
            json!({"generateName": "web-"}),
            add("/metadata/namespace", json!("x")),
            false,
        ),
        (
            json!({"generateName": "web-", "name": "a"}),
            add("/metadata/name", json!("b")),
            false,
        ),
        (json!({"generateName": ""}), add("/metadata/name", json!("b")), false),
        (json!({}), add("/metadata/name", json!("b")), false),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        let mut request = request(Operation::Create);
        request.object = Object::from_value(object.clone());
        let outcome = run(vec![Stage::new("stage", script)], request, Duration::from_secs(1)).await;
        assert_eq!(outcome.is_allowed(), is_allowed, "{object}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_change_by_a_verdict_fails_if_the_request_has_no_object() {
    let mut deletion = request(Operation::Delete);
    deletion.old_object = deletion.object.take();
    let outcome = run(
        vec![Stage::new("stage", add("/metadata/labels/a", json!("x")))],
        deletion,
        Duration::from_secs(1),
    )
    .await;
    let Decision::Refused(refusal) = outcome.decision else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        refusal.to_string(),
        "stage stage of chain chain failed (patch-failed): the verdict changes the object, but a DELETE \
         request has none"
    );
    assert_eq!(refusal.code(), 500);
}

#[tokio::test]
async fn the_front_end_chooses_the_identity_fields() {
    let mut request = request(Operation::Create);
    request.identity = IdentityFields::new(["/spec/list/0".parse().unwrap()]);
    let renamed = enforced_stage(add("/metadata/name", json!("other")), FailurePolicy::Fail);
    let moved = enforced_stage(
        Script::Patch(json!([{"op": "replace", "path": "/spec/list/0", "value": 2}])),
        FailurePolicy::Fail,
    );
    let outcome = run(vec![renamed, moved], request, Duration::from_secs(1)).await;
    assert_eq!(outcome.trace[0].result.as_str(), "patch");
    assert!(
        matches!(outcome.decision, Decision::Refused(RequestRefusal { cause: RefusalCause::Failed(ref failure), .. }) if failure.kind == FailureKind::IdentityChanged)
    );
}
