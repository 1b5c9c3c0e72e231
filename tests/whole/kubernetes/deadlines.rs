//! Tests that the shortest of three timeouts applies: `limits.requestTimeout`, the stage's timeout, and the caller's
//! `timeout` in the query.

use std::time::Duration;

use super::{
    hooks::{HookAnswer, Hooks},
    server::{POD, Server},
};
use crate::scene::source;

fn chain(name: &str, stages: &str) -> String {
    format!(
        "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {name} }}
spec:
  rules: [{{ operations: [CREATE], resources: [pods] }}]
  stages:
{stages}"
    )
}

fn plugin_stage(name: &str, behaviour: &str, policy: &str, timeout: &str) -> String {
    let guest = source("guest-misbehaves");
    format!(
        "    - name: {name}
      plugin: {{ source: \"{guest}\", settings: {{ behaviour: {behaviour} }} }}
      failurePolicy: {policy}
      timeout: {timeout}
"
    )
}

fn silent_webhook(hooks: &Hooks, policy: &str, timeout: &str) -> String {
    let bundle = &hooks.bundle;
    format!(
        "    - name: hangs
      webhook:
        protocol: AdmissionReview
        service: {{ namespace: hooks, name: hook, path: /silent }}
        caBundle: {bundle}
      failurePolicy: {policy}
      timeout: {timeout}
"
    )
}

const REQUEST_DEADLINE_MESSAGE: &str = "no verdict before the request's deadline";

#[tokio::test]
async fn the_shortest_of_all_timeouts_applies() {
    // Each row is (`limits.requestTimeout` in the configuration, requests). Each request is (timeout of the stage,
    // query of the request, expected message).
    let table: [(&str, &[(&str, &str, &str)]); 2] = [
        (
            "60s",
            &[
                ("100ms", "", "no verdict within the stage's timeout of 100ms"),
                (
                    "100ms",
                    "?timeout=30s",
                    "no verdict within the stage's timeout of 100ms",
                ),
                // kube-apiserver sends its timeout in the query, such as `?timeout=1s`. The program must reply within
                // this time.
                ("30s", "?timeout=1s", REQUEST_DEADLINE_MESSAGE),
                ("30s", "?timeout=500ms", REQUEST_DEADLINE_MESSAGE),
            ],
        ),
        (
            "500ms",
            &[
                ("30s", "", REQUEST_DEADLINE_MESSAGE),
                ("30s", "?timeout=30s", REQUEST_DEADLINE_MESSAGE),
            ],
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::Silence }).await;
    for (request_timeout, rows) in table {
        let mut chains = String::new();
        for (number, (timeout, ..)) in rows.iter().enumerate() {
            let (fail, ignore) = (
                silent_webhook(&hooks, "Fail", timeout),
                silent_webhook(&hooks, "Ignore", timeout),
            );
            chains += &chain(
                &format!("plugin-{number}"),
                &plugin_stage("hangs", "sleeps", "Ignore", timeout),
            );
            chains += &chain(&format!("fail-{number}"), &fail);
            let second = plugin_stage("second", "well-behaved", "Ignore", "30s");
            chains += &chain(&format!("two-{number}"), &format!("{ignore}{second}"));
        }
        let additions = format!(
            "limits: {{ requestTimeout: {request_timeout} }}\n{}",
            hooks.resolve_config()
        );
        let server = Server::start(&additions, &chains).await;
        for (number, (timeout, query, words)) in rows.iter().enumerate() {
            let case = format!("{request_timeout} {timeout} {query}");
            let send = async |chain: &str| {
                let path = format!("/mutate/{chain}-{number}{query}");
                server.review(&path, &POD.review(&case)).await
            };
            let (plugin, failed, two) = tokio::join!(send("plugin"), send("fail"), send("two"));
            assert!(plugin.is_allowed(), "{case}: {plugin:?}");
            assert_eq!(plugin.annotation("failed-open.hangs"), Some("timeout"), "{case}");

            assert_eq!(failed.code(), 500, "{case}: {failed:?}");
            let message = format!("stage hangs of chain fail-{number} failed (timeout): {words}");
            assert_eq!(failed.message(), message, "{case}");

            // If the deadline of the request passes during the first stage, the second stage cannot be called. The
            // program then refuses the request, even if the failure policy of both stages is `Ignore`.
            if *words == REQUEST_DEADLINE_MESSAGE {
                assert_eq!(two.code(), 504, "{case}: {two:?}");
                let message =
                    format!("the request's deadline passed before stage second of chain two-{number} could be called");
                assert_eq!(two.message(), message, "{case}");
            } else {
                assert!(two.is_allowed() && two.patch().is_some(), "{case}: {two:?}");
            }
        }
    }
}

/// A stage in Audit mode does not decide about requests, so they are allowed even if its webhook never answers.
#[tokio::test]
async fn a_hanging_stage_in_audit_mode_refuses_no_request() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |_, _| async { HookAnswer::Silence }).await;
    let (audit, second) = (
        silent_webhook(&hooks, "Fail", "30s"),
        plugin_stage("second", "well-behaved", "Fail", "30s"),
    );
    let stages = format!("{audit}      mode: Audit\n{second}");
    let server = Server::start(&hooks.resolve_config(), &chain("audited", &stages)).await;
    let review = POD.review("a");
    let request = server.review("/mutate/audited?timeout=1s", &review);
    // The stage's timeout is 30 s. A reply within 15 s shows that the server did not wait for the stage, and 15 s are
    // enough for a busy machine.
    let answer = tokio::time::timeout(Duration::from_secs(15), request).await.unwrap();
    assert!(answer.is_allowed() && answer.patch().is_some(), "{answer:?}");
}
