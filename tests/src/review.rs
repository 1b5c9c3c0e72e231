use serde_json::{Value, json};

/// Returns the AdmissionReview that kube-apiserver sends when this Pod is created.
pub fn review_of_pod(pod: &Value) -> String {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "772cbc27-1f0e-4642-a259-fca71b720857",
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "web", "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]},
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    review.to_string()
}
