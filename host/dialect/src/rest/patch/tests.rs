use admittance_admission::{GroupVersionResource, Operation, Request};
use http::{HeaderName, HeaderValue};

use super::super::{
    Inspection, KindSource, PreparedRoute, Rest, RestConfig, RestRoute, RouteProblem, StoredRoute, ValueSource,
};
use super::*;
use crate::{Class, Dialect, StoredQuery};

fn teams_resource() -> GroupVersionResource {
    GroupVersionResource {
        resource: "teams".into(),
        ..Default::default()
    }
}

fn team_route() -> RestRoute {
    RestRoute {
        name: vec![ValueSource::Path("id".into())],
        namespace: vec![
            ValueSource::Query("ns".into()),
            ValueSource::Pointer("/ns".parse().unwrap()),
            ValueSource::Fixed("main".into()),
        ],
        spellings: vec!["/owner".parse().unwrap()],
        get: Some(StoredRoute::default()),
        ..RestRoute::new(
            [Method::PATCH, Method::PUT],
            "/v1/teams/{id}",
            Operation::Update,
            teams_resource(),
            KindSource::Fixed("Team".into()),
        )
    }
}

fn enveloped_route() -> RestRoute {
    RestRoute {
        object: "/Team".parse().unwrap(),
        spellings: vec!["/Team/owner".parse().unwrap()],
        optional: true,
        ..team_route()
    }
}

fn dialect(route: RestRoute) -> Rest {
    Rest::new(RestConfig::new(vec![route])).unwrap()
}

fn classify_request(dialect: &Rest, method: &str, uri: &str, content_type: &str) -> (Parts, Inspection) {
    let request = http::Request::builder().method(method).uri(uri);
    let request = match content_type {
        "" => request,
        content_type => request.header(CONTENT_TYPE, content_type),
    };
    let head = request.body(()).unwrap().into_parts().0;
    match dialect.classify(&head) {
        Class::Inspect(inspection) => (head, inspection),
        other => panic!("{uri} is {other:?}"),
    }
}

fn classify_patch(dialect: &Rest, content_type: &str, stored: &str) -> (Parts, Inspection) {
    let (mut head, inspection) = classify_request(dialect, "PATCH", "/v1/teams/a", content_type);
    head.extensions.insert(StoredState {
        object: Some(Object::parse(stored).unwrap()),
        patched_object: None,
    });
    (head, inspection)
}

fn read_patch_request(
    dialect: &Rest,
    content_type: &str,
    stored: &str,
    body: &str,
) -> Result<Option<Request>, Rejection> {
    let (head, inspection) = classify_patch(dialect, content_type, stored);
    match dialect.read_body(&head, &inspection, &Bytes::from(body.to_owned()))? {
        BodyReading::Nothing => Ok(None),
        BodyReading::Admit { request, .. } | BodyReading::Fixed { request, .. } => Ok(Some(*request)),
    }
}

const STORED_TEAM: &str = r#"{"owner":"ann","size":1.0,"tags":["x"]}"#;

#[test]
fn stages_see_the_result_of_a_patch() {
    let (plain, json) = (dialect(team_route()), PatchType::Json);
    let plain_json = dialect(RestRoute {
        default_patch_type: json,
        ..team_route()
    });
    let envelope = dialect(enveloped_route());
    for (case, dialect, content_type, body, expected) in [
        (
            "merge",
            &plain,
            MERGE,
            r#"{"size":2}"#,
            r#"{"owner":"ann","size":2,"tags":["x"]}"#,
        ),
        (
            "a removal",
            &plain,
            MERGE,
            r#"{"owner":null}"#,
            r#"{"size":1.0,"tags":["x"]}"#,
        ),
        (
            "without a type",
            &plain,
            "",
            r#"{"size":2}"#,
            r#"{"owner":"ann","size":2,"tags":["x"]}"#,
        ),
        (
            "plain",
            &plain,
            "application/json; charset=utf-8",
            r#"{"tags":[]}"#,
            r#"{"owner":"ann","size":1.0,"tags":[]}"#,
        ),
        (
            "another case",
            &plain,
            MERGE,
            r#"{"OWNER":null}"#,
            r#"{"size":1.0,"tags":["x"]}"#,
        ),
        (
            "operations",
            &plain,
            JSON_PATCH,
            r#"[{"op":"add","path":"/tags/-","value":"y"}]"#,
            r#"{"owner":"ann","size":1.0,"tags":["x","y"]}"#,
        ),
        (
            "plain operations",
            &plain_json,
            JSON,
            r#"[{"op":"remove","path":"/owner"}]"#,
            r#"{"size":1.0,"tags":["x"]}"#,
        ),
        (
            "in an envelope",
            &envelope,
            MERGE,
            r#"{"Team":{"size":2},"Force":true}"#,
            r#"{"owner":"ann","size":2,"tags":["x"]}"#,
        ),
        (
            "operations in an envelope",
            &envelope,
            JSON_PATCH,
            r#"[{"op":"replace","path":"/Team/size","value":2}]"#,
            r#"{"owner":"ann","size":2,"tags":["x"]}"#,
        ),
        (
            "an envelope without the object",
            &envelope,
            MERGE,
            r#"{"Force":true}"#,
            "nothing",
        ),
        ("an empty body", &envelope, MERGE, "", "nothing"),
        ("two keys", &plain, MERGE, r#"{"owner":"a","owner":null}"#, "Ambiguous"),
        (
            "two keys elsewhere",
            &plain,
            MERGE,
            r#"{"x":{"y":1,"y":2}}"#,
            "Malformed",
        ),
        (
            "a key in another case",
            &plain,
            JSON_PATCH,
            r#"[{"op":"add","path":"/Owner","value":"x"}]"#,
            "Ambiguous",
        ),
        (
            "a value with two keys",
            &plain,
            JSON_PATCH,
            r#"[{"op":"add","path":"/x","value":{"a":1,"a":2}}]"#,
            "Malformed",
        ),
        (
            "a test that fails",
            &plain,
            JSON_PATCH,
            r#"[{"op":"test","path":"/size","value":7}]"#,
            "PatchFailed",
        ),
        (
            "a path that does not exist",
            &plain,
            JSON_PATCH,
            r#"[{"op":"remove","path":"/x"}]"#,
            "PatchFailed",
        ),
        ("another document", &plain, MERGE, "[]", "Malformed"),
        ("nothing", &plain, MERGE, "", "Malformed"),
        (
            "a result that is no object",
            &envelope,
            JSON_PATCH,
            r#"[{"op":"replace","path":"/Team","value":7}]"#,
            "Malformed",
        ),
        (
            "another type",
            &plain,
            "application/strategic-merge-patch+json",
            "{}",
            "MediaType",
        ),
    ] {
        let actual = match read_patch_request(dialect, content_type, STORED_TEAM, body) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(request)) => {
                assert_eq!(request.old_object.unwrap().text(), STORED_TEAM, "{case}");
                assert_eq!(request.name, "a", "{case}");
                request.object.unwrap().text().to_owned()
            }
            Err(rejection) => format!("{:?}", rejection.kind),
        };
        assert_eq!(actual, expected, "{case}");
    }
}

#[test]
fn changes_that_chains_make_are_forwarded_as_a_patch() {
    let (plain, envelope) = (dialect(team_route()), dialect(enveloped_route()));
    for (case, dialect, content_type, body, changes, expected) in [
        (
            "a default",
            &plain,
            MERGE,
            r#"{"size":2}"#,
            r#"[{"op":"add","path":"/team","value":"core"}]"#,
            Ok(r#"{"size":2,"team":"core"}"#),
        ),
        (
            "a list",
            &plain,
            MERGE,
            r#"{"size":2}"#,
            r#"[{"op":"add","path":"/tags/-","value":"y"}]"#,
            Ok(r#"{"size":2,"tags":["x","y"]}"#),
        ),
        (
            "a removal",
            &plain,
            MERGE,
            r#"{"size":2}"#,
            r#"[{"op":"remove","path":"/owner"}]"#,
            Ok(r#"{"size":2,"owner":null}"#),
        ),
        (
            "in an envelope",
            &envelope,
            MERGE,
            r#"{"Force":true,"Team":{"size":2}}"#,
            r#"[{"op":"add","path":"/team","value":"core"}]"#,
            Ok(r#"{"Force":true,"Team":{"size":2,"team":"core"}}"#),
        ),
        (
            "operations",
            &plain,
            JSON_PATCH,
            r#"[{"op":"test","path":"/size","value":1.0},{"op":"remove","path":"/owner"}]"#,
            r#"[{"op":"add","path":"/owner","value":"bob"}]"#,
            Ok(
                r#"[{"op":"test","path":"/size","value":1.0},{"op":"remove","path":"/owner"},{"op":"add","path":"/owner","value":"bob"}]"#,
            ),
        ),
        (
            "operations in an envelope",
            &envelope,
            JSON_PATCH,
            r#"[{"op":"remove","path":"/Team/owner"}]"#,
            r#"[{"op":"copy","path":"/team","from":"/size"}]"#,
            Ok(r#"[{"op":"remove","path":"/Team/owner"},{"op":"copy","path":"/Team/team","from":"/Team/size"}]"#),
        ),
        (
            "a null",
            &plain,
            MERGE,
            r#"{"size":2}"#,
            r#"[{"op":"add","path":"/team","value":null}]"#,
            Err(RejectionKind::Unchangeable),
        ),
    ] {
        let (head, inspection) = classify_patch(dialect, content_type, STORED_TEAM);
        let body = Bytes::from(body);
        let Ok(BodyReading::Admit { request, .. }) = dialect.read_body(&head, &inspection, &body) else {
            panic!("{case}")
        };
        let changes = Patch::parse(changes).unwrap();
        let object = changes.apply(&request.object.unwrap()).unwrap();
        let written_body = dialect
            .changed_body(&head, &inspection, &body, &object, &changes)
            .map_err(|rejection| rejection.kind);
        assert_eq!(written_body, expected.map(Bytes::from), "{case}");
    }
}

#[test]
fn the_stored_object_is_fetched_from_its_path() {
    let stored_route = |path: &str| StoredRoute {
        path: Some(path.to_owned()),
        ..StoredRoute::default()
    };
    let get = |path: &str| RestRoute {
        get: Some(stored_route(path)),
        ..team_route()
    };
    let rest = RestRoute {
        path: "/v1/teams/{*id}".into(),
        ..get("/get/{id}")
    };
    let none = RestRoute {
        get: None,
        partial: true,
        ..team_route()
    };
    for (route, method, uri, body, expected) in [
        (
            team_route(),
            "PATCH",
            "/v1/teams/a%2Fb?fields=x",
            "{}",
            "/v1/teams/a%2Fb, needed",
        ),
        (team_route(), "PUT", "/v1/teams/a?watch=1", "{}", "/v1/teams/a"),
        (
            get("/get/{id}?ns={namespace}"),
            "PUT",
            "/v1/teams/a%2Fb",
            r#"{"ns":"x&y"}"#,
            "/get/a%2Fb?ns=x%26y",
        ),
        (
            get("/get/{namespace}/{name}"),
            "PUT",
            "/v1/teams/a?ns=q",
            r#"{"ns":"x"}"#,
            "/get/q/a",
        ),
        (
            get("/get/{namespace}/{name}"),
            "PATCH",
            "/v1/teams/a",
            r#"{"ns":"x"}"#,
            "/get/main/a, needed",
        ),
        (rest, "PATCH", "/v1/teams/a/b%20c", "{}", "/get/a/b%20c, needed"),
        (
            get("/get/{namespace}"),
            "PUT",
            "/v1/teams/a",
            r#"{"ns":".."}"#,
            "Ambiguous",
        ),
        (enveloped_route(), "PUT", "/v1/teams/a", "{}", "not asked"),
        (enveloped_route(), "PATCH", "/v1/teams/a", "{}", "not asked"),
        (
            enveloped_route(),
            "PATCH",
            "/v1/teams/a",
            r#"{"Team":{}}"#,
            "/v1/teams/a, needed",
        ),
        (none, "PATCH", "/v1/teams/a", "{}", "not asked"),
    ] {
        let dialect = dialect(route);
        let (head, inspection) = classify_request(&dialect, method, uri, MERGE);
        let actual = match dialect.stored_query(&head, &inspection, &Bytes::from(body)) {
            Ok(None) => "not asked".to_owned(),
            Ok(Some(query)) => {
                let suffix = if query.may_be_absent { "" } else { ", needed" };
                format!("{}{suffix}", query.request.uri())
            }
            Err(rejection) => format!("{:?}", rejection.kind),
        };
        assert_eq!(actual, expected, "{method} {uri}");
    }
    // This patch changes the namespace of the object. The path of the stored object contains the namespace, so the
    // chains could see one object while the upstream patches another. The patch is therefore refused.
    let dialect = dialect(get("/get/{namespace}/{name}"));
    let reading = read_patch_request(&dialect, MERGE, STORED_TEAM, r#"{"ns":"x"}"#).map(|_| ());
    assert_eq!(
        reading.map_err(|rejection| rejection.kind),
        Err(RejectionKind::Ambiguous)
    );
}

#[test]
fn the_query_for_the_stored_object_has_only_headers_that_identify_the_client() {
    let stored_route = StoredRoute {
        headers: vec![HeaderName::from_static("x-token")],
        ..StoredRoute::default()
    };
    let dialect = dialect(RestRoute {
        get: Some(stored_route),
        ..team_route()
    });
    let (mut head, inspection) = classify_request(&dialect, "PATCH", "/v1/teams/a", MERGE);
    for name in [
        "authorization",
        "cookie",
        "x-token",
        "prefer",
        "x-fields",
        "range",
        "if-none-match",
    ] {
        head.headers.insert(name, HeaderValue::from_static("1"));
    }
    let query = dialect
        .stored_query(&head, &inspection, &Bytes::from_static(b"{}"))
        .unwrap()
        .unwrap();
    let mut header_names: Vec<_> = query.request.headers().keys().map(HeaderName::as_str).collect();
    header_names.sort_unstable();
    assert_eq!(
        header_names,
        ["accept", "authorization", "cache-control", "cookie", "x-token"]
    );
}

#[test]
fn the_stored_object_is_read_from_the_configured_path_in_the_reply() {
    let query = StoredQuery {
        request: http::Request::new(()),
        pointer: "/data".parse().unwrap(),
        spelling: PreparedRoute::new(0, team_route()).unwrap().object_spelling,
        may_be_absent: false,
    };
    for (reply, expected) in [
        (r#"{"data":{"owner":"ann"}}"#, Ok(r#"{"owner":"ann"}"#)),
        (r#"{"data":{"Owner":"ann"}}"#, Ok(r#"{"owner":"ann"}"#)),
        (
            r#"{"data":{"Owner":"ann","owner":"bob"}}"#,
            Err("`Owner` and `owner` are two spellings"),
        ),
        (
            r#"{"data":{"spec":{"a":1,"a":2}}}"#,
            Err("not a JSON object: duplicate key `a`"),
        ),
        (r#"{"owner":"ann"}"#, Err("there is nothing at `/data`")),
        (r#"{"data":null}"#, Err("not a JSON object")),
        ("<html>", Err("there is nothing at `/data`")),
    ] {
        let object = query.read_object(reply.as_bytes());
        match expected {
            Ok(text) => assert_eq!(object.unwrap().text(), text, "{reply}"),
            Err(reason) => assert!(object.unwrap_err().starts_with(reason), "{reply}"),
        }
    }
}

#[test]
fn a_route_with_patch_must_say_how_chains_see_patches() {
    let base = || RestRoute {
        get: None,
        ..team_route()
    };
    let stored_route = |path: &str| {
        Some(StoredRoute {
            path: Some(path.to_owned()),
            ..StoredRoute::default()
        })
    };
    for (case, route, expected) in [
        ("a patch", base(), Some(("method", RouteProblem::Partial))),
        (
            "a part",
            RestRoute {
                partial: true,
                ..base()
            },
            None,
        ),
        (
            "without PATCH",
            RestRoute {
                methods: vec![Method::PUT],
                ..base()
            },
            None,
        ),
        (
            "a deletion",
            RestRoute {
                operation: Operation::Delete,
                ..base()
            },
            None,
        ),
        ("with the stored object", team_route(), None),
        (
            "two answers",
            RestRoute {
                partial: true,
                ..team_route()
            },
            Some((
                "partial",
                RouteProblem::NoEffect("with `get`, stages see the result of a PATCH"),
            )),
        ),
        (
            "no patch",
            RestRoute {
                partial: true,
                methods: vec![Method::PUT],
                ..base()
            },
            Some((
                "partial",
                RouteProblem::NoEffect("the route has no PATCH that creates or updates"),
            )),
        ),
        (
            "no patch to choose a type of",
            RestRoute {
                default_patch_type: PatchType::Json,
                methods: vec![Method::PUT],
                ..team_route()
            },
            Some((
                "patch",
                RouteProblem::NoEffect("the route has no `get`, or no PATCH that creates or updates"),
            )),
        ),
        (
            "a parameter that is not in the path",
            RestRoute {
                get: stored_route("/x/{other}"),
                ..base()
            },
            Some(("get", RouteProblem::Placeholder("other".into()))),
        ),
        (
            "no path",
            RestRoute {
                get: stored_route("x"),
                ..base()
            },
            Some(("get", RouteProblem::StoredPath("x".into()))),
        ),
        (
            "an open brace",
            RestRoute {
                get: stored_route("/{id"),
                ..base()
            },
            Some(("get", RouteProblem::StoredPath("/{id".into()))),
        ),
    ] {
        let mistakes: Vec<_> = PreparedRoute::new(0, route)
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|error| (error.field, error.problem))
            .collect();
        assert_eq!(mistakes, Vec::from_iter(expected), "{case}");
    }
}

#[test]
fn a_value_that_is_missing_from_the_path_of_a_stored_object_is_reported() {
    let get = |path: &str| StoredRoute {
        path: Some(path.to_owned()),
        ..StoredRoute::default()
    };
    let dialect = |source: ValueSource| {
        dialect(RestRoute {
            methods: vec![Method::PUT, Method::DELETE],
            namespace: vec![source],
            get: Some(get("/get/{namespace}/{name}")),
            ..team_route()
        })
    };
    for (method, query, body, expected) in [
        ("PUT", "", "{}", "and the request has none: add it to the request"),
        ("PUT", "?ns=..", "{}", "the namespace is `..`"),
        ("DELETE", "?ns=a", "", "a route of its own for DELETE"),
    ] {
        let dialect = dialect(ValueSource::Query("ns".into()));
        let (head, inspection) = classify_request(&dialect, method, &format!("/v1/teams/a{query}"), "");
        let rejected = dialect.stored_query(&head, &inspection, &Bytes::from(body));
        let message = rejected.unwrap_err().message;
        assert!(message.contains(expected), "{method} {query}: {message}");
    }
    let without = RestRoute {
        namespace: Vec::new(),
        get: Some(get("/get/{namespace}")),
        ..team_route()
    };
    assert_eq!(
        PreparedRoute::new(0, without).unwrap_err()[0].to_string(),
        "routes[0].get: {namespace} in `path` has no value: write {namespace} into the path of the route, or `namespace` \
         with its source beside `get`"
    );
}
