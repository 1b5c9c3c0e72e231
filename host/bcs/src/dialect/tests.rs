use std::{sync::LazyLock, time::Duration};

use http::{
    HeaderValue,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde_json::json;

use super::*;
use admittance_admission::{Denial, Failure, FailureKind, RefusalCause, RequestRefusal};

use crate::{
    forwarding, relay,
    scheduler::{NextBody, OtherServer, Relay, RewrittenRequest, SchedulerForwarding},
};

mod calls;
mod routes;
mod translation;
mod vectors;

const CLUSTER: &str = "BCS-MESOS-10001";
const APPLICATIONS: &str = "/mesosdriver/v4/namespaces/ns/applications";

static DRIVER_FRONT: LazyLock<Bcs> = LazyLock::new(|| Bcs::new(CLUSTER.parse().unwrap()));
static SCHEDULER_FRONT: LazyLock<Bcs> =
    LazyLock::new(|| DRIVER_FRONT.clone().with_upstream_kind(UpstreamKind::Scheduler));

fn driver_front() -> &'static Bcs {
    &DRIVER_FRONT
}

fn scheduler_front() -> &'static Bcs {
    &SCHEDULER_FRONT
}

/// Describes in one line how a request is handled.
fn describe(forwarding: SchedulerForwarding) -> String {
    match forwarding {
        SchedulerForwarding::Rewritten(RewrittenRequest {
            method,
            path_and_query,
            body,
            ..
        }) => {
            format!("{method} {path_and_query}{}", describe_body(&body))
        }
        SchedulerForwarding::OtherServer(OtherServer::Console { host, path_and_query }) => {
            format!("console {host} {path_and_query}")
        }
        SchedulerForwarding::OtherServer(OtherServer::CustomResourceDefinitions { path_and_query, body }) => {
            format!("kubernetes {path_and_query}{}", describe_body(&body))
        }
        SchedulerForwarding::OtherServer(OtherServer::CustomResources { path_and_query }) => {
            format!("kubernetes {path_and_query} as it is")
        }
        SchedulerForwarding::Reply(response) => {
            let text = body_text(&response);
            let message = match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(envelope) => envelope["message"].as_str().unwrap().to_owned(),
                Err(_) => text,
            };
            let allow_header = response
                .headers()
                .get("allow")
                .map(|value| format!(" {}", value.to_str().unwrap()));
            format!(
                "{} {message}{}",
                response.status().as_u16(),
                allow_header.unwrap_or_default()
            )
        }
    }
}

fn translate(head: &Parts, body: &Bytes) -> SchedulerForwarding {
    forwarding(head, Some(body)).unwrap()
}

fn describe_body(body: &NextBody) -> String {
    match body {
        NextBody::Nothing => String::new(),
        NextBody::AsIs => " as it is".to_owned(),
        NextBody::New(body) => format!(" {}", String::from_utf8(body.to_vec()).unwrap()),
    }
}

fn request_head(method: &str, path: &str, clusters: &[&str]) -> Parts {
    let mut request = http::Request::builder().method(method).uri(path);
    for cluster in clusters {
        request = request.header("bcs-clusterid", *cluster);
    }
    request.body(()).unwrap().into_parts().0
}

fn body_text(response: &Response<Bytes>) -> String {
    String::from_utf8(response.body().to_vec()).unwrap()
}

#[test]
#[rustfmt::skip]
fn requests_are_classified_by_method_and_path() {
    let own_cluster: &[&str] = &[CLUSTER];
    // (method, path, values of `BCS-ClusterID`, expected classification)
    for (method, path, clusters, expected) in [
        ("POST", APPLICATIONS, own_cluster, "CREATE"),
        ("PUT", APPLICATIONS, own_cluster, "UPDATE"),
        ("PUT", "/mesosdriver/v4/namespaces/ns/applications/rollback", own_cluster, "UPDATE"),
        ("GET", APPLICATIONS, own_cluster, "pass"),
        ("DELETE", "/mesosdriver/v4/namespaces/ns/applications/a", own_cluster, "pass"),
        ("PATCH", APPLICATIONS, own_cluster, "the request is ambiguous: its method is none of the driver's"),
        ("post", APPLICATIONS, own_cluster, "the request is ambiguous: its method is none of the driver's"),
        ("PATCH", "/mesosdriver/v4/customresources/a/b", own_cluster, "pass"),
        ("PATCH", "/other", &[], "pass"),
        // Lenient servers could understand these unusual paths as paths of routes.
        ("POST", "/MesosDriver/V4/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/mesosdriver;x/v4/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/mesosdriver%5Cv4/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/%256desosdriver/v4/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/mesosdriver/v4%00/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("PUT", "/x;/..;/mesosdriver/v4/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/mesosdriver/v4/webconsole/..;/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/mesosdriver/v4/webconsole/%252e%252e/namespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("POST", "/mesosdriver/v4/customresources/..%5Cnamespaces/ns/applications", own_cluster, "the request is ambiguous: some servers"),
        ("GET", "/MesosDriver/v4/namespaces/ns/applications", own_cluster, "pass"),
        ("GET", "/mesosdriver/v4/namespaces/ns/applications?_method=PUT", own_cluster, "the request is ambiguous: the query parameter"),
        ("POST", APPLICATIONS, &[], "http header BCS-ClusterID  don't exist"),
        ("GET", APPLICATIONS, &[], "http header BCS-ClusterID  don't exist"),
        ("POST", APPLICATIONS, &["bcs-mesos-10001"], "http header BCS-ClusterID bcs-mesos-10001 don't exist"),
        ("POST", APPLICATIONS, &[CLUSTER, "BCS-MESOS-2"], "http header BCS-ClusterID BCS-MESOS-2 don't exist"),
        ("POST", "/mesosdriver/v4/webconsole/x?host_ip=1", own_cluster, "pass"),
        ("POST", "/mesosdriver/v4/webconsole/x", &[], "http header BCS-ClusterID  don't exist"),
        ("POST", "/mesosdriver/v4/customresources/a/b", own_cluster, "pass"),
        ("POST", "/mesosdriver/v4/customresourcedefinitions", own_cluster, "pass"),
        ("POST", "/mesosdriver/v4/webconsole/../namespaces/ns/applications", own_cluster, "CREATE"),
        ("POST", "/mesosdriver/v4/webconsole/%2e%2e/namespaces/ns/applications", own_cluster, "CREATE"),
        ("POST", "/mesosdriver/v4/webconsole/..%2Fnamespaces/ns/applications", own_cluster, "CREATE"),
        ("POST", "/mesosdriver/v4/x/../webconsole/x", own_cluster, "CREATE"),
        ("POST", "/mesosdriver//v4/namespaces/ns/applications", own_cluster, "CREATE"),
        ("POST", "/%6desosdriver/v4/namespaces/ns/applications", own_cluster, "CREATE"),
        ("POST", "/mesosdriver%2Fv4/namespaces/ns/applications", own_cluster, "CREATE"),
        ("POST", "/other", &[], "pass"),
        ("POST", "/mesosdriver/v44/x", &[], "pass"),
    ] {
        let classification = match driver_front().classify(&request_head(method, path, clusters)) {
            Class::Pass => "pass".to_owned(),
            Class::Refuse(rejection) => rejection.to_string(),
            Class::Inspect(inspection) => inspection.operation.to_string(),
        };
        if expected.starts_with("the request is ambiguous") {
            assert!(classification.starts_with(expected), "{method} {path}: {classification}");
            let class = scheduler_front().classify(&request_head(method, path, clusters));
            assert!(!matches!(class, Class::Refuse(_)), "{method} {path}: {class:?}");
        } else {
            assert_eq!(classification, expected, "{method} {path} {clusters:?}");
        }
    }
}

#[test]
#[rustfmt::skip]
fn the_object_of_a_request_is_identified_by_its_body() {
    let application = r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"a","namespace":"n"}}"#;
    let deep = format!(
        r#"{{"kind":"application","x":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    // (case, body, expected `group/version/kind resource namespace name`, `nothing`, or the reason for the refusal)
    for (case, body, expected) in [
        ("application", application, "v4/application applications n a"),
        ("process", r#"{"apiVersion":"v4","kind":"process","metadata":{"name":"p","namespace":"n"}}"#, "v4/process processes n p"),
        ("no namespace stays none", r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"a"}}"#, "v4/application applications - a"),
        ("an empty namespace is none", r#"{"kind":"application","metadata":{"name":"a","namespace":""}}"#, "application applications - a"),
        ("no metadata", r#"{"kind":"deployment"}"#, "deployment deployments - "),
        ("null metadata", r#"{"kind":"deployment","metadata":null}"#, "deployment deployments - "),
        ("empty", "", "nothing"),
        ("array", "[1]", "json decode failed!the object has no `kind`"),
        ("no kind", r#"{"name":"a","msgtype":"signal"}"#, "json decode failed!the object has no `kind`"),
        ("null kind", r#"{"kind":null}"#, "json decode failed!the object has no `kind`"),
        ("empty kind", r#"{"kind":""}"#, "json decode failed!the object has no `kind`"),
        ("no kind, odd metadata", r#"{"metadata":5}"#, "json decode failed!the object has no `kind`"),
        ("kind in another case", r#"{"Kind":"application","METADATA":{"Name":"a","nameSpace":"n"}}"#, "application applications n a"),
        ("white space", "  ", "json decode failed!EOF while parsing a value at line 1 column 2"),
        ("not JSON", "{", "json decode failed!EOF while parsing an object at line 1 column 1"),
        ("array that is not JSON", "[1", "json decode failed!EOF while parsing a list at line 1 column 2"),
        ("null", "null", "json decode failed!"),
        ("200 levels, which Go reads", deep.as_str(), "json decode failed!not a JSON object: recursion limit exceeded"),
        ("number", "1", "json decode failed!"),
        ("kind of another type", r#"{"kind":1}"#, "json decode failed!invalid type: integer `1`"),
        ("metadata of another type", r#"{"kind":"application","metadata":5}"#, "json decode failed!invalid type: integer `5`"),
        ("namespace of another type", r#"{"kind":"application","metadata":{"namespace":1}}"#, "json decode failed!invalid type: integer `1`"),
        ("two kinds", r#"{"kind":"configmap","Kind":"application"}"#, "json decode failed!`kind` and `Kind` are two spellings of one key; keep `kind`"),
        ("two specs", r#"{"kind":"application","spec":{},"spec":{}}"#, "json decode failed!duplicate key `spec` in an object; remove one of them"),
    ] {
        let head = request_head("POST", APPLICATIONS, &[CLUSTER]);
        let body = Bytes::copy_from_slice(body.as_bytes());
        let summary = match driver_front().read_body(&head, &Inspection::new(Operation::Create), &body) {
            Ok(BodyReading::Nothing) => "nothing".to_owned(),
            Ok(BodyReading::Admit { request, .. } | BodyReading::Fixed { request, .. }) => format!(
                "{} {} {} {}",
                request.kind,
                request.resource.resource,
                request.namespace.as_deref().unwrap_or("-"),
                request.name
            ),
            Err(rejection) => rejection.to_string(),
        };
        if expected.starts_with("json decode") {
            assert!(summary.starts_with(expected), "{case}: {summary}");
        } else {
            assert_eq!(summary, expected, "{case}");
        }
    }
    let object = Bytes::from_static(b"{\"name\":\"a\",\"msgtype\":\"signal\"}");
    for (path, front, is_refused) in [
        (APPLICATIONS, driver_front(), true),
        (APPLICATIONS, scheduler_front(), false),
        ("/mesosdriver/v4/namespaces/ns/Applications", driver_front(), true),
        ("/mesosdriver/v4/namespaces/ns/applications;x", driver_front(), true),
        ("/mesosdriver/v4/agentsettings", driver_front(), false),
        ("/mesosdriver/v4/command/application/ns/a", driver_front(), false),
    ] {
        let reading = front.read_body(&request_head("POST", path, &[CLUSTER]), &Inspection::new(Operation::Create), &object);
        assert_eq!(reading.is_err(), is_refused, "{path}");
    }
    // Go's decoder would replace the invalid UTF-8 in this body. Here, the body is refused.
    let head = request_head("POST", APPLICATIONS, &[CLUSTER]);
    let body = Bytes::from_static(b"{\"kind\":\"a\xff\"}");
    assert!(
        driver_front()
            .read_body(&head, &Inspection::new(Operation::Create), &body)
            .is_err()
    );
}

#[test]
fn a_canonical_body_is_returned_only_if_it_differs_from_the_body() {
    let head = request_head("POST", APPLICATIONS, &[CLUSTER]);
    let read_body = |body: &'static str| {
        let inspection = Inspection::new(Operation::Update);
        match driver_front()
            .read_body(&head, &inspection, &Bytes::from(body))
            .unwrap()
        {
            BodyReading::Nothing | BodyReading::Fixed { .. } => panic!("there is a request in {body}"),
            BodyReading::Admit { request, canonical } => (request, canonical),
        }
    };
    let (request, canonical) = read_body(r#"{ "kind" : "application", "x": 1.0 }"#);
    assert_eq!(canonical, None);
    assert_eq!(
        request.object.unwrap().text(),
        r#"{ "kind" : "application", "x": 1.0 }"#
    );
    assert_eq!(request.operation, Operation::Update);

    let (request, canonical) =
        read_body(r#"{"kind":"application","Spec":{"template":{"spec":{"Containers":[{"Image":"a"}]}}}}"#);
    let expected = r#"{"kind":"application","spec":{"template":{"spec":{"containers":[{"image":"a"}]}}}}"#;
    assert_eq!(canonical.unwrap(), expected);
    assert_eq!(request.object.unwrap().text(), expected);
}

#[test]
#[rustfmt::skip]
fn a_request_that_is_not_forwarded_gets_the_reply_of_bcs_mesos_driver() {
    let refusal = |cause| RequestRefusal { chain: "c".into(), stage: "s".into(), cause };
    let denied = refusal(RefusalCause::Denied(Denial::new(422, "Bad", "no \"latest\" here")));
    let failed = refusal(RefusalCause::Failed(Failure::new(FailureKind::Trap, "it broke")));
    let wrong_cluster = Rejection::new(
        RejectionKind::WrongCluster,
        "http header BCS-ClusterID x don't exist",
    );
    let malformed = Rejection::new(RejectionKind::Malformed, "json decode failed!x");
    // (reason for the reply, expected status, expected code, a part of the message)
    for (end, status, code, message) in [
        (EndReason::Refused(&denied), 400, 1_405_234, "stage s of chain c denied the request: no \\\"latest\\\" here"),
        (EndReason::Refused(&failed), 400, 1_405_234, "request webhoook s error stage s of chain c failed (trap): it broke"),
        (EndReason::Rejected(&wrong_cluster), 400, 1_405_234, "http header BCS-ClusterID x don't exist"),
        (EndReason::Rejected(&malformed), 400, 1_405_010, "json decode failed!x"),
        (EndReason::BodyTooLarge { limit: 7 }, 413, 1_405_012, "larger than the 7 bytes"),
        (EndReason::BodyTimeout { limit: Duration::from_secs(2) }, 408, 1_405_012, "did not arrive within 2s"),
        (EndReason::BodyUnreadable { reason: "cut off" }, 400, 1_405_012, "cannot be read: cut off"),
        (EndReason::BodyEncoded { encoding: "gzip" }, 415, 1_405_012, "`gzip`"),
        (EndReason::Overloaded { retry_after: Duration::ZERO, reason: "too much" }, 503, 1_405_230, "too much"),
    ] {
        let response = driver_front().reply(&end);
        let text = body_text(&response);
        assert_eq!(response.status(), status, "{text}");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let (start, finish) = (
            format!("{{\n \"result\": false,\n \"code\": {code},\n \"message\": \""),
            "\",\n \"data\": null\n}",
        );
        assert!(text.starts_with(&start) && text.ends_with(finish), "{text}");
        assert!(text.contains(message), "{text}");
    }
    let response = driver_front().reply(&EndReason::UpstreamUnreachable { reason: "no server" });
    assert_eq!(response.status(), 200);
    assert_eq!(
        body_text(&response),
        r#"{"result":false,"code":1405009,"message":"do http request failed!no server","data":{}}"#
    );
    let overloaded = EndReason::Overloaded {
        retry_after: Duration::from_millis(10),
        reason: "too much",
    };
    assert_eq!(driver_front().reply(&overloaded).headers()[RETRY_AFTER], "1");
    assert_eq!(
        driver_front()
            .reply(&EndReason::BodyUnreadable { reason: "a\r\nb: c" })
            .headers()
            .len(),
        1
    );
}

#[test]
fn every_key_of_a_bcs_object_is_a_valid_json_pointer_pattern() {
    assert_eq!(
        HOOK_KEYS
            .iter()
            .filter(|key| key.parse::<PointerPattern>().is_ok())
            .count(),
        HOOK_KEYS.len()
    );
    let pattern_count = types::DEPLOYMENT.patterns().len();
    assert_eq!(pattern_count, types::DEPLOYMENT.key_paths().len());
}
