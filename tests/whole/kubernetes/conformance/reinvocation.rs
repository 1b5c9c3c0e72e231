//! Tests webhooks that are called a second time, because a later webhook has changed the object.

use serde_json::{Value, json};

use super::assert_rows;
use crate::kubernetes::{
    hooks::{HookAnswer, Hooks, configuration},
    server::{POD, Server},
};

/// (case of the list, webhooks, number of calls of each webhook, resulting labels). For each webhook: (label that it
/// sets, fields of its configuration).
type ReinvocationRow = (&'static str, Vec<(&'static str, Value)>, Vec<usize>, Value);

fn rows() -> Vec<ReinvocationRow> {
    let with = |policy: &str| json!({"reinvocationPolicy": policy});
    let if_needed = || with("IfNeeded");
    let selected = json!({
        "reinvocationPolicy": "IfNeeded", "objectSelector": {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    });
    vec![
        ("C12.2", vec![("a=1", if_needed())], vec![1], json!({"a": "1"})),
        (
            "C12.4",
            vec![("a=1", if_needed()), ("b=1", if_needed())],
            vec![2, 1],
            json!({"a": "1", "b": "1"}),
        ),
        (
            "C12.5",
            vec![("x=1", if_needed()), ("x=2", if_needed())],
            vec![2, 2],
            json!({"x": "2"}),
        ),
        (
            "C12.6",
            vec![("a=1", selected), ("b=1", if_needed())],
            vec![0, 1],
            json!({"b": "1"}),
        ),
        (
            "C12.8",
            vec![("a=1", with("Never")), ("b=1", if_needed())],
            vec![1, 1],
            json!({"a": "1", "b": "1"}),
        ),
        (
            "C12.9",
            vec![("a=1", json!({})), ("b=1", if_needed())],
            vec![1, 1],
            json!({"a": "1", "b": "1"}),
        ),
    ]
}

/// Each case is tested twice: with all webhooks in one configuration, and with each webhook in a configuration of its
/// own. The expected result is the same.
#[tokio::test]
async fn a_webhook_is_reinvoked_after_later_changes() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |call, _| async move {
        let label = call.path.rsplit('/').next().unwrap();
        let (name, value) = label.split_once('-').unwrap();
        HookAnswer::add_label(name, value)
    })
    .await;
    let rows = rows();
    let mut documents = String::new();
    for (row, webhooks, ..) in &rows {
        let row = row.to_lowercase();
        for layout in ["one", "several"] {
            let group = format!("{layout}.{row}.example");
            let mut group_webhooks = Vec::new();
            for (index, (label, with)) in webhooks.iter().enumerate() {
                let path = format!("/{row}/{layout}/{index}/{}", label.replace('=', "-"));
                let mut with = with.clone();
                with["rules"] = json!([{
                    "operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": ["*"],
                }]);
                group_webhooks.push(hooks.webhook(&format!("w{index}"), &path, &with));
            }
            if layout == "one" {
                documents += &configuration("Mutating", &group, &group_webhooks);
            } else {
                for (index, webhook) in group_webhooks.iter().enumerate() {
                    documents += &configuration("Mutating", &format!("{index}.{group}"), std::slice::from_ref(webhook));
                }
            }
        }
    }
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for (row, webhooks, expected, labels) in &rows {
        for layout in ["one", "several"] {
            let resource = format!("{layout}.{}.example/v1/things", row.to_lowercase());
            let reviewed = crate::kubernetes::server::ReviewedResource {
                resource: &resource,
                ..POD
            };
            let review = reviewed.review(row);
            let verdict = server.review("/mutate", &review).await;
            assert!(verdict.is_allowed(), "{row} {layout}: {verdict:?}");
            let call_count = |index: usize| hooks.calls(&format!("/{}/{layout}/{index}/", row.to_lowercase())).len();
            let calls: Vec<_> = (0..webhooks.len()).map(call_count).collect();
            assert_eq!(&calls, expected, "{row} {layout}");
            let mut labels = labels.clone();
            labels["remove"] = json!("me");
            let object = verdict.patched_object(&review["request"]["object"]);
            assert_eq!(object["metadata"]["labels"], labels, "{row} {layout}");
        }
    }
    assert_rows("C12", rows.iter().map(|(name, ..)| *name));
}
