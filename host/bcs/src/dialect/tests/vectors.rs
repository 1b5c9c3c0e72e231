//! Tests of replies to invalid requests and of translated replies, which must have the statuses, codes, messages and
//! envelopes of bcs-mesos-driver. Each row names its source: a file of bcs-mesos-driver, or a section in the
//! description of bcs-mesos-driver's behaviour, such as `6 wrong kind`.

use super::*;

const MESSAGE_PATH: &str = "/mesosdriver/v4/namespaces/n/applications/a/message";

fn route_path(kind: &str) -> &'static str {
    match kind {
        "process" => "/mesosdriver/v4/namespaces/n/processes",
        "deployment" => "/mesosdriver/v4/namespaces/n/deployments",
        "daemonset" => "/mesosdriver/v4/namespaces/n/daemonset",
        "configmap" => "/mesosdriver/v4/namespaces/n/configmaps",
        "secret" => "/mesosdriver/v4/namespaces/n/secrets",
        "service" => "/mesosdriver/v4/namespaces/n/services",
        "admissionwebhook" => "/mesosdriver/v4/namespaces/n/admissionwebhook",
        "message" => MESSAGE_PATH,
        _ => APPLICATIONS,
    }
}

#[test]
#[rustfmt::skip]
fn invalid_bodies_get_the_errors_of_bcs_mesos_driver() {
    let parameters = "there is some error in the parameters";
    let valid_spec = r#"{"containers":[{}]}"#;
    let object = |kind: &str, rest: &str| format!(r#"{{"kind":"{kind}","metadata":{{"name":"a","namespace":"n"}}{rest}}}"#);
    let pod = |kind: &str, spec: &str| object(kind, &format!(r#","spec":{{"template":{{"spec":{spec}}}}}"#));
    // (section or source file with this rule, kind of the route, body, expected code, expected message)
    // The name of the program, which stands at the beginning of every message, is left out here. If an expected message
    // ends with `: `, the actual message has more text after it.
    for (source, route_kind, body, code, message) in [
        ("6 wrong kind", "application", object("deployment", ""), 1_405_008, "Kind deployment is invalid".to_owned()),
        ("6 wrong kind", "process", object("application", ""), 1_405_008, "Kind application is invalid".to_owned()),
        ("6 wrong kind", "deployment", object("application", ""), 1_405_008, "Kind application is invalid".to_owned()),
        ("6 wrong kind", "daemonset", object("daemonsets", ""), 1_405_008, "Kind daemonsets is invalid".to_owned()),
        ("6 wrong kind", "configmap", object("secret", ""), 1_405_008, "Kind secret is invalid".to_owned()),
        ("6 wrong kind", "secret", object("service", ""), 1_405_008, "Kind service is invalid".to_owned()),
        ("6 wrong kind", "service", object("configmap", ""), 1_405_008, "Kind configmap is invalid".to_owned()),
        ("2.1 wrong kind", "admissionwebhook", object("webhook", ""), 1_405_008, "Kind webhook is invalid".to_owned()),
        ("2.4 kinds count to the letter", "application", object("Application", ""), 1_405_008, "Kind Application is invalid".to_owned()),
        ("check.go: no kind", "application", "{}".to_owned(), 1_405_008, "Kind  is invalid".to_owned()),
        ("2.6 no. 6: null breaks the original's connection", "application", "null".to_owned(), 1_405_008, "Kind  is invalid".to_owned()),
        ("1.4 TypeMeta", "application", String::new(), 1_405_008, "Unmarshal TypeMeta failed: unexpected end of JSON input".to_owned()),
        ("1.4 TypeMeta", "configmap", "{".to_owned(), 1_405_008, "Unmarshal TypeMeta failed: unexpected end of JSON input".to_owned()),
        ("1.4 TypeMeta", "secret", "{]".to_owned(), 1_405_008, "Unmarshal TypeMeta failed: ".to_owned()),
        ("1.4 TypeMeta", "application", "[]".to_owned(), 1_405_008, "Unmarshal TypeMeta failed: the body is not an object".to_owned()),
        ("1.4 TypeMeta", "application", r#"{"kind":1}"#.to_owned(), 1_405_008, "Unmarshal TypeMeta failed: kind is not a string".to_owned()),
        ("here alone: the last counts in Go", "service", r#"{"kind":"service","Kind":"x"}"#.to_owned(), 1_405_008, "Unmarshal TypeMeta failed: `kind` and `Kind` are two spellings of one key; keep `kind` at line 1 column 24".to_owned()),
        ("here alone: Go reads 10,000 levels", "application", pod("application", &format!(r#"{{"containers":[{{}}],"x":{}}}"#, "[".repeat(200) + &"]".repeat(200))), 1_405_008, "Unmarshal TypeMeta failed: recursion limit exceeded at line 1 column 236".to_owned()),
        ("1.4 JSON of another type", "application", object("application", r#","spec":[]"#), 1_405_010, "json decode failed!spec is not an object".to_owned()),
        ("1.4 JSON of another type", "application", object("application", r#","spec":{"instance":"2"}"#), 1_405_010, "json decode failed!spec.instance is not a 32-bit integer".to_owned()),
        ("1.4 JSON of another type", "deployment", object("deployment", r#","spec":{"instance":2.0}"#), 1_405_010, "json decode failed!spec.instance is not a 32-bit integer".to_owned()),
        ("1.4 JSON of another type", "daemonset", object("daemonset", r#","spec":{"template":1}"#), 1_405_010, "json decode failed!spec.template is not an object".to_owned()),
        ("5 cpu and memory are strings", "application", pod("application", r#"{"containers":[{"resources":{"limits":{"cpu":2,"memory":100}}}]}"#), 1_405_010, "json decode failed!spec.template.spec.containers[0].resources.limits.cpu is not a string; spec.template.spec.containers[0].resources.limits.memory is not a string".to_owned()),
        ("2.6: null elements crash", "application", pod("application", r#"{"containers":[{"healthChecks":[null]}]}"#), 1_405_010, "json decode failed!spec.template.spec.containers[0].healthChecks[0] is null".to_owned()),
        ("1.4 a time of Go", "deployment", pod("deployment", valid_spec).replace(r#""name":"#, r#""creationTimestamp":"yesterday","name":"#), 1_405_010, "json decode failed!metadata.creationTimestamp is not a time, such as 2024-01-31T12:00:00Z".to_owned()),
        ("1.5 labels are strings", "process", object("process", r#","spec":{"selector":{"a":1}}"#), 1_405_010, "json decode failed!spec.selector.a is not a string".to_owned()),
        ("1.4 two spellings", "application", object("application", r#","spec":{},"Spec":{}"#), 1_405_010, "json decode failed!`spec` and `Spec` are two spellings of one key; keep `spec` at line 1 column 78".to_owned()),
        ("1.5 restart policy", "application", object("application", r#","restartPolicy":{"policy":"Sometimes"}"#), 1_405_231, format!("{parameters}restart policy error")),
        ("1.5 restart policy", "daemonset", object("daemonset", r#","restartPolicy":{"policy":"never"}"#), 1_405_231, format!("{parameters}restart policy error")),
        ("1.5 restart policy", "deployment", object("deployment", r#","restartPolicy":{"policy":"never"},"spec":{"template":{}}"#), 1_405_231, format!("{parameters}restart policy error")),
        ("1.5 template nil", "application", object("application", ""), 1_405_231, format!("{parameters} no template")),
        ("1.5 template nil", "process", object("process", r#","spec":{"template":null}"#), 1_405_231, format!("{parameters} no template")),
        ("1.5 template nil", "daemonset", object("daemonset", ""), 1_405_231, format!("{parameters} no template")),
        ("1.5 nothing to run", "application", pod("application", "{}"), 1_405_231, format!("{parameters}no containers and processes")),
        ("1.5 nothing to run", "deployment", pod("deployment", r#"{"containers":[],"processes":null}"#), 1_405_231, format!("{parameters}no containers and processes")),
        ("1.5 both", "process", pod("process", r#"{"containers":[{}],"processes":[{}]}"#), 1_405_231, format!("{parameters}containers and processes cannot coexist")),
        ("create.go: what JSON does not have", "application", pod("application", r#"{"containers":[{"resources":{"limits":{"cpu":"inf"}}}]}"#), 1_405_011, "json encode failed!encode version by json: cpu is `inf`".to_owned()),
        ("1.5 a deployment has no default namespace", "deployment", pod("deployment", valid_spec).replace(r#""n""#, r#""""#), 1_405_231, format!("{parameters} metadata.namespace is ``, which is not a valid value")),
        ("here alone: a step up", "deployment", pod("deployment", valid_spec).replace(r#""n""#, r#""..""#), 1_405_231, format!("{parameters} metadata.namespace is `..`, which is not a valid value")),
        ("1.5 unknown type", "message", r#"{"msgtype":"other"}"#.to_owned(), 1_405_233, "unknown the message type".to_owned()),
        ("1.5 no type", "message", "null".to_owned(), 1_405_233, "unknown the message type".to_owned()),
        ("send.go", "message", "[]".to_owned(), 1_405_010, "json decode failed!the body is not an object".to_owned()),
        ("send.go", "message", String::new(), 1_405_010, "json decode failed!unexpected end of JSON input".to_owned()),
        ("send.go", "message", r#"{"msgtype":1}"#.to_owned(), 1_405_010, "json decode failed!msgtype is not a string".to_owned()),
        ("send.go: signal", "message", r#"{"msgtype":"signal"}"#.to_owned(), 1_405_010, "json decode failed!msgdata.signal is not the number of a signal".to_owned()),
        ("send.go: signal", "message", r#"{"msgtype":"signal","msgdata":{"signal":"9"}}"#.to_owned(), 1_405_010, "json decode failed!msgdata.signal is not the number of a signal".to_owned()),
        ("here alone: cut to 32 bits there", "message", r#"{"msgtype":"signal","msgdata":{"signal":4294967305}}"#.to_owned(), 1_405_010, "json decode failed!msgdata.signal is not the number of a signal".to_owned()),
    ] {
        let head = request_head("POST", route_path(route_kind), &[]);
        let SchedulerForwarding::Reply(response) = translate(&head, &Bytes::from(body.clone())) else {
            panic!("{source}: {body} goes on")
        };
        let text = body_text(&response);
        assert_eq!((response.status().as_u16(), response.headers()[CONTENT_TYPE].to_str().unwrap()), (200, "application/json"), "{source}: {text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let actual_message = value["message"].as_str().unwrap();
        let expected = format!("(bcs-mesos-driver):{message}");
        assert!(actual_message == expected || (message.ends_with(": ") && actual_message.starts_with(&expected)), "{source}: {actual_message}");
        assert_eq!(text, format!(r#"{{"result":false,"code":{code},"message":{},"data":{{}}}}"#, json!(actual_message)), "{source}");
    }
}

#[test]
fn the_error_for_a_name_with_a_dot_is_plain_text() {
    for kind in ["application", "process", "deployment", "daemonset"] {
        let body = json!({"kind": kind, "metadata": {"name": "a.b"}, "restartPolicy": {"policy": "x"}}).to_string();
        let head = request_head("POST", route_path(kind), &[]);
        let SchedulerForwarding::Reply(response) = translate(&head, &Bytes::from(body)) else {
            panic!("{kind} goes on")
        };
        assert_eq!(body_text(&response), "Name can't contains contains '.'", "{kind}");
        assert_eq!(
            (response.status(), &response.headers()[CONTENT_TYPE]),
            (StatusCode::OK, &HeaderValue::from_static("text/plain; charset=utf-8"))
        );
    }
}

#[test]
fn a_body_of_a_million_mistakes_gets_a_short_reply() {
    let body = format!(
        r#"{{"kind":"application","spec":{{"template":{{"spec":{{"containers":[{}1]}}}}}}}}"#,
        "1,".repeat(100_000)
    );
    let SchedulerForwarding::Reply(response) = translate(&request_head("POST", APPLICATIONS, &[]), &Bytes::from(body))
    else {
        panic!("it goes on")
    };
    let text = body_text(&response);
    assert!(
        text.len() < 2000 && text.contains("; and 99985 more mistakes"),
        "{text}"
    );
}

#[test]
#[rustfmt::skip]
fn replies_of_the_scheduler_are_passed_on_with_status_200() {
    let error_reply = |message: &str| format!(r#"{{"result":false,"code":1405009,"message":"(bcs-mesos-driver):do http request failed!{message}","data":{{}}}}"#);
    // (section or source file with this rule, scheduler's status, scheduler's body, expected reply to the client with
    // status 200)
    for (source, status, body, expected) in [
        ("2.2 created", 200, r#"{"result":true,"code":0,"message":"success","data":null}"#, None),
        ("6 create twice", 200, r#"{"result":false,"code":1405201,"message":"(bcs-scheduler):admission already exist","data":null}"#, None),
        ("6 update absent", 200, r#"{"result":false,"code":1405202,"message":"(bcs-scheduler):admission not exist","data":null}"#, None),
        ("6 versions", 200, r#"{"result":true,"code":0,"message":"success","data":["1486469930525129787"]}"#, None),
        ("1.4 whatever its status", 500, r#"{"result":false,"code":1405200,"message":"x","data":{}}"#, None),
        ("1.4 byte for byte", 201, " {\n \"code\": 0 }", None),
        ("2.2 a scheduler that is not the master", 200, "", Some(error_reply("the scheduler replied 200 OK without a body; it may not be the master"))),
        ("2.2 a scheduler that is not the master", 200, "\n", Some(error_reply("the scheduler replied 200 OK without a body; it may not be the master"))),
        ("here alone: Go follows redirects", 302, "", Some(error_reply("the scheduler replied 302 Found without a body; it may not be the master"))),
        ("here alone: Go follows redirects", 307, "<a href=\"/v2/apps\">Temporary Redirect</a>.", Some(error_reply("the scheduler replied 307 Temporary Redirect without JSON: <a href=\\\"/v2/apps\\\">Temporary Redirect</a>."))),
        ("1.3 a route that is commented out", 404, "404: Page Not Found", Some(error_reply("the scheduler replied 404 Not Found without JSON: 404: Page Not Found"))),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        match (relay(status, body.as_bytes()), expected) {
            (Relay::Unchanged { status, headers }, None) => {
                assert_eq!((status, headers.len(), &headers[CONTENT_TYPE]), (StatusCode::OK, 1, &HeaderValue::from_static("application/json")), "{source}");
            }
            (Relay::Reply(response) | Relay::NotProcessed(response), Some(expected)) => {
                assert_eq!((response.status(), body_text(&response)), (StatusCode::OK, expected), "{source}");
            }
            (got, expected) => panic!("{source}: {got:?} instead of {expected:?}"),
        }
    }
    for (status, body, is_unprocessed) in [(200, "", true), (200, "\n", false), (204, "", false), (500, "", false)] {
        let relayed = relay(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        assert_eq!(matches!(relayed, Relay::NotProcessed(_)), is_unprocessed, "{status} {body:?}");
    }
    let Relay::Reply(response) = relay(StatusCode::BAD_GATEWAY, &[0xff; 5000]) else {
        panic!("it is no JSON")
    };
    assert!(body_text(&response).chars().count() < 500);
}

#[test]
#[rustfmt::skip]
fn a_body_with_invalid_utf8_is_refused() {
    for (route_kind, body, code) in [
        ("application", &b"{\"kind\":\"application\",\"a\":\"\xff\"}"[..], "1405008"),
        ("message", b"{\"msgtype\":\"\xff\"}", "1405010"),
    ] {
        let head = request_head("POST", route_path(route_kind), &[]);
        let SchedulerForwarding::Reply(response) = translate(&head, &Bytes::from_static(body)) else {
            panic!("{route_kind} goes on")
        };
        let text = body_text(&response);
        assert!(text.contains(code) && text.contains("invalid utf-8"), "{text}");
    }
}

#[test]
#[rustfmt::skip]
fn an_unreachable_scheduler_is_reported_as_bcs_mesos_driver_reports_it() {
    for (source, reason, expected) in [
        ("1.4, 6 no scheduler", "scheduler not exist", r#"{"result":false,"code":1405009,"message":"(bcs-mesos-driver):do http request failed!scheduler not exist","data":{}}"#),
        ("1.4 unreachable", "connection refused", r#"{"result":false,"code":1405009,"message":"(bcs-mesos-driver):do http request failed!connection refused","data":{}}"#),
    ] {
        let response = scheduler_front().reply(&EndReason::UpstreamUnreachable { reason });
        assert_eq!(
            (response.status(), body_text(&response).as_str()),
            (StatusCode::OK, expected),
            "{source}"
        );
    }
}

#[test]
#[rustfmt::skip]
fn hooks_run_for_the_same_requests_as_in_bcs_mesos_driver() {
    // (section or source file with this rule, method, path, BCS-ClusterID, expected result)
    // The result is the operation of the hooks that run, `pass` if no hooks run, or a refusal.
    for (source, method, path, cluster, expected) in [
        ("6 no call for DELETE", "DELETE", "/namespaces/n/applications/a", CLUSTER, "pass"),
        ("6 no call for GET", "GET", "/namespaces/n/applications/a", CLUSTER, "pass"),
        ("6 PUT rollback calls Update hooks", "PUT", "/namespaces/n/applications/rollback", CLUSTER, "UPDATE"),
        ("2.4 POST", "POST", "/namespaces/n/applications", CLUSTER, "CREATE"),
        ("6 wrong BCS-ClusterID", "POST", "/namespaces/n/applications", "x", r#"400 1405234 http header BCS-ClusterID x don't exist null"#),
        ("6 missing BCS-ClusterID", "GET", "/admissionwebhooks", "", r#"400 1405234 http header BCS-ClusterID  don't exist null"#),
    ] {
        let clusters: Vec<&str> = Some(cluster).filter(|cluster| !cluster.is_empty()).into_iter().collect();
        let outcome = match scheduler_front().classify(&request_head(method, &format!("{PREFIX}{path}"), &clusters)) {
            Class::Pass => "pass".to_owned(),
            Class::Inspect(inspection) => inspection.operation.to_string(),
            Class::Refuse(rejection) => {
                let response = scheduler_front().reply(&EndReason::Rejected(&rejection));
                let value: serde_json::Value = serde_json::from_str(&body_text(&response)).unwrap();
                format!("{} {} {} {}", response.status().as_u16(), value["code"], value["message"].as_str().unwrap(), value["data"])
            }
        };
        assert_eq!(outcome, expected, "{source}");
    }
    let head = request_head("PUT", &format!("{PREFIX}/namespaces/n/applications/a/scale/3"), &[CLUSTER]);
    assert!(matches!(scheduler_front().read_body(&head, &Inspection::new(Operation::Update), &Bytes::new()), Ok(BodyReading::Nothing)));
}
