//! Tests that the same CEL expressions compile here as in kube-apiserver, and that they have the same values.

use std::collections::BTreeMap;

use admittance_admission::{
    Decision, GroupVersionKind, GroupVersionResource, Object, Operation, RefusalCause, Request, RequestRefusal,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{assert_differences, cluster::ConformanceCluster, differences, load_chains, read_lines};

#[derive(Deserialize)]
struct ExpressionCase {
    expression: String,
    /// The recorded result of kube-apiserver. If the expression was only compiled, it is `accepted` or `refused`. If it
    /// was evaluated, it is its value, or null after an error.
    kube: Option<String>,
    why: Option<String>,
}

fn policy_and_binding(name: &str, validation: &Value) -> [Value; 2] {
    let rule = json!({
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        "resourceNames": [name],
    });
    let metadata = json!({"name": name});
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata, "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// Returns the object for which kube-apiserver evaluated the expressions when they were recorded. The label `gen` of
/// this object was `c4` for the expressions that begin with `dyn(object).`, and `c0` for all others. If `is_shown` is
/// true, the label is `c4`.
fn config_map(is_shown: bool) -> Object {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {
            "name": "ev", "namespace": "celns", "creationTimestamp": "2026-11-26T16:11:27Z",
            "uid": "5806d7ca-f0db-4621-bf6d-473f2f59ac15", "labels": {"gen": "c0"},
            "managedFields": [{
                "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "unknown", "operation": "Update",
                "time": "2026-11-26T16:11:27Z",
                "fieldsV1": {"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:labels": {".": {}, "f:gen": {}}}},
            }],
        },
    });
    if is_shown {
        object["metadata"]["labels"]["gen"] = json!("c4");
    }
    Object::from_value(object).unwrap()
}

#[tokio::test]
async fn expressions_compile_and_evaluate_as_in_kube_apiserver() {
    let cases: Vec<ExpressionCase> = read_lines("cel.jsonl");
    let mut different_cases = BTreeMap::new();
    let mut all = Vec::new();
    for (index, ExpressionCase { expression, kube, why }) in cases.iter().enumerate() {
        let (name, test) = (format!("ev-{index}"), format!("[dyn({expression})].size() >= 0"));
        let validation = match why {
            Some(_) => json!({"expression": test}),
            None => json!({
                "expression": "false", "message": "an error",
                "messageExpression": format!("'%s'.format([dyn([dyn({expression})])])"),
            }),
        };
        match (load_chains(&policy_and_binding(&name, &validation)), why) {
            (Ok(chains), None) => all.extend(chains),
            (Err(mistakes), None) => {
                different_cases.insert(
                    expression.clone(),
                    format!("kube-apiserver: {kube:?}; here: {mistakes}"),
                );
            }
            (compiled, Some(why)) if compiled.is_ok() != (kube.as_deref() == Some("accepted")) => {
                let actual = compiled.err().unwrap_or_else(|| "accepted".to_owned());
                different_cases.insert(
                    expression.clone(),
                    format!("kube-apiserver: {kube:?} ({why}); here: {actual}"),
                );
            }
            _ => {}
        }
    }
    let cluster = ConformanceCluster::new(all, Vec::new());
    for (index, ExpressionCase { expression, kube, why }) in cases.iter().enumerate() {
        if why.is_some() || different_cases.contains_key(expression) {
            continue;
        }
        let kind = GroupVersionKind::from_api_version("v1", "ConfigMap");
        let resource = GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "configmaps".to_owned(),
        };
        let mut request = Request::new(Operation::Create, kind, resource);
        request = request.with_object(config_map(expression.starts_with("dyn(object).")));
        request.name = format!("ev-{index}");
        let outcome = cluster.admit(request).await;
        let Decision::Refused(RequestRefusal {
            cause: RefusalCause::Denied(denial),
            ..
        }) = outcome.decision
        else {
            panic!("{expression}: {:?}", outcome.decision);
        };
        let message = denial
            .message
            .split_once("denied request: ")
            .map(|(_, text)| text.to_owned());
        let value = message.filter(|text| text != "an error");
        if value != *kube {
            different_cases.insert(expression.clone(), format!("kube-apiserver: {kube:?}; here: {value:?}"));
        }
    }
    assert_differences("expressions", cases.len(), different_cases, differences::EXPRESSIONS);
}
