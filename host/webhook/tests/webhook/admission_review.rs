use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admittance_admission::{
    Deadline, FailureKind, GroupVersionKind, GroupVersionResource, Hook, Object, Operation, Request,
    ReviewVersion::{self, V1, V1Beta1},
    UserInfo, Verdict,
};
use admittance_webhook::Webhook;
use http::{Method, header};
use serde_json::{Value, json};

use crate::{
    application, call, review, serve,
    server::{always, answer},
};

fn pods() -> GroupVersionResource {
    GroupVersionResource {
        version: "v1".into(),
        resource: "pods".into(),
        ..GroupVersionResource::default()
    }
}

fn pod_create() -> Request {
    let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p1", "namespace": "scen"}});
    let mut request = Request::new(
        Operation::Create,
        GroupVersionKind::from_api_version("v1", "Pod"),
        pods(),
    )
    .with_object(Object::from_value(object).unwrap());
    request.uid = "772cbc27-1f0e-4642-a259-fca71b720857".to_owned().into();
    request.user = UserInfo {
        username: "alice".into(),
        uid: "alice-uid".into(),
        groups: vec!["dev".into(), "qa".into()],
        extra: [("scopes".into(), vec!["a".into(), "b".into()])].into(),
    };
    request.options = Object::from_value(json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));
    request
}

/// The webhook gets reviews with the same fields as those that kube-apiserver 1.36 sends for the same requests.
#[tokio::test]
async fn a_review_is_sent_as_kube_apiserver_sends_it() {
    let mut pod_exec = Request::new(
        Operation::Connect,
        GroupVersionKind::from_api_version("v1", "PodExecOptions"),
        pods(),
    );
    pod_exec.uid = "abab0f9e".to_owned().into();
    pod_exec.subresource = Some("exec".into());
    pod_exec.name = "p1".into();
    pod_exec.namespace = Some("scen".into());
    pod_exec.object = Object::from_value(json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls"]}));

    let mut role_delete = Request::new(
        Operation::Delete,
        GroupVersionKind::from_api_version("rbac.authorization.k8s.io/v1", "ClusterRole"),
        GroupVersionResource {
            group: "rbac.authorization.k8s.io".into(),
            version: "v1".into(),
            resource: "clusterroles".into(),
        },
    );
    role_delete.uid = "9ce6365a".to_owned().into();
    role_delete.old_object = Object::from_value(json!({"kind": "ClusterRole"}));
    role_delete.dry_run = true;

    for (case, version, request, expected) in [
        (
            "create, v1",
            V1,
            pod_create(),
            json!({
                "kind": "AdmissionReview",
                "apiVersion": "admission.k8s.io/v1",
                "request": {
                    "uid": "772cbc27-1f0e-4642-a259-fca71b720857",
                    "kind": {"group": "", "version": "v1", "kind": "Pod"},
                    "resource": {"group": "", "version": "v1", "resource": "pods"},
                    "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                    "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                    "name": "p1",
                    "namespace": "scen",
                    "operation": "CREATE",
                    "userInfo": {
                        "username": "alice",
                        "uid": "alice-uid",
                        "groups": ["dev", "qa"],
                        "extra": {"scopes": ["a", "b"]},
                    },
                    "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p1", "namespace": "scen"}},
                    "oldObject": null,
                    "dryRun": false,
                    "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
                },
            }),
        ),
        (
            "connect to a subresource, v1beta1",
            V1Beta1,
            pod_exec,
            json!({
                "kind": "AdmissionReview",
                "apiVersion": "admission.k8s.io/v1beta1",
                "request": {
                    "uid": "abab0f9e",
                    "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
                    "resource": {"group": "", "version": "v1", "resource": "pods"},
                    "subResource": "exec",
                    "requestKind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
                    "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                    "requestSubResource": "exec",
                    "name": "p1",
                    "namespace": "scen",
                    "operation": "CONNECT",
                    "userInfo": {},
                    "object": {"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls"]},
                    "oldObject": null,
                    "dryRun": false,
                    "options": null,
                },
            }),
        ),
        (
            "delete without name and namespace, dry run",
            V1,
            role_delete,
            json!({
                "kind": "AdmissionReview",
                "apiVersion": "admission.k8s.io/v1",
                "request": {
                    "uid": "9ce6365a",
                    "kind": {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole"},
                    "resource": {"group": "rbac.authorization.k8s.io", "version": "v1", "resource": "clusterroles"},
                    "requestKind": {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole"},
                    "requestResource": {
                        "group": "rbac.authorization.k8s.io", "version": "v1", "resource": "clusterroles"
                    },
                    "operation": "DELETE",
                    "userInfo": {},
                    "object": null,
                    "oldObject": {"kind": "ClusterRole"},
                    "dryRun": true,
                    "options": null,
                },
            }),
        ),
    ] {
        let (mut server, webhook) = serve(review(version), always(|| answer(500, "")));
        call(&webhook, &request).await.unwrap_err();
        let sent_request = server.received_requests.recv().await.unwrap();
        assert_eq!(sent_request.method, Method::POST, "{case}");
        assert_eq!(sent_request.authority, "hook.ns.svc", "{case}");
        assert_eq!(sent_request.headers[header::CONTENT_TYPE], "application/json");
        assert_eq!(sent_request.headers[header::ACCEPT], "application/json, */*");
        assert_eq!(
            sent_request.headers[header::USER_AGENT],
            concat!("admittance/", env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&sent_request.body).unwrap(),
            expected,
            "{case}"
        );
    }
}

/// The webhook gets the time until the deadline in the query, as `timeout=`. It is rounded up to a full second.
#[tokio::test]
async fn the_deadline_is_sent_as_the_timeout() {
    let (mut server, webhook) = serve(review(V1), always(|| answer(500, "")));
    for (remaining, expected) in [
        (Duration::from_millis(29_999), "/admit?timeout=30s"),
        (Duration::from_millis(29_000), "/admit?timeout=29s"),
        (Duration::ZERO, "/admit?timeout=1s"),
    ] {
        webhook
            .admit(&Arc::new(application()), Deadline::after(remaining))
            .await
            .unwrap_err();
        assert_eq!(server.received_requests.recv().await.unwrap().path, expected);
    }
}

#[derive(Debug)]
enum ExpectedVerdict {
    Allow,
    /// The webhook allows the request, and returns a JSON Patch with this number of operations.
    Patch(usize),
    /// The webhook denies the request with this code, reason and message.
    Deny(u16, &'static str, &'static str),
    Invalid(&'static str),
}

const NO_EXPLANATION: &str = "the webhook denied the request without explanation";

/// Each row contains a webhook's response and the expected outcome, which is kube-apiserver's outcome. If the
/// description of a row begins with "ours", the outcome intentionally differs from kube-apiserver's. `UID` in a
/// response stands for the uid of the request.
#[tokio::test]
async fn an_answer_has_the_same_effect_as_in_kube_apiserver() {
    use ExpectedVerdict::{Allow, Deny, Invalid, Patch};
    // This is `[{"op":"add","path":"/x","value":1}]` in base64.
    const ADD: &str = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3giLCJ2YWx1ZSI6MX1d";
    let v1 =
        |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let beta = |response: Value| json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": response});
    let status = |status: Value| v1(json!({"uid": "UID", "allowed": false, "status": status}));
    let rows: Vec<(&str, ReviewVersion, Value, ExpectedVerdict)> = vec![
        ("allowed", V1, v1(json!({"uid": "UID", "allowed": true})), Allow),
        (
            "allowed with a status",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "status": {"code": 500}})),
            Allow,
        ),
        (
            "unknown members",
            V1,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "x"}, "z": 1, "response": {"uid": "UID", "allowed": true, "z": 1}}),
            Allow,
        ),
        ("not an object", V1, json!([]), Invalid("not a JSON object")),
        (
            "no response",
            V1,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
            Invalid("`response` is absent"),
        ),
        ("response null", V1, v1(json!(null)), Invalid("`response` is absent")),
        (
            "response a list",
            V1,
            v1(json!(["UID", true])),
            Invalid("`response` must be an object"),
        ),
        (
            "another group",
            V1,
            json!({"apiVersion": "x/v1", "kind": "AdmissionReview", "response": {"uid": "UID", "allowed": true}}),
            Invalid("admission.k8s.io/v1"),
        ),
        (
            "another version",
            V1,
            beta(json!({"uid": "UID", "allowed": true})),
            Invalid("admission.k8s.io/v1"),
        ),
        (
            "another kind",
            V1,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "Review", "response": {"uid": "UID", "allowed": true}}),
            Invalid("\"Review\""),
        ),
        (
            "no type",
            V1,
            json!({"response": {"uid": "UID", "allowed": true}}),
            Invalid("admission.k8s.io/v1"),
        ),
        (
            "another uid",
            V1,
            v1(json!({"uid": "other", "allowed": true})),
            Invalid("\"other\""),
        ),
        ("no uid", V1, v1(json!({"allowed": true})), Invalid("found \"\"")),
        (
            "allowed a text",
            V1,
            v1(json!({"uid": "UID", "allowed": "true"})),
            Invalid("`response.allowed` must be true or false"),
        ),
        (
            "patch",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": ADD, "patchType": "JSONPatch"})),
            Patch(1),
        ),
        (
            "patch over two lines",
            V1,
            v1(
                json!({"uid": "UID", "allowed": true, "patch": format!("{}\n{}\r\n", &ADD[..10], &ADD[10..]), "patchType": "JSONPatch"}),
            ),
            Patch(1),
        ),
        (
            "patch []",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
            Patch(0),
        ),
        (
            "patch null",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": "bnVsbA==", "patchType": "JSONPatch"})),
            Patch(0),
        ),
        (
            "patch without patchType",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": ADD})),
            Invalid("no `response.patchType`"),
        ),
        (
            "patchType without patch",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patchType": "JSONPatch"})),
            Invalid("no `response.patch`"),
        ),
        (
            "patchType with an empty patch",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": "", "patchType": "JSONPatch"})),
            Invalid("no `response.patch`"),
        ),
        (
            "empty patchType",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": ADD, "patchType": ""})),
            Invalid("`response.patchType` is empty"),
        ),
        (
            "another patchType",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": ADD, "patchType": "MergePatch"})),
            Invalid("\"MergePatch\""),
        ),
        (
            "patch not base64",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": "[]", "patchType": "JSONPatch"})),
            Invalid("not base64"),
        ),
        (
            "patch an object",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": "e30=", "patchType": "JSONPatch"})),
            Invalid("not a JSON Patch"),
        ),
        (
            "patch cut off",
            V1,
            v1(json!({"uid": "UID", "allowed": true, "patch": &ADD[..16], "patchType": "JSONPatch"})),
            Invalid("not a JSON Patch"),
        ),
        (
            "denied with a patch",
            V1,
            v1(json!({"uid": "UID", "allowed": false, "patch": ADD, "patchType": "JSONPatch"})),
            Deny(400, "", NO_EXPLANATION),
        ),
        (
            "denied",
            V1,
            v1(json!({"uid": "UID", "allowed": false})),
            Deny(400, "", NO_EXPLANATION),
        ),
        (
            "allowed missing",
            V1,
            v1(json!({"uid": "UID"})),
            Deny(400, "", NO_EXPLANATION),
        ),
        (
            "allowed null",
            V1,
            v1(json!({"uid": "UID", "allowed": null})),
            Deny(400, "", NO_EXPLANATION),
        ),
        (
            "Allowed",
            V1,
            v1(json!({"uid": "UID", "Allowed": true})),
            Deny(400, "", NO_EXPLANATION),
        ),
        ("status empty", V1, status(json!({})), Deny(400, "", NO_EXPLANATION)),
        (
            "message",
            V1,
            status(json!({"message": "you shall not pass"})),
            Deny(400, "", "you shall not pass"),
        ),
        (
            "reason",
            V1,
            status(json!({"reason": "Forbidden"})),
            Deny(400, "Forbidden", "Forbidden"),
        ),
        (
            "message beats reason",
            V1,
            status(json!({"reason": "Forbidden", "message": "no"})),
            Deny(400, "Forbidden", "no"),
        ),
        ("401", V1, status(json!({"code": 401})), Deny(401, "", NO_EXPLANATION)),
        ("500", V1, status(json!({"code": 500})), Deny(500, "", NO_EXPLANATION)),
        ("200", V1, status(json!({"code": 200})), Deny(400, "", NO_EXPLANATION)),
        ("300", V1, status(json!({"code": 300})), Deny(400, "", NO_EXPLANATION)),
        ("399", V1, status(json!({"code": 399})), Deny(400, "", NO_EXPLANATION)),
        (
            "status Success",
            V1,
            status(json!({"code": 403, "status": "Success"})),
            Deny(403, "", NO_EXPLANATION),
        ),
        (
            "negative",
            V1,
            status(json!({"code": -1})),
            Deny(400, "", NO_EXPLANATION),
        ),
        (
            "ours: no code of HTTP",
            V1,
            status(json!({"code": 700})),
            Deny(403, "", NO_EXPLANATION),
        ),
        (
            "ours: 100000",
            V1,
            status(json!({"code": 100_000})),
            Deny(403, "", NO_EXPLANATION),
        ),
        (
            "code a text",
            V1,
            status(json!({"code": "403"})),
            Invalid("`response.status.code` must be an integer"),
        ),
        (
            "beta: allowed",
            V1Beta1,
            beta(json!({"uid": "UID", "allowed": true})),
            Allow,
        ),
        (
            "beta: no type, no uid",
            V1Beta1,
            json!({"response": {"allowed": true}}),
            Allow,
        ),
        (
            "beta: another uid",
            V1Beta1,
            beta(json!({"uid": "other", "allowed": true})),
            Allow,
        ),
        (
            "beta: another group",
            V1Beta1,
            json!({"apiVersion": "x/v1beta1", "kind": "AdmissionReview", "response": {"allowed": true}}),
            Invalid("\"x/v1beta1\""),
        ),
        (
            "beta: another kind",
            V1Beta1,
            json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "Review", "response": {"allowed": true}}),
            Invalid("\"Review\""),
        ),
        (
            "beta: answered in v1",
            V1Beta1,
            v1(json!({"uid": "UID", "allowed": true})),
            Invalid("admission.k8s.io/v1beta1"),
        ),
        ("beta: no response", V1Beta1, json!({}), Invalid("`response` is absent")),
        (
            "beta: patch without patchType",
            V1Beta1,
            beta(json!({"allowed": true, "patch": ADD})),
            Patch(1),
        ),
        (
            "beta: another patchType",
            V1Beta1,
            beta(json!({"allowed": true, "patch": ADD, "patchType": "x"})),
            Patch(1),
        ),
        (
            "beta: denied",
            V1Beta1,
            beta(json!({"allowed": false, "status": {"message": "no", "code": 403}})),
            Deny(403, "", "no"),
        ),
    ];
    for (case, version, reply, expected) in rows {
        assert_verdict(case, version, 200, reply.to_string(), &expected).await;
    }

    // The next answers are written as text, because `serde_json` cannot produce them.
    let allowed = v1(json!({"uid": "UID", "allowed": true})).to_string();
    for (case, status, text, expected) in [
        ("empty", 200, String::new(), Invalid("empty")),
        ("text", 200, "ok".into(), Invalid("not JSON")),
        ("trailing data", 200, format!("{allowed} x"), Invalid("not JSON")),
        (
            "ours: YAML",
            200,
            "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: { uid: UID, allowed: true }\n".into(),
            Invalid("not JSON"),
        ),
        ("byte order mark", 200, format!("\u{feff}{allowed}"), Allow),
        (
            "a member twice: the last counts",
            200,
            allowed.replace("true", "false,\"allowed\":true"),
            Allow,
        ),
        ("201", 201, allowed.clone(), Allow),
        ("206", 206, allowed, Allow),
    ] {
        assert_verdict(case, V1, status, text, &expected).await;
    }
}

async fn assert_verdict(case: &str, version: ReviewVersion, status: u16, reply: String, expected: &ExpectedVerdict) {
    let request = pod_create();
    let reply = reply.replace("UID", request.uid.as_str());
    let (_server, webhook) = serve(review(version), always(move || answer(status, reply.clone())));
    let answer = call(&webhook, &request).await;
    let matches = match (&answer, expected) {
        (Ok(response), _) => match (&response.verdict, expected) {
            (Verdict::Allow, ExpectedVerdict::Allow) => true,
            (Verdict::Patch(patch), ExpectedVerdict::Patch(length)) => patch.len() == *length,
            (Verdict::Deny(denial), ExpectedVerdict::Deny(code, reason, message)) => {
                (denial.code(), &*denial.reason, &*denial.message) == (*code, *reason, *message)
            }
            _ => false,
        },
        (Err(failure), ExpectedVerdict::Invalid(part)) => {
            failure.kind == FailureKind::InvalidResponse
                && failure.message.contains(part)
                && failure.message.contains("https://hook.ns.svc/admit")
        }
        _ => false,
    };
    assert!(matches, "{case}: {answer:?}, expected {expected:?}");
}

/// Only 200 to 206 count as success. With any other status, the call fails, whatever the body is.
#[tokio::test]
async fn error_statuses_of_webhooks_are_failures() {
    let denied = r#"{"kind":"Status","message":"try later"}"#;
    for status in [207, 400, 403, 404, 429, 500, 503] {
        let (_server, webhook) = serve(review(V1), always(move || answer(status, denied)));
        let failure = call(&webhook, &pod_create()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadStatus, "{status}");
        assert!(failure.message.contains(&status.to_string()) && failure.message.contains("try later"));
    }
}

/// A webhook asks for a retry with `Retry-After` in seconds. It has an effect if the status is 429 or at least 500.
#[tokio::test]
async fn a_call_is_retried_after_the_time_in_retry_after() {
    for (status, retry_after, calls) in [
        (429, Some("0"), 3),
        (503, Some("0"), 3),
        (500, Some("0"), 3),
        (503, None, 1),
        (503, Some("Wed, 21 Oct 2026 07:28:00 GMT"), 1),
        (404, Some("0"), 1),
        (503, Some("3600"), 1),
    ] {
        let request = pod_create();
        let uid = request.uid.to_string();
        let request_count = Arc::new(AtomicUsize::new(0));
        let count = request_count.clone();
        let (mut server, webhook) = serve(
            review(V1),
            always(move || {
                if count.fetch_add(1, Ordering::SeqCst) == 2 {
                    let allowed = json!({"uid": uid, "allowed": true});
                    let reply =
                        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": allowed});
                    return answer(200, reply.to_string());
                }
                let mut reply = answer(status, "busy");
                if let Some(value) = retry_after {
                    reply.headers_mut().insert(header::RETRY_AFTER, value.parse().unwrap());
                }
                reply
            }),
        );
        let answer = webhook
            .admit(&Arc::new(request), Deadline::after(Duration::from_secs(60)))
            .await;
        assert_eq!(request_count.load(Ordering::SeqCst), calls, "{status} {retry_after:?}");
        match answer {
            Ok(_) => assert_eq!(calls, 3),
            Err(failure) => assert_eq!((failure.kind, calls), (FailureKind::BadStatus, 1), "{failure}"),
        }
        let first = server.received_requests.recv().await.unwrap();
        for _ in 1..calls {
            assert_eq!(server.received_requests.recv().await.unwrap().body, first.body);
        }
    }
    let request_count = Arc::new(AtomicUsize::new(0));
    let count = request_count.clone();
    let (_server, webhook) = serve(
        review(V1),
        always(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let mut reply = answer(503, "busy");
            reply.headers_mut().insert(header::RETRY_AFTER, "0".parse().unwrap());
            reply
        }),
    );
    let answer = webhook
        .admit(&Arc::new(pod_create()), Deadline::after(Duration::from_secs(60)))
        .await;
    assert_eq!(answer.unwrap_err().kind, FailureKind::BadStatus);
    assert_eq!(request_count.load(Ordering::SeqCst), 11);
}

/// The response of a webhook may have any Content-Type, even an invalid one that kube-apiserver refuses. An encoding
/// such as `gzip` is refused, because the request has not asked for it.
#[tokio::test]
async fn an_answer_may_have_any_content_type_but_no_encoding() {
    for (name, value, is_accepted) in [
        (header::CONTENT_TYPE, "text/html", true),
        (header::CONTENT_TYPE, "no type / at all;;", true),
        (header::CONTENT_ENCODING, "identity", true),
        (header::CONTENT_ENCODING, "gzip", false),
    ] {
        let request = pod_create();
        let uid = request.uid.to_string();
        let (key, text) = (name.clone(), value);
        let (_server, webhook) = serve(
            review(V1),
            always(move || {
                let allowed = json!({"uid": uid, "allowed": true});
                let review =
                    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": allowed});
                let mut reply = answer(200, review.to_string());
                reply.headers_mut().insert(key.clone(), text.parse().unwrap());
                reply
            }),
        );
        match call(&webhook, &request).await {
            Ok(_) => assert!(is_accepted, "{value}"),
            Err(failure) => {
                assert_eq!(
                    (failure.kind, is_accepted),
                    (FailureKind::InvalidResponse, false),
                    "{value}"
                );
                assert!(failure.message.contains("gzip"), "{failure}");
            }
        }
    }
}

/// Warnings and annotations are kept whether the request is allowed or denied, as in kube-apiserver. Empty warnings and
/// invalid keys of annotations are dropped.
#[tokio::test]
async fn warnings_and_annotations_come_with_the_verdict() {
    for allowed in [true, false] {
        let request = pod_create();
        let reply = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {
                "uid": request.uid.as_str(),
                "allowed": allowed,
                "warnings": ["first", "", "second"],
                "auditAnnotations": {
                    "b.c_d-1": "kept", "invalid*key": "x", "a/b": "x", "": "x", "-a": "x", "a.": "x",
                    "k".repeat(63): "kept", "k".repeat(64): "x",
                },
            },
        })
        .to_string();
        let (_server, webhook) = serve(review(V1), always(move || answer(200, reply.clone())));
        let response = call(&webhook, &request).await.unwrap();
        assert_eq!(response.warnings, ["first", "second"]);
        let expected_annotations = [
            ("b.c_d-1".to_owned(), "kept".to_owned()),
            ("k".repeat(63), "kept".to_owned()),
        ];
        assert_eq!(response.audit_annotations, expected_annotations);
    }
}

/// The first listed version is used, so a webhook that lists no version cannot be called.
#[test]
fn a_webhook_without_review_versions_is_refused() {
    use admittance_admission::Protocol;
    use admittance_webhook::{Error, WebhookClients, WebhookConfig};
    let versions = Vec::new();
    let target = admittance_admission::WebhookTarget::Url("https://hooks.example.com".parse().unwrap());
    let config = WebhookConfig::new(Protocol::AdmissionReview { versions }, target);
    let webhook = Webhook::new(config, &WebhookClients::default());
    assert!(matches!(webhook, Err(Error::NoReviewVersion)));
}
