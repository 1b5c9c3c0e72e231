use std::time::Duration;

use admittance_admission::{Denial, GroupVersionResource};
use http::{HeaderName, Method};

use super::*;

fn jobs() -> GroupVersionResource {
    GroupVersionResource {
        resource: "jobs".into(),
        version: "v1".into(),
        ..Default::default()
    }
}

fn pointer(text: &str) -> Pointer {
    text.parse().unwrap()
}

/// As the example for Nomad has it.
fn register(path: &str) -> Route {
    Route {
        namespace: vec![
            ValueSource::Query("namespace".into()),
            ValueSource::Pointer(pointer("/Namespace")),
            ValueSource::Pointer(pointer("/Job/Namespace")),
            ValueSource::Fixed("default".into()),
        ],
        name: vec![ValueSource::Pointer(pointer("/Job/ID"))],
        object: pointer("/Job"),
        spellings: vec!["/Job/TaskGroups/*/Tasks/*/Config".parse().unwrap()],
        ..Route::new(
            [Method::PUT, Method::POST],
            path,
            Operation::Create,
            jobs(),
            KindSource::Fixed("Job".into()),
        )
    }
}

fn nomad() -> Rest {
    Rest::new(RestConfig {
        routes: vec![
            register("/v1/jobs"),
            Route {
                optional: true,
                operation: Operation::Update,
                ..register("/v1/job/{*id}")
            },
            Route {
                name: vec![ValueSource::Path("id".into())],
                namespace: vec![ValueSource::Header(HeaderName::from_static("x-namespace"))],
                ..Route::new(
                    [Method::DELETE],
                    "/v1/job/{id}",
                    Operation::Delete,
                    jobs(),
                    KindSource::Fixed("Job".into()),
                )
            },
        ],
    })
    .unwrap()
}

fn head(method: &str, uri: &str) -> Parts {
    http::Request::builder()
        .method(method)
        .uri(uri)
        .body(())
        .unwrap()
        .into_parts()
        .0
}

fn inspect(head: &Parts) -> Inspection {
    match nomad().classify(head) {
        Class::Inspect(inspection) => inspection,
        other => panic!("{} is {other:?}", head.uri),
    }
}

#[test]
fn routes() {
    for (method, uri, expected) in [
        ("PUT", "/v1/jobs", Some(Operation::Create)),
        ("POST", "/v1/jobs?namespace=a", Some(Operation::Create)),
        ("POST", "/v1/jobs/", Some(Operation::Create)),
        ("POST", "/v1//jobs", Some(Operation::Create)),
        ("POST", "/v1/%6aobs", Some(Operation::Create)),
        ("POST", "/x/../v1/jobs", Some(Operation::Create)),
        ("POST", "/v1%2Fjobs", Some(Operation::Create)),
        ("GET", "/v1/jobs", None),
        ("POST", "/v1/job/a", Some(Operation::Update)),
        ("POST", "/v1/job/a/b", Some(Operation::Update)),
        ("DELETE", "/v1/job/a", Some(Operation::Delete)),
        ("DELETE", "/v1/job/a%2Fb", Some(Operation::Delete)),
        ("POST", "/v1/nodes", None),
    ] {
        let got = match nomad().classify(&head(method, uri)) {
            Class::Inspect(inspection) => {
                let outline = inspection.outline();
                assert_eq!(outline.resource, Some(&jobs()));
                assert_eq!(outline.kind, Some("Job"));
                Some(inspection.operation)
            }
            Class::Pass => None,
            Class::Refuse(rejection) => panic!("{rejection}"),
        };
        assert_eq!(got, expected, "{method} {uri}");
    }
}

#[test]
fn bodies() {
    // (case, method, uri, body, expectation: namespace name object, or `nothing`, or the reason)
    for (case, method, uri, body, expected) in [
        (
            "whole",
            "PUT",
            "/v1/jobs",
            r#"{"Job": {"ID":"a","Namespace":"n"}, "EnforceIndex": true}"#,
            r#"n a {"ID":"a","Namespace":"n"}"#,
        ),
        (
            "the query comes first",
            "PUT",
            "/v1/jobs?namespace=q%20r",
            r#"{"Job":{"ID":"a","Namespace":"n"},"Namespace":"m"}"#,
            r#"q r a {"ID":"a","Namespace":"n"}"#,
        ),
        (
            "an empty one does not count",
            "PUT",
            "/v1/jobs?namespace=",
            r#"{"Job":{"ID":"a","Namespace":null},"Namespace":""}"#,
            r#"default a {"ID":"a","Namespace":null}"#,
        ),
        (
            "keys in another case",
            "PUT",
            "/v1/jobs",
            r#"{"job":{"id":"a","taskgroups":[{"tasks":[{"config":{"Image":"x"}}]}]}}"#,
            r#"default a {"ID":"a","TaskGroups":[{"Tasks":[{"Config":{"Image":"x"}}]}]}"#,
        ),
        ("optional", "POST", "/v1/job/a/scale", r#"{"Count":3}"#, "nothing"),
        ("optional and empty", "POST", "/v1/job/a/evaluate", "", "nothing"),
        (
            "optional but there",
            "POST",
            "/v1/job/a",
            r#"{"JOB":{"ID":"a"}}"#,
            r#"default a {"ID":"a"}"#,
        ),
        ("without a body", "DELETE", "/v1/job/a%2Fb", "", "- a/b -"),
        (
            "missing",
            "PUT",
            "/v1/jobs",
            "{}",
            "the body is not what this route takes: there is nothing at /Job",
        ),
        (
            "empty",
            "PUT",
            "/v1/jobs",
            "",
            "the body is not what this route takes: it is empty",
        ),
        (
            "array",
            "PUT",
            "/v1/jobs",
            "[]",
            "the body is not what this route takes: not a JSON object",
        ),
        (
            "not an object",
            "PUT",
            "/v1/jobs",
            r#"{"Job":"a"}"#,
            "the body is not what this route takes: at `/Job`: not a JSON object",
        ),
        (
            "a name that is no text",
            "PUT",
            "/v1/jobs",
            r#"{"Job":{"ID":1}}"#,
            "the body is not what this route takes: what is at /Job/ID is not a text",
        ),
        (
            "two jobs",
            "PUT",
            "/v1/jobs",
            r#"{"Job":{},"job":{}}"#,
            "the body can be read in two ways: `Job` and `job` are two spellings of one key; keep `Job`",
        ),
        (
            "two namespaces",
            "PUT",
            "/v1/jobs?namespace=a&namespace=b",
            r#"{"Job":{"ID":"a"}}"#,
            "the query has `namespace` more than once",
        ),
        (
            "a semicolon",
            "PUT",
            "/v1/jobs?namespace=a;b",
            r#"{"Job":{"ID":"a"}}"#,
            "the query holds a semicolon or a broken escape",
        ),
        (
            "a broken escape",
            "PUT",
            "/v1/jobs?namespace=a%2",
            r#"{"Job":{"ID":"a"}}"#,
            "the query holds a semicolon or a broken escape",
        ),
    ] {
        let head = head(method, uri);
        let got = match nomad().read(&head, &inspect(&head), &Bytes::from(body)) {
            Ok(Reading::Nothing) => "nothing".to_owned(),
            Ok(Reading::Admit { request, .. }) => format!(
                "{} {} {}",
                request.namespace.as_deref().unwrap_or("-"),
                request.name,
                request.object.as_ref().map_or("-", Object::text),
            ),
            Err(rejection) => rejection.to_string(),
        };
        assert!(got.starts_with(expected), "{case}: {got}");
    }
}

#[test]
fn headers_are_a_source_too() {
    let mut head = head("DELETE", "/v1/job/a");
    let inspection = inspect(&head);
    head.headers.insert("x-namespace", HeaderValue::from_static("n"));
    let Ok(Reading::Admit { request, .. }) = nomad().read(&head, &inspection, &Bytes::new()) else {
        panic!("it is a request");
    };
    assert_eq!(request.namespace.as_deref(), Some("n"));
    head.headers.append("x-namespace", HeaderValue::from_static("m"));
    assert!(nomad().read(&head, &inspection, &Bytes::new()).is_err());
}

#[test]
fn the_object_is_spliced_back() {
    let head = head("PUT", "/v1/jobs");
    let inspection = inspect(&head);
    let body =
        Bytes::from_static(br#" {"EnforceIndex": 12345678901234567890123, "Job" : {"ID": "a"} , "x":1.0}"#);
    let object = Object::parse(r#"{"ID":"a","Meta":{}}"#).unwrap();
    assert_eq!(
        nomad().write(&inspection, &body, &object),
        &br#" {"EnforceIndex": 12345678901234567890123, "Job" : {"ID":"a","Meta":{}} , "x":1.0}"#[..]
    );
}

#[test]
fn identity_is_what_name_and_namespace_come_from() {
    let prepared = Prepared::new(0, register("/v1/jobs")).unwrap();
    let expected = IdentityFields::new([pointer("/Namespace"), pointer("/ID")]);
    assert_eq!(prepared.identity, expected);
    let route = Route {
        identity: Some(vec![pointer("/Job/Type")]),
        ..register("/v1/jobs")
    };
    let prepared = Prepared::new(0, route).unwrap();
    assert_eq!(prepared.identity, IdentityFields::new([pointer("/Type")]));
}

/// The object that a stage leaves is held to the spelling of the body, from the object's place on.
#[test]
fn the_object_has_the_spelling_of_the_body() {
    let prepared = Prepared::new(0, register("/v1/jobs")).unwrap();
    let respelled = prepared
        .object_spelling
        .canonical(r#"{"id":"a","NAMESPACE":"b","Job":{}}"#);
    assert_eq!(
        respelled.unwrap().as_deref(),
        Some(r#"{"ID":"a","Namespace":"b","Job":{}}"#)
    );
    assert!(
        prepared
            .object_spelling
            .canonical(r#"{"ID":"a","Id":"b"}"#)
            .is_err()
    );
}

#[test]
fn wrong_routes() {
    let config = RestConfig {
        routes: vec![
            register("v1/jobs"),
            register("/v1/{id"),
            Route {
                methods: Vec::new(),
                name: vec![ValueSource::Path("id".into())],
                identity: Some(vec![pointer("/Namespace")]),
                ..register("/v1/jobs")
            },
        ],
    };
    let errors: Vec<String> = Rest::new(config)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    for (error, expected) in errors.iter().zip([
        "routes[0].path: `v1/jobs` is no path template: it does not start with `/`",
        "routes[1].path: `/v1/{id` is no path template",
        "routes[2].method: name at least one method",
        "routes[2].name: the path has no parameter `id`; write {id} into it",
        "routes[2].identity: `/Namespace` is not in the object at `/Job`",
    ]) {
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(errors.len(), 5);
}

#[test]
fn replies() {
    let denied = Refusal::Denied {
        chain: "c".into(),
        stage: "s".into(),
        denial: Denial::new(422, "Unfit", "no"),
    };
    let rejection = Rejection::new(RejectionKind::Malformed, "bad");
    let second = Duration::from_secs(1);
    for (end, status, reason) in [
        (End::Refused(&denied), 422, "Unfit"),
        (End::Rejected(&rejection), 400, "Malformed"),
        (End::BodyTooLarge { limit: 1 }, 413, "BodyTooLarge"),
        (End::BodyTimeout { limit: second }, 408, "BodyTimeout"),
        (End::BodyUnreadable { reason: "x" }, 400, "BodyUnreadable"),
        (End::BodyEncoded { encoding: "br" }, 415, "BodyEncoded"),
        (End::NoRoute, 404, "NoRoute"),
        (End::Overloaded { retry_after: second }, 503, "Overloaded"),
        (
            End::UpstreamUnreachable { reason: "x" },
            502,
            "UpstreamUnreachable",
        ),
        (End::UpstreamTimeout { limit: second }, 504, "UpstreamTimeout"),
    ] {
        let response = nomad().reply(&end);
        assert_eq!(response.status(), status, "{end:?}");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            body,
            json!({"error": {"code": status, "reason": reason, "message": end.to_string()}})
        );
        assert_eq!(response.headers().contains_key(RETRY_AFTER), status == 503);
    }
}
