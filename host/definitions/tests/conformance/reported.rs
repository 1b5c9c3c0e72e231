//! Tests policies and requests from bug reports. The expected results are those of kube-apiserver.

use std::fs;

use admittance_admission::{GroupVersionKind, Object, Operation, Outcome, Request};
use admittance_definitions::load;
use serde_json::{Value, json};

use crate::{cluster::ConformanceCluster, data_path};

/// Loads the policy of a bug report, and calls it for the request of the same report. Both are in the directory `name`.
async fn replay(name: &str) -> Outcome {
    let directory = data_path("reported").join(name);
    let chains = load(&[directory.join("policy.yaml")]).unwrap_or_else(|mistakes| panic!("{name}: {mistakes}"));
    let review = fs::read_to_string(directory.join("review.json")).unwrap();
    let review: Value = serde_json::from_str(&review).unwrap();
    let review_request = &review["request"];
    let kind = GroupVersionKind::from_api_version("apps/v1", review_request["kind"]["kind"].as_str().unwrap());
    let resource = kind.guess_resource();
    let object = Object::from_value(review_request["object"].clone()).unwrap();
    let request = Request::new(Operation::Create, kind, resource).with_object(object);
    let objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}})];
    ConformanceCluster::new(chains, objects).admit(request).await
}

#[tokio::test]
async fn mutations_from_bug_reports_have_the_result_of_kube_apiserver() {
    // (directory of the bug report, JSON Pointer, value at the pointer in the mutated object)
    for (name, pointer, expected) in [
        (
            "map-apply-dup-env-touched",
            "/spec/template/spec/containers/0/env",
            json!([{"name": "t", "value": "c"}, {"name": "u", "value": "z"}]),
        ),
        (
            "map-fields-of-patch",
            "/metadata/labels",
            json!({"a": "xx", "b": "false", "c": "false"}),
        ),
        ("map-replace-missing-key", "/metadata/labels/tier", json!("gold")),
        ("map-test-false-skips", "/spec/replicas", json!(1)),
    ] {
        let outcome = replay(name).await;
        assert!(outcome.is_allowed(), "{name}: {:?}", outcome.decision);
        let object = outcome.object.unwrap();
        assert_eq!(object.value().pointer(pointer), Some(&expected), "{name}");
    }
}

#[tokio::test]
async fn a_mutation_of_an_unknown_field_is_refused() {
    let outcome = replay("map-apply-unknown-field").await;
    let refused = format!("{:?}", outcome.decision);
    assert!(
        refused.contains(".spec.replicaz: field not declared in schema"),
        "{refused}"
    );
}

#[tokio::test]
async fn or_value_accepts_a_value_that_is_not_optional_in_cel() {
    let chains = load(&[data_path("reported/cel-orvalue-plain.yaml")]).unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    let request = Request::from_objects(Object::from_value(pod), None, None, None, None).unwrap();
    let outcome = ConformanceCluster::new(chains, Vec::new()).admit(request).await;
    assert!(outcome.is_allowed(), "{:?}", outcome.decision);
}
