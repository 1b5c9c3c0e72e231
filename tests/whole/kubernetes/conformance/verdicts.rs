//! Tests the effect of webhooks' answers on a request.

use admittance_tests::Admittance;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::assert_rows;
use crate::{
    kubernetes::{
        hooks::{Arrivals, HookAnswer, HookCall, Hooks, configuration, rule},
        server::{POD, ReviewVerdict, ReviewedResource, Server},
    },
    scene::{source, write},
};

/// Returns the webhook's answer to a call. The first segment of the call's path selects one of the answers below.
async fn answer(call: HookCall, _: Arrivals) -> HookAnswer {
    let denied = |status: Value| HookAnswer::Review(json!({"allowed": false, "status": status}));
    match call.path.split('/').nth(1).unwrap() {
        "allow" => HookAnswer::Review(json!({"allowed": true, "auditAnnotations": {"key1": "value1"}})),
        "disallow" => denied(json!({"code": 403})),
        "disallow-reason" => denied(json!({"code": 403, "message": "you shall not pass"})),
        "internal-error" => HookAnswer::Text(500, "webhook internal server error".into()),
        "no-http" => HookAnswer::HangUp,
        "absent" => HookAnswer::Text(
            200,
            json!({"kind": "AdmissionReview", "apiVersion": call.review["apiVersion"]}).to_string(),
        ),
        "invalid-annotation" => {
            HookAnswer::Review(json!({"allowed": true, "auditAnnotations": {"invalid*key": "value1"}}))
        }
        "remove-label" if call.label("remove").is_some() => {
            HookAnswer::patch(&json!([{"op": "remove", "path": "/metadata/labels/remove"}]))
        }
        "remove-label" => HookAnswer::allow(),
        "add-label" => HookAnswer::add_label("added", "test"),
        "broken-member" => HookAnswer::raw_patch(r#"[{"op": "add", "CORRUPTED_KEY":}]"#),
        "cut-off" => HookAnswer::raw_patch(r#"[{"op": "add", "path": "/metadata/labels/a", "value": "b"}"#),
        "noop" => HookAnswer::patch(&json!([
            {"op": "replace", "path": "/metadata/labels/remove", "value": "me"}
        ])),
        "not-there" => HookAnswer::patch(&json!([{"op": "remove", "path": "/spec/nowhere"}])),
        "rename" => HookAnswer::patch(&json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
        path => HookAnswer::Text(404, format!("no hook at {path}")),
    }
}

/// A webhook of a case: (path, fields that differ from the defaults). The path selects the answer of the webhook.
type RowHook = (&'static str, Value);

enum RowExpectation {
    /// The request is allowed without a change, with exactly these audit annotations.
    Allowed(Vec<(&'static str, &'static str)>),
    /// The request is allowed, and the resulting object has these labels.
    Changed(Value),
    /// The request is refused with this code and a message that contains this text.
    Refused(u64, &'static str),
    /// The program rejects the webhook configuration, with a message that contains this text.
    Rejected(&'static str),
}

use RowExpectation::{Allowed, Changed, Refused, Rejected};

struct VerdictRow {
    name: &'static str,
    resource: ReviewedResource<'static>,
    dry_run: bool,
    webhooks: Vec<RowHook>,
    expected: RowExpectation,
    /// The webhooks that must be called, in this order. The first list is for a mutating configuration, and the second
    /// list for a validating configuration.
    expected_calls: [&'static [&'static str]; 2],
}

fn row(
    name: &'static str,
    webhooks: Vec<RowHook>,
    expected: RowExpectation,
    called: &'static [&'static str],
) -> VerdictRow {
    VerdictRow {
        name,
        resource: POD_UPDATE,
        dry_run: false,
        webhooks,
        expected,
        expected_calls: [called, called],
    }
}

const POD_UPDATE: ReviewedResource<'static> = ReviewedResource {
    operation: "UPDATE",
    ..POD
};

const CUSTOM_UPDATE: ReviewedResource<'static> = ReviewedResource {
    operation: "UPDATE",
    resource: "custom.resource/v1/customresources",
    kind: "CustomResource",
};

const NAMESPACES: &str = "namespaces: { test: { runlevel: \"0\" } }\n";

fn runlevel_selector(operator: &str, value: &str) -> Value {
    json!({"matchExpressions": [{"key": "runlevel", "operator": operator, "values": [value]}]})
}

fn broken_client() -> Value {
    json!({"service": {"namespace": "hooks", "name": "hook", "path": "/allow"}, "caBundle": "ISEhCg=="})
}

fn label_selector(label: &str) -> Value {
    json!({"objectSelector": {"matchLabels": {label: "me"}}})
}

fn dry_run_row(
    side_effects: &str,
    name: &'static str,
    expected: RowExpectation,
    called: &'static [&'static str],
) -> VerdictRow {
    VerdictRow {
        dry_run: true,
        ..row(
            name,
            vec![("allow", json!({"sideEffects": side_effects}))],
            expected,
            called,
        )
    }
}

const ALLOWED_ANNOTATIONS: &[(&str, &str)] = &[("allow-0.hooks.example.key1", "value1")];

fn unchanged_rows(hooks: &Hooks) -> Vec<VerdictRow> {
    let failing_hooks =
        |policy: Value| -> Vec<RowHook> { (0..3).map(|_| ("internal-error", policy.clone())).collect() };
    let unannotated = || Allowed(Vec::new());
    let allowed = || Allowed(ALLOWED_ANNOTATIONS.to_vec());
    let no_match = json!({"rules": [rule(&["CREATE"], &["*"], &["*"], &["*/*"])]});
    let three_failures_row = |name, policy| VerdictRow {
        expected_calls: [&["internal-error"], &["internal-error"; 3]],
        ..row(name, failing_hooks(policy), Refused(500, "failed (bad-status)"), &[])
    };
    let guest = source("guest-misbehaves");
    let panicking_hooks = move |policy: &str| -> Vec<RowHook> {
        let plugin = json!({"source": guest, "settings": {"behaviour": "panics"}});
        vec![("", json!({"plugin": plugin, "failurePolicy": policy}))]
    };
    vec![
        row("C1.1", vec![("disallow", no_match.clone())], unannotated(), &[]),
        row("C1.2", vec![("allow", json!({}))], allowed(), &["allow"]),
        row(
            "C1.3",
            vec![("disallow", json!({}))],
            Refused(403, "denied the request without explanation"),
            &["disallow"],
        ),
        row(
            "C1.4",
            vec![("disallow-reason", json!({}))],
            Refused(403, "denied the request: you shall not pass"),
            &["disallow-reason"],
        ),
        row(
            "C1.5",
            vec![("disallow", json!({"namespaceSelector": runlevel_selector("In", "1")}))],
            unannotated(),
            &[],
        ),
        row(
            "C1.6",
            vec![(
                "disallow",
                json!({"namespaceSelector": runlevel_selector("NotIn", "0")}),
            )],
            unannotated(),
            &[],
        ),
        row(
            "C1.7",
            failing_hooks(json!({"failurePolicy": "Ignore"})),
            Allowed(vec![
                ("failed-open.internal-error-0.hooks.example", "bad-status"),
                ("failed-open.internal-error-1.hooks.example", "bad-status"),
                ("failed-open.internal-error-2.hooks.example", "bad-status"),
            ]),
            &["internal-error"; 3],
        ),
        three_failures_row("C1.8", json!({})),
        three_failures_row("C1.9", json!({"failurePolicy": "Fail"})),
        row(
            "C1.10",
            vec![("allow", json!({"clientConfig": broken_client()}))],
            Rejected("caBundle"),
            &[],
        ),
        row(
            "C1.11",
            vec![("no-http", json!({}))],
            Refused(500, "failed (unreachable)"),
            &["no-http"],
        ),
        row(
            "C1.12",
            vec![("allow", json!({"clientConfig": hooks.client_by_url("/allow/PLACE")}))],
            allowed(),
            &["allow"],
        ),
        row(
            "C1.13",
            vec![(
                "disallow",
                json!({"clientConfig": hooks.client_by_url("/disallow/PLACE")}),
            )],
            Refused(403, "without explanation"),
            &["disallow"],
        ),
        row(
            "C1.14",
            vec![("absent", json!({"failurePolicy": "Ignore"}))],
            Allowed(vec![("failed-open.absent-0.hooks.example", "invalid-response")]),
            &["absent"],
        ),
        row(
            "C1.15",
            vec![("absent", json!({}))],
            Refused(500, "`response` is absent"),
            &["absent"],
        ),
        VerdictRow {
            dry_run: true,
            ..row(
                "C1.16",
                vec![("allow", {
                    let mut some = no_match.clone();
                    some["sideEffects"] = json!("Some");
                    some
                })],
                unannotated(),
                &[],
            )
        },
        dry_run_row("Unknown", "C1.17", Refused(400, "does not support dry run"), &[]),
        dry_run_row("None", "C1.18", allowed(), &["allow"]),
        dry_run_row("Some", "C1.19", Refused(400, "does not support dry run"), &[]),
        dry_run_row("NoneOnDryRun", "C1.20", allowed(), &["allow"]),
        row(
            "C1.21",
            vec![("invalid-annotation", json!({}))],
            unannotated(),
            &["invalid-annotation"],
        ),
        row(
            "C1.22",
            vec![("allow", json!({})), ("disallow", label_selector("absent"))],
            allowed(),
            &["allow"],
        ),
        VerdictRow {
            resource: CUSTOM_UPDATE,
            ..row(
                "C1.23",
                vec![("allow", json!({})), ("disallow", label_selector("absent"))],
                allowed(),
                &["allow"],
            )
        },
        row("C1.24", panicking_hooks("Fail"), Refused(500, "deliberate panic"), &[]),
        row(
            "C1.25",
            panicking_hooks("Ignore"),
            Allowed(vec![("failed-open.plugin-0.hooks.example", "trap")]),
            &[],
        ),
    ]
}

fn changing_rows() -> Vec<VerdictRow> {
    let label_removed = || Changed(json!({}));
    let label_added = || Changed(json!({"remove": "me", "added": "test"}));
    let on_custom_resource = |row| VerdictRow {
        resource: CUSTOM_UPDATE,
        ..row
    };
    // The first webhook removes the label `remove`. The second webhook selects objects with this label, so it is not
    // called. The request has to be a CREATE: in an UPDATE, the selector would also match the old object, which still
    // has the label, and the second webhook would be called.
    let removing_row = |name, reviewed: ReviewedResource<'static>| {
        let webhooks = vec![("remove-label", json!({})), ("disallow", label_selector("remove"))];
        let reviewed = ReviewedResource {
            operation: "CREATE",
            ..reviewed
        };
        VerdictRow {
            resource: reviewed,
            ..row(name, webhooks, label_removed(), &["remove-label"])
        }
    };
    let reinvoked_row = |name, policy: Option<&str>, called| {
        let fields = policy.map_or(json!({}), |policy| json!({"reinvocationPolicy": policy}));
        let webhooks = vec![("add-label", fields.clone()), ("remove-label", fields)];
        row(name, webhooks, Changed(json!({"added": "test"})), called)
    };
    let ignored_row = |name, hook, kind, called| {
        row(
            name,
            vec![(hook, json!({"failurePolicy": "Ignore"}))],
            Allowed(vec![kind]),
            called,
        )
    };
    vec![
        row(
            "C2.1",
            vec![("remove-label", json!({}))],
            label_removed(),
            &["remove-label"],
        ),
        row("C2.2", vec![("add-label", json!({}))], label_added(), &["add-label"]),
        on_custom_resource(row(
            "C2.3",
            vec![("remove-label", json!({}))],
            label_removed(),
            &["remove-label"],
        )),
        on_custom_resource(row(
            "C2.4",
            vec![("add-label", json!({}))],
            label_added(),
            &["add-label"],
        )),
        row(
            "C2.5",
            vec![("broken-member", json!({}))],
            Refused(500, "failed (invalid-response)"),
            &["broken-member"],
        ),
        row(
            "C2.6",
            vec![("cut-off", json!({}))],
            Refused(500, "failed (invalid-response)"),
            &["cut-off"],
        ),
        ignored_row(
            "C2.7",
            "cut-off",
            ("failed-open.cut-off-0.hooks.example", "invalid-response"),
            &["cut-off"],
        ),
        row(
            "C2.8",
            vec![("allow", json!({"clientConfig": broken_client()}))],
            Rejected("caBundle"),
            &[],
        ),
        row(
            "C2.9",
            vec![("no-http", json!({}))],
            Refused(500, "failed (unreachable)"),
            &["no-http"],
        ),
        VerdictRow {
            dry_run: true,
            ..row(
                "C2.10",
                vec![("remove-label", json!({"sideEffects": "Unknown"}))],
                Refused(400, "does not support dry run"),
                &[],
            )
        },
        removing_row("C2.11", POD),
        removing_row("C2.12", CUSTOM_UPDATE),
        reinvoked_row("C2.13", Some("IfNeeded"), &["add-label", "remove-label", "add-label"]),
        reinvoked_row("C2.14", Some("Never"), &["add-label", "remove-label"]),
        reinvoked_row("C2.15", None, &["add-label", "remove-label"]),
        row("C2.16", vec![("noop", json!({}))], Allowed(Vec::new()), &["noop"]),
        ignored_row(
            "C2.17",
            "not-there",
            ("failed-open.not-there-0.hooks.example", "patch-failed"),
            &["not-there"],
        ),
        VerdictRow {
            resource: ReviewedResource {
                operation: "DELETE",
                ..POD
            },
            ..ignored_row(
                "C2.18",
                "add-label",
                ("failed-open.add-label-0.hooks.example", "patch-failed"),
                &["add-label"],
            )
        },
        row(
            "C2.19",
            vec![("rename", json!({}))],
            Refused(500, "failed (identity-changed)"),
            &["rename"],
        ),
    ]
}

/// A case of the conformance list, tested in one phase and with one version of AdmissionReview.
struct VerdictCase {
    /// The name of the webhook configuration for this case. The path of each webhook in the configuration ends with the
    /// same name.
    configuration_name: String,
    phase: &'static str,
    document: String,
}

impl VerdictCase {
    fn new(hooks: &Hooks, row: &VerdictRow, phase: &'static str, version: &str) -> Self {
        let configuration_name = format!("{}-{phase}-{version}", row.name).to_lowercase();
        let mut webhooks = Vec::new();
        for (index, (behaviour, raw_fields)) in row.webhooks.iter().enumerate() {
            let hook_fields: Value =
                serde_json::from_str(&raw_fields.to_string().replace("PLACE", &configuration_name)).unwrap();
            let name = if hook_fields.get("plugin").is_some() {
                "plugin"
            } else {
                behaviour
            };
            let mut webhook = hooks.webhook(
                &format!("{name}-{index}"),
                &format!("/{behaviour}/{configuration_name}"),
                &hook_fields,
            );
            let fields = webhook.as_object_mut().unwrap();
            fields.insert("admissionReviewVersions".into(), json!([version]));
            if hook_fields.get("plugin").is_some() {
                fields.remove("clientConfig");
            }
            webhooks.push(webhook);
        }
        let document = configuration(phase, &configuration_name, &webhooks);
        Self {
            configuration_name,
            phase,
            document,
        }
    }

    async fn check(&self, server: &Server, hooks: &Hooks, row: &VerdictRow) {
        let configuration_name = &self.configuration_name;
        let is_mutating = self.phase == "Mutating";
        let mut review = row.resource.review(configuration_name);
        review["request"]["dryRun"] = json!(row.dry_run);
        let path = if is_mutating { "mutate" } else { "validate" };
        let verdict = server.review(&format!("/{path}/{configuration_name}"), &review).await;
        row.expected.check(configuration_name, &verdict, &review);
        let calls = hooks.calls("/");
        let mut called_paths: Vec<_> = calls
            .iter()
            .filter_map(|call| {
                call.path
                    .strip_suffix(&format!("/{configuration_name}"))?
                    .strip_prefix('/')
            })
            .collect();
        let mut expected = row.expected_calls[usize::from(!is_mutating)].to_vec();
        if !is_mutating {
            // Concurrent calls may arrive in any order, so both lists are sorted.
            called_paths.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(called_paths, expected, "{configuration_name}");
    }
}

impl RowExpectation {
    #[expect(clippy::panic, reason = "a test says what is wrong by panicking")]
    fn check(&self, configuration_name: &str, verdict: &ReviewVerdict, review: &Value) {
        match self {
            Allowed(annotations) => {
                assert!(verdict.is_allowed(), "{configuration_name}: {verdict:?}");
                assert_eq!(verdict.patch(), None, "{configuration_name}");
                let actual_annotations: Vec<_> = verdict.response["auditAnnotations"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| (key.as_str(), value.as_str().unwrap()))
                    .collect();
                assert_eq!(actual_annotations, *annotations, "{configuration_name}");
            }
            Changed(labels) => {
                assert!(verdict.is_allowed(), "{configuration_name}: {verdict:?}");
                let mut expected = review["request"]["object"].clone();
                expected["metadata"]["labels"] = labels.clone();
                assert_eq!(
                    verdict.patched_object(&review["request"]["object"]),
                    expected,
                    "{configuration_name}"
                );
            }
            Refused(code, words) => {
                assert_eq!(verdict.code(), *code, "{configuration_name}: {verdict:?}");
                assert!(
                    verdict.message().contains(words),
                    "{configuration_name}: {}",
                    verdict.message()
                );
            }
            Rejected(_) => panic!("{configuration_name}: the document was read"),
        }
    }
}

async fn check_rows(group: &str, phases: &[&'static str], rows: impl FnOnce(&Hooks) -> Vec<VerdictRow>) {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), answer).await;
    let rows = rows(&hooks);
    let mut cases = Vec::new();
    for row in &rows {
        for phase in phases {
            for version in ["v1", "v1beta1"] {
                let case = VerdictCase::new(&hooks, row, phase, version);
                match row.expected {
                    Rejected(words) => check_rejected(&directory, &case, words).await,
                    _ => cases.push((row, case)),
                }
            }
        }
    }
    let documents: String = cases.iter().map(|(_, case)| case.document.as_str()).collect();
    let server = Server::start(&format!("{NAMESPACES}{}", hooks.resolve_config()), &documents).await;
    for (row, case) in &cases {
        case.check(&server, &hooks, row).await;
    }
    assert_rows(group, rows.iter().map(|row| row.name));
}

async fn check_rejected(directory: &TempDir, case: &VerdictCase, words: &str) {
    let file = write(directory, &format!("{}.yaml", case.configuration_name), &case.document);
    let check = Admittance::run(["check".into(), file.into_os_string()]).await.unwrap();
    assert_eq!(check.code, Some(1), "{}: {}", case.configuration_name, check.stdout);
    assert!(
        check.stdout.contains(words),
        "{}: {}",
        case.configuration_name,
        check.stdout
    );
}

#[tokio::test]
async fn webhooks_without_a_patch_leave_the_object_unchanged() {
    check_rows("C1", &["Mutating", "Validating"], unchanged_rows).await;
}

#[tokio::test]
async fn patches_of_webhooks_change_the_object() {
    check_rows("C2", &["Mutating"], |_| changing_rows()).await;
}
