use std::collections::BTreeMap;

use admittance::{
    admission::{
        GroupVersionKind, GroupVersionResource, Labels, NamespaceSelector, Operation, Request, StaticNamespaces,
    },
    definitions::load_text,
};
use serde_json::{Value, json};

use crate::{block_on, parts};

/// Compares a Kubernetes label selector, which is given as JSON, with the labels of a namespace. Checks that a stage
/// with this selector is called exactly if `is_chosen` returns true.
pub fn selectors(input: &[u8]) {
    let [selector, labels] = parts(input);
    let (Ok(selector), Ok(labels)) = (
        serde_json::from_slice::<Value>(selector),
        serde_json::from_slice::<BTreeMap<String, String>>(labels),
    ) else {
        return;
    };
    let definition = json!({
        "apiVersion": "admittance.dev/v1alpha1", "kind": "AdmissionChain",
        "metadata": { "name": "chain" },
        "spec": {
            "rules": [{ "operations": ["CREATE"], "resources": ["pods"] }],
            "stages": [{
                "name": "stage", "plugin": { "source": "file:/plugin.wasm" }, "namespaceSelector": selector,
            }],
        },
    });
    let Ok(chains) = load_text("chain.json", &definition.to_string()) else {
        return;
    };
    let Some(NamespaceSelector::Labels(chosen)) = &chains[0].stages[0].spec.namespace_selector else {
        return;
    };
    let expected = |labels: &Labels| is_chosen(&selector, labels);
    assert_eq!(chosen.matches(&labels), expected(&labels), "{selector} {labels:?}");
    let resource = GroupVersionResource {
        resource: "pods".to_owned(),
        ..Default::default()
    };
    let mut request = Request::new(Operation::Create, GroupVersionKind::default(), resource);
    request.namespace = Some("prod".to_owned());
    let namespaces = StaticNamespaces::new([("prod".to_owned(), labels.clone())]);
    let matches = block_on(NamespaceSelector::Labels(chosen.clone()).matches(&request, &namespaces));
    let mut all = labels;
    all.entry("kubernetes.io/metadata.name".to_owned())
        .or_insert_with(|| "prod".to_owned());
    assert_eq!(matches.expect("the labels are known"), expected(&all));
}

/// Returns whether the selector matches these labels, independently of the program's code.
fn is_chosen(selector: &Value, labels: &Labels) -> bool {
    let matches_labels = selector["matchLabels"].as_object().is_none_or(|required_labels| {
        required_labels
            .iter()
            .all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
    });
    let is_satisfied = |expression: &Value| {
        let label = labels.get(expression["key"].as_str().unwrap_or_default());
        let is_listed = || {
            let values = expression["values"].as_array();
            values.is_some_and(|values| values.iter().any(|value| value.as_str() == label.map(String::as_str)))
        };
        match expression["operator"].as_str() {
            Some("In") => label.is_some() && is_listed(),
            Some("NotIn") => label.is_none() || !is_listed(),
            Some("Exists") => label.is_some(),
            Some("DoesNotExist") => label.is_none(),
            other => panic!("an operator that is accepted: {other:?}"),
        }
    };
    let expressions = selector["matchExpressions"].as_array();
    matches_labels && expressions.is_none_or(|expressions| expressions.iter().all(is_satisfied))
}
