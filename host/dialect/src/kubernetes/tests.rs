use http::Request as HttpRequest;
use serde_json::json;

use super::*;

fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = headers.iter().fold(
        HttpRequest::builder().method(method).uri(uri),
        |request, (name, value)| request.header(*name, *value),
    );
    request.body(()).unwrap().into_parts().0
}

fn class_text(head: &Parts) -> String {
    match KubernetesApi.classify(head) {
        Class::Pass => "pass".to_owned(),
        Class::Refuse(rejection) => format!("refused: {rejection}"),
        Class::Inspect(inspection) => {
            format!("{} {}", inspection.operation, inspection.resource.unwrap())
        }
    }
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;

fn object(text: &str) -> Option<Object> {
    Some(Object::parse(text).unwrap())
}

#[test]
#[rustfmt::skip]
fn method_and_path_determine_which_requests_chains_inspect() {
    const PODS: &str = "/api/v1/namespaces/n/pods";
    for (method, path, headers, expected) in [
        ("GET", PODS, &[][..], "pass"),
        ("HEAD", PODS, &[], "pass"),
        ("GET", "/api/v1/namespaces/n/pods?watch=true", &[("upgrade", "websocket")], "pass"),
        ("POST", PODS, &[], "CREATE v1/pods"),
        ("PUT", "/api/v1/namespaces/n/pods/a", &[], "UPDATE v1/pods"),
        ("PATCH", "/api/v1/namespaces/n/pods/a/status", &[], "UPDATE v1/pods"),
        ("DELETE", "/api/v1/namespaces/n/pods/a", &[], "DELETE v1/pods"),
        ("DELETE", PODS, &[], "DELETE v1/pods"),
        ("POST", "/api/v1/namespaces/n/pods/a/exec?command=sh", &[], "CONNECT v1/pods"),
        ("GET", "/api/v1/namespaces/n/pods/a/exec?command=sh", &[("upgrade", "websocket")], "CONNECT v1/pods"),
        ("DELETE", "/api/v1/namespaces/n/services/a/proxy/x", &[], "CONNECT v1/services"),
        ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/a/console", &[("upgrade", "websocket")], "CONNECT subresources.kubevirt.io/v1/virtualmachineinstances"),
        ("PUT", "/api/v1/namespaces/n/pods/a/status", &[("upgrade", "websocket")], "refused: a write to a subresource must not ask to switch protocols"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &[], "pass"),
        ("PUT", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/a", &[], "pass"),
        ("POST", "/version", &[], "pass"),
        ("TRACE", PODS, &[], "refused: the Kubernetes API has no method TRACE"),
        ("POST", "/version/../api/v1/namespaces/n/pods", &[], "refused: the path \"/version/../api/v1/namespaces/n/pods\" has a dot segment: servers may read it differently"),
    ] {
        assert_eq!(class_text(&head(method, path, headers)), expected, "{method} {path}");
    }
    let mut patch = head("PATCH", "/api/v1/namespaces/n/pods/a", &[]);
    patch.extensions.insert(StoredState::default());
    assert_eq!(class_text(&patch), "CREATE v1/pods");
}

fn read_request(head: &Parts, body: &str) -> Result<BodyReading, Rejection> {
    let Class::Inspect(inspection) = KubernetesApi.classify(head) else {
        panic!("{head:?}")
    };
    KubernetesApi.read_body(head, &inspection, &Bytes::copy_from_slice(body.as_bytes()))
}

#[test]
fn creations_and_updates_are_read_from_the_body() {
    let uri = "/api/v1/namespaces/n/pods?dryRun=All&fieldManager=kubectl";
    let mut create = head("POST", uri, &[("content-type", "application/json; charset=utf-8")]);
    let user = UserInfo {
        username: "plain.alice".to_owned(),
        ..UserInfo::default()
    };
    create.extensions.insert(user.clone());
    let Ok(BodyReading::Admit { request, .. }) = read_request(&create, POD) else {
        panic!()
    };
    assert_eq!((request.name.as_str(), request.namespace.as_deref()), ("a", Some("n")));
    assert_eq!(request.kind.to_string(), "v1/Pod");
    assert_eq!(request.user, user);
    assert!(request.dry_run && request.old_object.is_none());
    assert_eq!(
        *request.options.unwrap().value(),
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "kubectl"})
    );

    let mut update = head("PUT", "/api/v1/namespaces/n/pods/a", &[]);
    assert!(
        read_request(&update, POD)
            .unwrap_err()
            .message
            .contains("send the request again")
    );
    update.extensions.insert(StoredState {
        object: object(POD),
        patched_object: None,
    });
    let Ok(BodyReading::Admit { request, .. }) = read_request(&update, POD) else {
        panic!()
    };
    assert!(request.old_object.is_some() && !request.dry_run);
}

#[test]
fn the_objects_of_patches_deletions_and_connections_cannot_be_changed() {
    let state = StoredState {
        object: object(POD),
        patched_object: object(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"y"}}}"#),
    };
    let mut patch = head(
        "PATCH",
        "/api/v1/namespaces/n/pods/a",
        &[("content-type", "application/merge-patch+json")],
    );
    patch.extensions.insert(state.clone());
    let Ok(BodyReading::Fixed { request, rejection }) = read_request(&patch, r#"{"metadata":{"labels":{"x":"y"}}}"#)
    else {
        panic!()
    };
    assert_eq!(request.object.unwrap().labels()["x"], "y");
    assert!(rejection.message.contains("an update"), "{rejection}");

    let all = read_request(&head("DELETE", "/api/v1/namespaces/n/pods", &[]), "").unwrap_err();
    assert!(all.message.contains("delete each"), "{all}");

    let mut delete = head("DELETE", "/api/v1/namespaces/n/pods/a", &[]);
    assert!(read_request(&delete, "").is_err());
    delete.extensions.insert(StoredState {
        patched_object: None,
        ..state
    });
    let Ok(BodyReading::Fixed { request, .. }) = read_request(&delete, r#"{"kind":"DeleteOptions","dryRun":["All"]}"#)
    else {
        panic!()
    };
    assert!(request.object.is_none() && request.dry_run);
    assert_eq!(
        (request.kind.to_string(), request.name.as_str()),
        ("v1/Pod".to_owned(), "a")
    );
    // The query of both requests asks for a dry run. It has an effect only in the request without a body, because the
    // API server ignores the query if there is a body.
    delete.uri = "/api/v1/namespaces/n/pods/a?dryRun=All".parse().unwrap();
    for (body, expected) in [("", true), (r#"{"kind":"DeleteOptions"}"#, false)] {
        let Ok(BodyReading::Fixed { request, .. }) = read_request(&delete, body) else {
            panic!("{body}")
        };
        assert_eq!(request.dry_run, expected, "{body}");
    }

    for (path, kind, options) in [
        (
            "pods/a/exec?command=sh&command=-c&stdin=true&tty=false&container=c",
            "PodExecOptions",
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "tty": false, "container": "c",
                   "command": ["sh", "-c"]}),
        ),
        (
            "pods/a/portforward?ports=80,81",
            "PodPortForwardOptions",
            json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80, 81]}),
        ),
        (
            "services/a/proxy/x/y",
            "ServiceProxyOptions",
            json!({"kind": "ServiceProxyOptions", "apiVersion": "v1", "path": "x/y"}),
        ),
        (
            "pods/proxy/%70roxy/%78/y/?path=other",
            "PodProxyOptions",
            json!({"kind": "PodProxyOptions", "apiVersion": "v1", "path": "x/y/"}),
        ),
        (
            "pods/a/proxy?path=other&dryRun=All",
            "PodProxyOptions",
            json!({"kind": "PodProxyOptions", "apiVersion": "v1"}),
        ),
    ] {
        let head = head("POST", &format!("/api/v1/namespaces/n/{path}"), &[]);
        let Ok(BodyReading::Fixed { request, .. }) = read_request(&head, "") else {
            panic!("{path}")
        };
        assert!(!request.dry_run, "{path}");
        assert_eq!(request.kind.kind, kind);
        assert_eq!(*request.object.unwrap().value(), options);
    }
}

#[test]
#[rustfmt::skip]
fn a_body_that_servers_could_read_differently_is_refused() {
    const JSON: &str = "application/json";
    for (media_type, body, expected) in [
        ("application/yaml", "kind: Pod", "send application/json"),
        ("application/vnd.kubernetes.protobuf", "k8s", "send application/json"),
        (JSON, "{", "the body of the request: not a JSON object"),
        (JSON, "[]", "not a JSON object"),
        (JSON, r#"{"metadata":{"name":"a"}}"#, "need `apiVersion` and `kind`"),
        (JSON, r#"{"apiVersion":"v1","kind":"Pod","spec":{"a":1},"spec":{"b":1}}"#, "duplicate key `spec`"),
        (JSON, r#"{"apiVersion":"v1","kind":"Pod","Kind":"Node"}"#, "two spellings"),
        (JSON, r#"{"apiVersion":"v1","Kind":"Pod"}"#, "not spelled as documented"),
    ] {
        let error = read_request(&head("POST", "/api/v1/pods", &[("content-type", media_type)]), body).unwrap_err();
        assert!(error.message.contains(expected), "{body}: {error}");
    }
}

#[test]
fn a_refusal_is_answered_with_a_kubernetes_status() {
    let rejection = Rejection::new(RejectionKind::MediaType, "no");
    let reply = KubernetesApi.reply(&EndReason::Rejected(&rejection));
    assert_eq!(reply.status(), 415);
    let status: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                          "message": "no", "reason": "UnsupportedMediaType", "code": 415});
    assert_eq!(status, expected);
}
