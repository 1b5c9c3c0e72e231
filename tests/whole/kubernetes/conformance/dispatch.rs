//! Checks which rules match a request, and in which version the webhook gets the object.

use serde_json::{Value, json};

use super::assert_rows;
use crate::kubernetes::{
    hooks::{HookAnswer, Hooks, configuration, match_all_rule, rule},
    server::{POD, ReviewedResource, Server},
};

const DEPLOYMENT: ReviewedResource<'static> = ReviewedResource {
    resource: "apps/v1/deployments",
    kind: "Deployment",
    ..POD
};

const SCALE: ReviewedResource<'static> = ReviewedResource {
    resource: "apps/v1/deployments/scale",
    kind: "Scale",
    ..POD
};

/// (case of the list, API version of the configuration, matchPolicy, rules, request, whether the webhook is called)
type DispatchRow = (
    &'static str,
    &'static str,
    Option<&'static str>,
    Vec<Value>,
    ReviewedResource<'static>,
    bool,
);

fn rows() -> Vec<DispatchRow> {
    let rule_for = |group: &str, version: &str, resource: &str| rule(&["*"], &[group], &[version], &[resource]);
    let extensions = |resource: &str| rule_for("extensions", "v1beta1", resource);
    let apps = |resource: &str| rule_for("apps", "v1beta1", resource);
    let exact = |resource: &str| rule_for("apps", "v1", resource);
    const EQUIVALENT: Option<&str> = Some("Equivalent");
    let mut rows: Vec<DispatchRow> = vec![
        ("C11.1", "v1", EQUIVALENT, vec![], DEPLOYMENT, false),
        ("C11.3", "v1", EQUIVALENT, vec![match_all_rule()], DEPLOYMENT, true),
        (
            "C11.4",
            "v1",
            EQUIVALENT,
            vec![extensions("deployments"), apps("deployments"), exact("deployments")],
            DEPLOYMENT,
            true,
        ),
    ];
    for (names, reviewed, resource) in [
        (["C11.5", "C11.6", "C11.7", "C11.8"], DEPLOYMENT, "deployments"),
        (["C11.9", "C11.10", "C11.11", "C11.12"], SCALE, "deployments/scale"),
    ] {
        let [default, exact, extensions_first, apps_first] = names;
        let (extensions, apps) = (extensions(resource), apps(resource));
        let both = vec![extensions.clone(), apps.clone()];
        rows.push((default, "v1beta1", None, both.clone(), reviewed, false));
        rows.push((exact, "v1", Some("Exact"), both.clone(), reviewed, false));
        rows.push((extensions_first, "v1", EQUIVALENT, both, reviewed, true));
        rows.push((apps_first, "v1", EQUIVALENT, vec![apps, extensions], reviewed, true));
    }
    rows
}

#[tokio::test]
async fn webhooks_are_selected_by_rules_without_converting_objects() {
    let rows = rows();
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let mut documents = String::new();
    for (name, version, match_policy, rules, ..) in &rows {
        let name = name.to_lowercase();
        let mut with = json!({"rules": rules});
        if let Some(policy) = match_policy {
            with["matchPolicy"] = json!(policy);
        }
        let webhook = hooks.webhook("a", &format!("/{name}"), &with);
        let group = "admissionregistration.k8s.io";
        documents += &configuration("Validating", &name, &[webhook])
            .replace(&format!("{group}/v1"), &format!("{group}/{version}"));
    }
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for (name, .., reviewed, is_called) in &rows {
        let configuration_name = name.to_lowercase();
        let review = reviewed.review(name);
        let verdict = server.review(&format!("/validate/{configuration_name}"), &review).await;
        assert!(verdict.is_allowed(), "{name}: {verdict:?}");
        let calls = hooks.calls(&format!("/{configuration_name}"));
        let mut exact_calls = calls
            .iter()
            .filter(|call| call.path == format!("/{configuration_name}"));
        let sent_request = exact_calls.next().map(|call| &call.review["request"]);
        assert_eq!(sent_request, is_called.then_some(&review["request"]), "{name}");
        assert!(exact_calls.next().is_none(), "{name}: called once");
    }
    let conditions = check_conditions().await;
    let names = rows.iter().map(|(name, ..)| *name);
    assert_rows("C11", names.chain(conditions));
}

async fn check_conditions() -> [&'static str; 3] {
    const ROWS: [(&str, &str, usize, u64); 3] = [
        ("C11.13", "object.metadata.name == 'web'", 1, 0),
        ("C11.14", "object.metadata.name != 'web'", 0, 0),
        ("C11.15", "object.metadata.nowhere == 'web'", 0, 403),
    ];
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let mut documents = String::new();
    for (row, expression, ..) in ROWS {
        let with = json!({
            "rules": [rule(&["*"], &["apps"], &["v1"], &["deployments"])],
            "matchConditions": [{"name": "condition", "expression": expression}],
        });
        let row = row.to_lowercase();
        documents += &configuration("Validating", &row, &[hooks.webhook("a", &format!("/{row}"), &with)]);
    }
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for (row, _, calls, code) in ROWS {
        let configuration_name = row.to_lowercase();
        let verdict = server
            .review(&format!("/validate/{configuration_name}"), &DEPLOYMENT.review(row))
            .await;
        assert_eq!(verdict.code(), code, "{row}: {verdict:?}");
        assert_eq!(hooks.calls(&format!("/{configuration_name}")).len(), calls, "{row}");
        if code == 403 {
            assert_eq!(verdict.response["status"]["reason"], "Forbidden", "{row}");
            let message = verdict.message();
            assert!(message.contains("no such key: nowhere"), "{row}: {message}");
        }
    }
    ROWS.map(|(row, ..)| row)
}
