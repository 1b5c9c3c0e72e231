//! Tests which requests `matchConditions` select, and that the program rejects invalid `matchConditions`.

use admittance_tests::Admittance;
use serde_json::{Value, json};

use super::assert_rows;
use crate::{
    kubernetes::{
        hooks::{HookAnswer, Hooks, configuration},
        server::{POD, Server},
    },
    scene::write,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedMatch {
    Called,
    Skipped,
    Refused,
    /// The condition fails with the failure policy `Ignore`, so the webhook is not called and the request is allowed.
    Ignored,
}

use ExpectedMatch::{Called, Ignored, Refused, Skipped};

const TRUE: &str = "true";
const FALSE: &str = "false";
const FAILING: &str = "object.missing == 1";

/// (case of the conformance list, expressions of the match conditions, failurePolicy, expected result)
const ROWS: [(&str, &[&str], Option<&str>, ExpectedMatch); 19] = [
    ("C10.1", &[], None, Called),
    ("C10.2", &[TRUE], None, Called),
    ("C10.3", &[TRUE, TRUE, TRUE, TRUE], None, Called),
    ("C10.4", &[FALSE, TRUE, TRUE], None, Skipped),
    ("C10.5", &[TRUE, FALSE, TRUE], None, Skipped),
    ("C10.6", &[TRUE, TRUE, FALSE], None, Skipped),
    ("C10.7", &[FAILING], None, Refused),
    ("C10.8", &[FAILING], Some("Fail"), Refused),
    ("C10.9", &[FAILING], Some("Ignore"), Ignored),
    ("C10.10", &[TRUE, FAILING, FALSE], None, Skipped),
    ("C10.11", &[TRUE, FAILING, FALSE], Some("Fail"), Skipped),
    ("C10.12", &[TRUE, FAILING, FALSE], Some("Ignore"), Skipped),
    ("C10.13", &[TRUE, FAILING], None, Refused),
    ("C10.14", &[TRUE, FAILING], Some("Fail"), Refused),
    ("C10.15", &[TRUE, FAILING], Some("Ignore"), Ignored),
    ("C10.16", &["object.metadata.namespace != 'kube-system'"], None, Called),
    ("C10.16", &["object.metadata.namespace != 'test'"], None, Skipped),
    ("C10.17", &["oldObject == null"], None, Called),
    ("C10.17", &["oldObject != null"], None, Skipped),
];

fn match_conditions(expressions: &[&str]) -> Value {
    let condition = |(index, expression)| json!({"name": format!("c{index}"), "expression": expression});
    expressions.iter().enumerate().map(condition).collect()
}

#[tokio::test]
async fn match_conditions_are_evaluated_before_a_webhook_is_called() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::allow() }).await;
    let mut documents = String::new();
    let configuration_name = |index: usize, row: &str| format!("{index}.{}", row.to_lowercase());
    for phase in ["Mutating", "Validating"] {
        for (index, (row, expressions, policy, _)) in ROWS.iter().enumerate() {
            let mut with = json!({"matchConditions": match_conditions(expressions)});
            if let Some(policy) = policy {
                with["failurePolicy"] = json!(policy);
            }
            let name = configuration_name(index, row);
            let path = format!("/{name}/{}", phase.to_lowercase());
            documents += &configuration(phase, &name, &[hooks.webhook("a", &path, &with)]);
        }
    }
    let server = Server::start(&hooks.resolve_config(), &documents).await;
    for (root, phase) in [("mutate", "mutating"), ("validate", "validating")] {
        for (index, (row, .., expected)) in ROWS.iter().enumerate() {
            let name = configuration_name(index, row);
            let case = format!("{name} {phase}");
            let verdict = server.review(&format!("/{root}/{name}"), &POD.review(&case)).await;
            let calls = hooks.calls(&format!("/{name}/{phase}")).len();
            assert_eq!(calls, usize::from(*expected == Called), "{case}");
            assert_eq!(verdict.is_allowed(), *expected != Refused, "{case}: {verdict:?}");
            let failed_open = verdict.annotation("failed-open.a.hooks.example");
            assert_eq!(
                failed_open,
                (*expected == Ignored).then_some("condition-failed"),
                "{case}"
            );
            if *expected == Refused {
                assert_eq!(verdict.code(), 403, "{case}");
                assert_eq!(verdict.response["status"]["reason"], "Forbidden", "{case}");
                let message = verdict.message();
                let words = format!("expression '{FAILING}' resulted in error: no such key: missing");
                assert!(message.contains(&words), "{case}: {message}");
            }
        }
    }
    let document_rows = check_documents(&hooks).await;
    assert_rows("C10", ROWS.iter().map(|(row, ..)| *row).chain(document_rows));
}

/// (case of the conformance list, match conditions, error message if the program rejects them)
fn condition_rows() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let single_condition = |name: &str, expression: &str| json!([{"name": name, "expression": expression}]);
    let repeated_conditions = |count: usize| match_conditions(&vec![TRUE; count]);
    vec![
        ("C10.20", single_condition("a", "true"), None),
        (
            "C10.21",
            json!([
                {"name": "exclude-leases", "expression":
                    "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')"},
                {"name": "exclude-kubelet-requests", "expression": "!('system:nodes' in request.userInfo.groups)"},
                {"name": "breakglass", "expression":
                    "!authorizer.group('admissionregistration.k8s.io').resource('validatingwebhookconfigurations')\
                     .name('a').check('breakglass').allowed()"},
            ]),
            None,
        ),
        (
            "C10.22",
            single_condition("a", "something.else == 1"),
            Some("matchConditions[0].expression"),
        ),
        (
            "C10.23",
            json!([{"name": "a"}]),
            Some("matchConditions[0].expression: missing"),
        ),
        (
            "C10.24",
            single_condition("a", ""),
            Some("matchConditions[0].expression: empty"),
        ),
        (
            "C10.25",
            json!([{"expression": "true"}]),
            Some("matchConditions[0].name: missing"),
        ),
        (
            "C10.26",
            single_condition("", "true"),
            Some("matchConditions[0].name: empty"),
        ),
        (
            "C10.27",
            json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]),
            Some("matchConditions[1].name: \"a\" is also the name"),
        ),
        (
            "C10.28",
            single_condition("not qualified", "true"),
            Some("matchConditions[0].name: \"not qualified\""),
        ),
        ("C10.29", repeated_conditions(64), None),
        (
            "C10.30",
            repeated_conditions(65),
            Some("matchConditions: there are 65 conditions"),
        ),
    ]
}

/// Checks for each case that the program accepts or rejects its match conditions, and returns the names of the cases.
async fn check_documents(hooks: &Hooks) -> Vec<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let documents = condition_rows();
    for (row, conditions, _) in &documents {
        let with = json!({"matchConditions": conditions});
        let document = configuration("Validating", &row.to_lowercase(), &[hooks.webhook("a", "/a", &with)]);
        write(&directory, &format!("{row}.yaml"), document);
    }
    let check = Admittance::run(["check".as_ref(), directory.path().as_os_str()])
        .await
        .unwrap();
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    for (row, _, expected_message) in &documents {
        let file_prefix = format!("{row}.yaml:");
        let lines: Vec<_> = check
            .stdout
            .lines()
            .filter(|line| line.contains(&file_prefix))
            .collect();
        match expected_message {
            Some(words) => assert!(lines.iter().any(|line| line.contains(words)), "{row}: {lines:?}"),
            None => assert!(lines.is_empty(), "{row}: {lines:?}"),
        }
    }
    documents.iter().map(|(row, ..)| *row).collect()
}
