use std::time::Duration;

use admittance_admission::{Denial, GroupVersionResource, Operation, RequestRefusal};
use http::{HeaderName, HeaderValue, Method, header::RETRY_AFTER};
use serde_json::Value;

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

/// The route with which Nomad registers jobs, as in the example configuration.
fn register_route(path: &str) -> RestRoute {
    RestRoute {
        namespace: vec![
            ValueSource::Query("namespace".into()),
            ValueSource::Pointer(pointer("/Namespace")),
            ValueSource::Pointer(pointer("/Job/Namespace")),
            ValueSource::Fixed("default".into()),
        ],
        name: vec![ValueSource::Pointer(pointer("/Job/ID"))],
        object: pointer("/Job"),
        spellings: vec!["/Job/TaskGroups/*/Tasks/*/Config".parse().unwrap()],
        ..RestRoute::new(
            [Method::PUT, Method::POST],
            path,
            Operation::Create,
            jobs(),
            KindSource::Fixed("Job".into()),
        )
    }
}

fn nomad_dialect() -> Rest {
    nomad_dialect_with(UnmatchedWrites::Pass)
}

fn nomad_dialect_with(unmatched: UnmatchedWrites) -> Rest {
    Rest::new(RestConfig {
        unmatched_writes: unmatched,
        routes: vec![
            register_route("/v1/jobs"),
            RestRoute {
                optional: true,
                operation: Operation::Update,
                ..register_route("/v1/job/{*id}")
            },
            RestRoute {
                name: vec![ValueSource::Path("id".into())],
                namespace: vec![ValueSource::Header(HeaderName::from_static("x-namespace"))],
                ..RestRoute::new(
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
    match nomad_dialect().classify(head) {
        Class::Inspect(inspection) => inspection,
        other => panic!("{} is {other:?}", head.uri),
    }
}

#[test]
fn the_first_route_that_matches_method_and_path_applies() {
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
        let actual = match nomad_dialect().classify(&head(method, uri)) {
            Class::Inspect(inspection) => {
                let outline = inspection.outline();
                assert_eq!(outline.resource, Some(&jobs()));
                assert_eq!(outline.kind, Some("Job"));
                Some(inspection.operation)
            }
            Class::Pass => None,
            Class::Refuse(rejection) => panic!("{rejection}"),
        };
        assert_eq!(actual, expected, "{method} {uri}");
    }
}

fn class_name(dialect: &Rest, head: &Parts) -> &'static str {
    match dialect.classify(head) {
        Class::Inspect(_) => "inspect",
        Class::Pass => "pass",
        Class::Refuse(rejection) => match rejection.kind {
            RejectionKind::Ambiguous => "ambiguous",
            RejectionKind::Unmatched => "unmatched",
            other => panic!("{other:?}"),
        },
    }
}

const MANY_READINGS: &str = concat!(
    "/a%5cb;%255cc%3bd/%25255c;%255c;%5c;%2525253f./%25255c;%255c;%5c;%2525253f./a%5cb;%255cc%3bd/%25255c;%255c;%5c;",
    "%2525253f./%25255c;%255c;%5c;%252523./a%5cb;%255cc%3bd/%25255c;%255c;%5c;%252523./%2525203b;%253b/a%252f..%255c.",
);

#[test]
#[rustfmt::skip]
fn no_spelling_of_a_path_bypasses_a_route() {
    // (case, method, path, classification if `unmatched_writes` is `Refuse`, classification if it is `Pass`)
    for (why, method, path, refuse, pass) in [
        ("differs from the API", "PUT", "/v1/jobs", "inspect", "inspect"),
        ("a slash at the end", "PUT", "/v1/jobs/", "inspect", "inspect"),
        ("doubled slashes", "PUT", "/v1//jobs", "inspect", "inspect"),
        ("many slashes", "PUT", "////v1///jobs//", "inspect", "inspect"),
        ("a dot segment", "PUT", "/v1/./jobs", "inspect", "inspect"),
        ("dot segments", "PUT", "/x/../v1/jobs", "inspect", "inspect"),
        ("encoded dot segments", "PUT", "/x/%2e%2E/v1/jobs", "inspect", "inspect"),
        ("an encoded letter", "PUT", "/v1/%6aobs", "inspect", "inspect"),
        ("an encoded slash", "PUT", "/v1%2Fjobs", "inspect", "inspect"),
        // Servers written in Java cut off a segment at a semicolon.
        ("a parameter of a segment", "PUT", "/v1/jobs;x", "ambiguous", "ambiguous"),
        ("with a value", "PUT", "/v1;a=b/jobs", "ambiguous", "ambiguous"),
        ("an encoded semicolon", "PUT", "/v1/jobs%3Bx", "ambiguous", "ambiguous"),
        ("dots hidden by it", "PUT", "/v1/x/..;/jobs", "ambiguous", "ambiguous"),
        // Some servers and file systems ignore the case of letters.
        ("another case", "PUT", "/V1/Jobs", "ambiguous", "ambiguous"),
        ("another case of one letter", "PUT", "/v1/jobS", "ambiguous", "ambiguous"),
        // A server on Windows may take a backslash for a slash.
        ("an encoded backslash", "PUT", "/v1%5Cjobs", "ambiguous", "ambiguous"),
        ("dots and backslashes", "PUT", "/x%5C..%5Cv1/jobs", "ambiguous", "ambiguous"),
        // A server written in C may read the path only up to a NUL, the byte with the value 0.
        ("NUL", "PUT", "/v1/jobs%00", "ambiguous", "ambiguous"),
        ("NUL and more", "PUT", "/v1/jobs%00.png", "ambiguous", "ambiguous"),
        ("NUL as another segment", "PUT", "/v1/jobs%00/../x", "ambiguous", "ambiguous"),
        // A proxy may decode the path, and the server may decode it again.
        ("double encoding", "PUT", "/v1/%256aobs", "ambiguous", "ambiguous"),
        ("a slash encoded twice", "PUT", "/v1%252Fjobs", "ambiguous", "ambiguous"),
        ("encoded too often", "PUT", "/v1/%2525256aobs", "ambiguous", "ambiguous"),
        ("an overlong slash", "PUT", "/v1%c0%afjobs", "ambiguous", "ambiguous"),
        ("an encoded query", "PUT", "/v1/jobs%3Fa=b", "ambiguous", "ambiguous"),
        ("an encoded fragment", "PUT", "/v1/jobs%23a", "ambiguous", "ambiguous"),
        ("a blank at the end", "PUT", "/v1/jobs%20", "ambiguous", "ambiguous"),
        ("a dot at the end", "PUT", "/v1/jobs.", "ambiguous", "ambiguous"),
        ("a line end", "PUT", "/v1/jobs%0a", "ambiguous", "ambiguous"),
        // Some servers ignore the case of a method.
        ("a method in lower case", "put", "/v1/jobs", "ambiguous", "ambiguous"),
        ("in mixed case", "Post", "/v1/jobs", "ambiguous", "ambiguous"),
        ("an unknown method", "PUBLISH", "/v1/jobs", "unmatched", "ambiguous"),
        ("an unknown one elsewhere", "PUBLISH", "/v1/nodes", "unmatched", "pass"),
        ("a method without a route", "PATCH", "/v1/jobs", "unmatched", "pass"),
        ("another one", "DELETE", "/v1/jobs", "unmatched", "pass"),
        ("CONNECT", "CONNECT", "/v1/jobs", "unmatched", "ambiguous"),
        ("a write elsewhere", "POST", "/v1/nodes", "unmatched", "pass"),
        // A server that decodes this path twice, and then resolves its dots, reads `/v1/jobs`. That is the path of
        // another route, and the rules of the two routes may differ.
        ("another route by double encoding", "PUT", "/v1/job/x%252F..%252F..%252Fjobs", "ambiguous", "ambiguous"),
        ("another name by a parameter", "DELETE", "/v1/job/a;b", "ambiguous", "ambiguous"),
        ("a name of encoded dots", "DELETE", "/v1/job/%2e.", "inspect", "inspect"),
        ("another name by dots", "DELETE", "/v1/job/x%2F..%2Fa", "ambiguous", "ambiguous"),
        ("another name by double encoding", "DELETE", "/v1/job/%2561", "ambiguous", "ambiguous"),
        ("a name with a slash", "DELETE", "/v1/job/a%2Fb", "inspect", "inspect"),
        // A server may be lenient in several ways at once.
        ("another case, split before it is decoded", "DELETE", "/V1/job/a%2Fb", "ambiguous", "ambiguous"),
        ("another case, dots within a name", "PUT", "/V1/job/a%2F..%2F..%2F..", "ambiguous", "ambiguous"),
        ("another case and a backslash within a name", "DELETE", "/V1/job/a%5Cb", "ambiguous", "ambiguous"),
        ("a backslash and another case", "DELETE", "/V1%5Cjob/a%2Fb", "ambiguous", "ambiguous"),
        ("a parameter after a slash within a name", "DELETE", "/v1/job/a%2Fb;x", "ambiguous", "ambiguous"),
        ("an encoded one", "DELETE", "/v1/job/a%2Fb%3Bx", "ambiguous", "ambiguous"),
        ("a slash within a parameter", "DELETE", "/v1/job;a%2Fb/c", "ambiguous", "ambiguous"),
        ("dropped before it is decoded", "PUT", "/v1;a%2Fb/x%2F../jobs", "ambiguous", "ambiguous"),
        ("a slash encoded twice within a name", "DELETE", "/V1/job/a%252Fb", "ambiguous", "ambiguous"),
        ("such a name", "DELETE", "/v1/job/a%252Fb", "ambiguous", "ambiguous"),
        ("slashes encoded differently", "DELETE", "/v1%252Fjob/a%2Fb", "ambiguous", "ambiguous"),
        ("a blank after a slash within a name", "DELETE", "/v1/job/a%2Fb%20", "ambiguous", "ambiguous"),
        ("a query after one", "DELETE", "/v1/job/a%2Fb%3Fc", "ambiguous", "ambiguous"),
        ("NUL after one", "DELETE", "/v1/job/a%2Fb%00", "ambiguous", "ambiguous"),
        ("a method in lower case, split first", "delete", "/v1/job/a%2Fb", "ambiguous", "ambiguous"),
        ("encoded dots as a name in another case", "DELETE", "/V1/job/%2e%2e", "ambiguous", "ambiguous"),
        ("encoded twice", "DELETE", "/v1/job/%252e%252e", "ambiguous", "ambiguous"),
        ("dots as a name", "DELETE", "/v1/job/..", "ambiguous", "ambiguous"),
        ("dots and a parameter", "DELETE", "/v1/job/..;x", "ambiguous", "ambiguous"),
        ("dots in a name", "PUT", "/v1/job/a/../b", "ambiguous", "ambiguous"),
        ("doubled slashes in a name", "PUT", "/v1/job/a//b", "ambiguous", "ambiguous"),
        ("a slash at the end of a name", "PUT", "/v1/job/a/", "ambiguous", "ambiguous"),
        ("a slash at the end of a name without any", "DELETE", "/v1/job/a/", "inspect", "inspect"),
        ("dots after doubled slashes", "PUT", "/v1/jobs/a//../..", "ambiguous", "ambiguous"),
        ("a letter with two spellings in lower case", "PUT", "/v1/job%C5%BF", "ambiguous", "ambiguous"),
        ("a name that differs in its case", "PUT", "/v1/job/A%3F/../a", "ambiguous", "ambiguous"),
        ("readings without number", "PUT", MANY_READINGS, "ambiguous", "ambiguous"),
        ("of a method without a route", "PATCH", MANY_READINGS, "unmatched", "pass"),
        ("odd, but elsewhere", "PUT", "/V1//nodes/a%2Fb;c%5Cd/../%2e.", "unmatched", "pass"),
        ("a name in capitals", "DELETE", "/v1/job/WEB", "inspect", "inspect"),
        ("a name with a percent sign", "DELETE", "/v1/job/100%25", "inspect", "inspect"),
        ("a read", "GET", "/v1/jobs", "pass", "pass"),
        ("an odd read", "GET", "/V1//jobs;x%00", "pass", "pass"),
        ("a read of no text", "GET", "/files/%ff", "pass", "pass"),
        ("HEAD", "HEAD", "/v1/jobs", "pass", "pass"),
        ("OPTIONS", "OPTIONS", "*", "pass", "pass"),
        ("a read in lower case", "get", "/v1/nodes", "unmatched", "pass"),
    ] {
        let head = head(method, path);
        assert_eq!(
            class_name(&nomad_dialect_with(UnmatchedWrites::Refuse), &head),
            refuse,
            "{why}: {method} {path}"
        );
        assert_eq!(
            class_name(&nomad_dialect_with(UnmatchedWrites::Pass), &head),
            pass,
            "{why}: {method} {path}"
        );
    }
}

/// Some servers do not take the method or path of a request from its first line, but from a header such as
/// `X-HTTP-Method-Override`, or from a query parameter.
#[test]
#[rustfmt::skip]
fn no_override_of_method_or_path_bypasses_a_route() {
    // (method, path, header, classification with `unmatched: refuse`, classification with `unmatched: pass`)
    for (method, path, header, refuse, pass) in [
        ("GET", "/v1/jobs", ("x-http-method-override", "PUT"), "ambiguous", "ambiguous"),
        ("GET", "/v1/jobs", ("x-http-method", "PUT"), "ambiguous", "ambiguous"),
        ("GET", "/v1/jobs", ("x-method-override", "put"), "ambiguous", "ambiguous"),
        ("GET", "/v1/jobs", ("x_http_method_override", "PUT"), "ambiguous", "ambiguous"),
        ("GET", "/v1/jobs;x", ("x-http-method-override", "PUT"), "ambiguous", "ambiguous"),
        ("GET", "/V1/job/a%2Fb", ("x-http-method-override", "DELETE"), "ambiguous", "ambiguous"),
        ("POST", "/v1/jobs", ("x-http-method-override", "DELETE"), "ambiguous", "ambiguous"),
        ("GET", "/v1/jobs?_method=PUT", ("x-a", "1"), "ambiguous", "ambiguous"),
        ("GET", "/v1/jobs?a=b;%5Fmethod=PUT", ("x-a", "1"), "ambiguous", "ambiguous"),
        ("PUT", "/v1/job/a", ("x-original-url", "/v1/jobs"), "ambiguous", "ambiguous"),
        ("PUT", "/v1/job/a", ("x-rewrite-url", "/v1/jobs"), "ambiguous", "ambiguous"),
        ("GET", "/v1/nodes", ("x-http-method-override", "PUT"), "ambiguous", "pass"),
        // The header names the method that the request already has, which is harmless.
        ("PUT", "/v1/jobs", ("x-http-method-override", "put"), "inspect", "inspect"),
        ("PUT", "/v1/jobs?a=b", ("x-original-url", "/v1/jobs?a=b"), "inspect", "inspect"),
        ("PUT", "/v1/jobs?method=GET", ("x-a", "1"), "inspect", "inspect"),
    ] {
        let mut head = head(method, path);
        let name: HeaderName = header.0.parse().unwrap();
        head.headers.insert(name, HeaderValue::from_static(header.1));
        assert_eq!(
            class_name(&nomad_dialect_with(UnmatchedWrites::Refuse), &head),
            refuse,
            "{method} {path} {header:?}"
        );
        assert_eq!(
            class_name(&nomad_dialect_with(UnmatchedWrites::Pass), &head),
            pass,
            "{method} {path} {header:?}"
        );
    }
}

#[test]
fn a_path_that_differs_from_a_template_in_case_is_refused() {
    let dialect = Rest::new(RestConfig {
        routes: vec![register_route("/v1/Jobs/{jobID}")],
        unmatched_writes: UnmatchedWrites::Pass,
    })
    .unwrap();
    for (path, expected) in [
        ("/v1/Jobs/a", "inspect"),
        ("/v1/jobs/a", "ambiguous"),
        ("/v1/JOBS/a%2Fb", "ambiguous"),
        ("/v1/nodes/a", "pass"),
    ] {
        assert_eq!(class_name(&dialect, &head("PUT", path)), expected, "{path}");
    }
}

#[test]
fn a_request_that_servers_could_match_to_two_routes_is_refused() {
    let plan = RestRoute {
        dry_run: true,
        ..register_route("/v1/job/{id}/plan")
    };
    let update = RestRoute {
        optional: true,
        ..register_route("/v1/job/{*id}")
    };
    let dialect = Rest::new(RestConfig {
        routes: vec![plan, update],
        unmatched_writes: UnmatchedWrites::Refuse,
    })
    .unwrap();
    for (path, expected) in [
        ("/v1/job/a/plan", "inspect"),
        ("/v1/job/a/b", "inspect"),
        ("/v1/job/a%2Fb", "inspect"),
        // A server could read the path as the plan of the job `a`, or as the job `a/plan`.
        ("/v1/job/a%2Fplan", "ambiguous"),
        ("/v1/job/a/Plan", "ambiguous"),
        ("/v1/job/a/plan;x", "ambiguous"),
        ("/V1/job/a%2Fb/plan", "ambiguous"),
        ("/v1/job/a%2Fb/Plan", "ambiguous"),
        ("/v1/job/a%2Fb/plan;x", "ambiguous"),
        ("/v1/job/a%5Cplan", "ambiguous"),
        ("/v1/job/a%252Fplan", "ambiguous"),
    ] {
        assert_eq!(class_name(&dialect, &head("PUT", path)), expected, "{path}");
    }
}

#[test]
#[rustfmt::skip]
fn a_body_becomes_a_request_or_is_refused_with_a_reason() {
    // (case, method, uri, body, expected result: "namespace name object", `nothing`, or a part of the error)
    for (case, method, uri, body, expected) in [
        ("whole", "PUT", "/v1/jobs", r#"{"Job": {"ID":"a","Namespace":"n"}, "EnforceIndex": true}"#, r#"n a {"ID":"a","Namespace":"n"}"#),
        ("the query comes first", "PUT", "/v1/jobs?namespace=q%20r", r#"{"Job":{"ID":"a","Namespace":"n"},"Namespace":"m"}"#, r#"q r a {"ID":"a","Namespace":"n"}"#),
        ("an empty one does not count", "PUT", "/v1/jobs?namespace=", r#"{"Job":{"ID":"a","Namespace":null},"Namespace":""}"#, r#"default a {"ID":"a","Namespace":null}"#),
        (
            "keys in another case",
            "PUT",
            "/v1/jobs",
            r#"{"job":{"id":"a","taskgroups":[{"tasks":[{"config":{"Image":"x"}}]}]}}"#,
            r#"default a {"ID":"a","TaskGroups":[{"Tasks":[{"Config":{"Image":"x"}}]}]}"#,
        ),
        ("optional", "POST", "/v1/job/a/scale", r#"{"Count":3}"#, "nothing"),
        ("optional and empty", "POST", "/v1/job/a/evaluate", "", "nothing"),
        ("optional but there", "POST", "/v1/job/a", r#"{"JOB":{"ID":"a"}}"#, r#"default a {"ID":"a"}"#),
        ("without a body", "DELETE", "/v1/job/a%2Fb", "", "- a/b -"),
        ("missing", "PUT", "/v1/jobs", "{}", "the body is not valid for this route: there is nothing at /Job"),
        ("empty", "PUT", "/v1/jobs", "", "the body is not valid for this route: it is empty"),
        ("array", "PUT", "/v1/jobs", "[]", "the body is not valid for this route: not a JSON object"),
        ("not an object", "PUT", "/v1/jobs", r#"{"Job":"a"}"#, "the body is not valid for this route: at `/Job`: not a JSON object"),
        ("a name that is no text", "PUT", "/v1/jobs", r#"{"Job":{"ID":1}}"#, "the body is not valid for this route: the value at /Job/ID is not a string"),
        ("two jobs", "PUT", "/v1/jobs", r#"{"Job":{},"job":{}}"#, "the body is ambiguous: `Job` and `job` are two spellings of one key; keep `Job`"),
        ("a duplicate key", "PUT", "/v1/jobs", r#"{"Job":{"ID":"a"},"x":{"y":1,"y":2}}"#, "the body is not valid for this route: not a JSON object: duplicate key `y` in an object; remove one of them"),
        ("two namespaces", "PUT", "/v1/jobs?namespace=a&namespace=b", r#"{"Job":{"ID":"a"}}"#, "the query has `namespace` more than once"),
        ("a semicolon", "PUT", "/v1/jobs?namespace=a;b", r#"{"Job":{"ID":"a"}}"#, "the query has a semicolon or an invalid escape"),
        ("an invalid escape", "PUT", "/v1/jobs?namespace=a%2", r#"{"Job":{"ID":"a"}}"#, "the query has a semicolon or an invalid escape"),
    ] {
        let head = head(method, uri);
        let actual = match nomad_dialect().read_body(&head, &inspect(&head), &Bytes::from(body)) {
            Ok(BodyReading::Nothing) => "nothing".to_owned(),
            Ok(BodyReading::Admit { request, .. } | BodyReading::Fixed { request, .. }) => format!(
                "{} {} {}",
                request.namespace.as_deref().unwrap_or("-"),
                request.name,
                request.object.as_ref().map_or("-", Object::text),
            ),
            Err(rejection) => rejection.to_string(),
        };
        assert!(actual.starts_with(expected), "{case}: {actual}");
    }
}

#[test]
fn name_and_namespace_are_read_from_headers() {
    let mut head = head("DELETE", "/v1/job/a");
    let inspection = inspect(&head);
    head.headers.insert("x-namespace", HeaderValue::from_static("n"));
    let Ok(BodyReading::Admit { request, .. }) = nomad_dialect().read_body(&head, &inspection, &Bytes::new()) else {
        panic!("it is a request");
    };
    assert_eq!(request.namespace.as_deref(), Some("n"));
    head.headers.append("x-namespace", HeaderValue::from_static("m"));
    assert!(nomad_dialect().read_body(&head, &inspection, &Bytes::new()).is_err());
}

#[test]
fn a_changed_object_replaces_the_original_in_the_body() {
    let head = head("PUT", "/v1/jobs");
    let inspection = inspect(&head);
    let body = Bytes::from_static(br#" {"EnforceIndex": 12345678901234567890123, "Job" : {"ID": "a"} , "x":1.0}"#);
    let object = Object::parse(r#"{"ID":"a","Meta":{}}"#).unwrap();
    assert_eq!(
        nomad_dialect()
            .changed_body(&head, &inspection, &body, &object, &Patch::default())
            .unwrap(),
        &br#" {"EnforceIndex": 12345678901234567890123, "Job" : {"ID":"a","Meta":{}} , "x":1.0}"#[..]
    );
}

#[test]
fn by_default_the_name_and_the_namespace_identify_an_object() {
    let prepared = PreparedRoute::new(0, register_route("/v1/jobs")).unwrap();
    let expected = IdentityFields::new([pointer("/Namespace"), pointer("/ID")]);
    assert_eq!(prepared.identity, expected);
    let route = RestRoute {
        identity: Some(vec![pointer("/Job/Type")]),
        ..register_route("/v1/jobs")
    };
    let prepared = PreparedRoute::new(0, route).unwrap();
    assert_eq!(prepared.identity, IdentityFields::new([pointer("/Type")]));
}

#[test]
fn an_object_gets_the_documented_spelling_of_its_keys() {
    let prepared = PreparedRoute::new(0, register_route("/v1/jobs")).unwrap();
    let canonical = prepared
        .object_spelling
        .canonical_text(r#"{"id":"a","NAMESPACE":"b","Job":{}}"#);
    assert_eq!(
        canonical.unwrap().as_deref(),
        Some(r#"{"ID":"a","Namespace":"b","Job":{}}"#)
    );
    assert!(
        prepared
            .object_spelling
            .canonical_text(r#"{"ID":"a","Id":"b"}"#)
            .is_err()
    );
}

#[test]
fn every_mistake_in_a_route_is_reported() {
    let config = RestConfig {
        unmatched_writes: UnmatchedWrites::Refuse,
        routes: vec![
            register_route("v1/jobs"),
            register_route("/v1/{id"),
            RestRoute {
                methods: Vec::new(),
                name: vec![ValueSource::Path("id".into())],
                identity: Some(vec![pointer("/Namespace")]),
                ..register_route("/v1/jobs")
            },
        ],
    };
    let errors: Vec<String> = Rest::new(config).unwrap_err().iter().map(ToString::to_string).collect();
    for (error, expected) in errors.iter().zip([
        "routes[0].path: `v1/jobs` is not a valid path template: it does not start with `/`",
        "routes[1].path: `/v1/{id` is not a valid path template",
        "routes[2].method: name at least one method",
        "routes[2].name: the path has no parameter `id`; write {id} into it",
        "routes[2].identity: `/Namespace` is not in the object at `/Job`",
    ]) {
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(errors.len(), 5);
}

#[test]
fn a_reply_has_the_status_and_the_reason_of_the_refusal() {
    let denied = RequestRefusal {
        chain: "c".into(),
        stage: "s".into(),
        cause: RefusalCause::Denied(Denial::new(422, "Unfit", "no")),
    };
    let rejection = Rejection::new(RejectionKind::Malformed, "bad");
    let unmatched = Rejection::new(RejectionKind::Unmatched, "none");
    let second = Duration::from_secs(1);
    for (end, status, reason) in [
        (EndReason::Refused(&denied), 422, "Unfit"),
        (EndReason::Rejected(&rejection), 400, "Malformed"),
        (EndReason::Rejected(&unmatched), 403, "Unmatched"),
        (EndReason::BodyTooLarge { limit: 1 }, 413, "BodyTooLarge"),
        (EndReason::BodyStalled { reason: "x" }, 408, "BodyTimeout"),
        (EndReason::BodyTimeout { limit: second }, 408, "BodyTimeout"),
        (EndReason::BodyUnreadable { reason: "x" }, 400, "BodyUnreadable"),
        (EndReason::BodyEncoded { encoding: "br" }, 415, "BodyEncoded"),
        (EndReason::NoRoute, 404, "NoRoute"),
        (
            EndReason::Overloaded {
                retry_after: second,
                reason: "x",
            },
            503,
            "Overloaded",
        ),
        (
            EndReason::UpstreamUnreachable { reason: "x" },
            502,
            "UpstreamUnreachable",
        ),
        (EndReason::UpstreamTimeout { limit: second }, 504, "UpstreamTimeout"),
    ] {
        let response = nomad_dialect().reply(&end);
        assert_eq!(response.status(), status, "{end:?}");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            body,
            json!({"error": {"code": status, "reason": reason, "message": end.to_string()}})
        );
        assert_eq!(response.headers().contains_key(RETRY_AFTER), status == 503);
    }
}
