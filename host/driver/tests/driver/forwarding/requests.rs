//! Tests what requests look like when the scheduler receives them, and which requests it does not receive.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener};

use super::scheduler::*;
use crate::harness::*;

const APPLICATIONS_PATH: &str = "/namespaces/n/applications";

#[tokio::test]
async fn headers_of_the_client_are_not_forwarded() {
    let scene = SchedulerScene::start().await;
    for (method, path, body) in [
        ("POST", APPLICATIONS.to_owned(), runnable_json("application", "a")),
        ("PUT", APPLICATIONS.to_owned(), runnable_json("application", "a")),
        ("POST", mesos_path("/agentsettings"), "[]".to_owned()),
        ("PUT", mesos_path("/agentsettings/taint"), "[]".to_owned()),
        (
            "PUT",
            mesos_path("/namespaces/n/applications/a/scale/3"),
            "unread".to_owned(),
        ),
        ("GET", mesos_path("/cluster/resources"), String::new()),
    ] {
        let mut request = request(method, &path, Body::from(body));
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("content-type", "application/x-yaml"),
            ("accept", "text/html"),
            ("accept-encoding", "gzip"),
            ("user-agent", "someone"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-request-id", "me-1"),
            ("te", "trailers"),
            ("digest", "sha-256=x"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = scene.driver.send(request).await;
        assert_eq!(response.headers()["x-request-id"], "me-1", "{method} {path}");
        assert_eq!(status_and_text(response).await.0, 200, "{method} {path}");
        let [received] = &scene.take_requests()[..] else {
            panic!("{method} {path} was not asked once")
        };
        let mut expected = vec![
            "accept-encoding: identity".to_owned(),
            "accept: application/json".to_owned(),
            format!("content-length: {}", received.body.len()),
            "content-type: application/json".to_owned(),
        ];
        if method == "GET" {
            expected.remove(2);
        }
        assert_eq!(received.header_lines(), expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_request_goes_through_the_chains_before_it_is_forwarded() {
    let scene = SchedulerScene::start().await;
    let path = "/namespaces/n/applications";
    let (forwarded_request, status, _) = scene.send("POST", path, &runnable_json("application", "plain")).await;
    let version = forwarded_request.unwrap().json();
    assert_eq!(
        (status, &version["ID"], &version["raw_json"]["seen"]),
        (200, &json!("plain"), &json!(true)),
        "what goes on is what the chains left"
    );

    let (forwarded, status, reply) = scene.send("POST", path, &runnable_json("application", "bad")).await;
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert!(forwarded.is_none());
    assert_eq!((status, &reply["code"]), (400, &json!(1_405_234)));

    let response = scene
        .driver
        .send(post_request(runnable_json("application", "odd")))
        .await;
    assert_eq!(response.headers()["warning"], r#"299 - "it is odd""#);
    let response = scene.driver.send(post_request(application("odd"))).await;
    assert_eq!(response.headers()["warning"], r#"299 - "it is odd""#);
    assert!(status_and_text(response).await.1.contains("no template"));
}

#[tokio::test]
#[rustfmt::skip]
async fn refused_requests_do_not_reach_the_scheduler() {
    let scene = SchedulerScene::start().await;
    let deep = format!(r#"{{"kind":"application","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    // (name of the case, method, path, body, expected status, part of the expected reply)
    for (source, method, path, body, status, expected) in [
        ("6 wrong kind", "POST", "/namespaces/n/applications", runnable_json("process", "a"), 200, r#"{"result":false,"code":1405008,"message":"(bcs-mesos-driver):Kind process is invalid","data":{}}"#),
        ("6 wrong kind, that chains look at", "PUT", "/namespaces/n/applications", runnable_json("deployment", "a"), 200, "1405008"),
        ("1.4 a dot in the name", "PUT", "/namespaces/n/applications", runnable_json("application", "a.b"), 200, "Name can't contains contains '.'"),
        ("1.5 no template", "PUT", "/namespaces/n/applications", application("a"), 200, "1405231"),
        ("1.5 a message of no type", "POST", "/namespaces/n/applications/a/message", "{}".to_owned(), 200, "1405233"),
        ("no body", "PUT", "/namespaces/n/applications", String::new(), 200, "1405008"),
        ("2.6 no. 6: null", "PUT", "/namespaces/n/applications", "null".to_owned(), 200, "Kind  is invalid"),
        ("the same, that chains look at", "POST", "/namespaces/n/applications", "null".to_owned(), 400, "1405010"),
        ("here alone: Go reads 10,000 levels", "PUT", "/namespaces/n/applications", deep.clone(), 200, "1405008"),
        ("the same, that chains look at", "POST", "/namespaces/n/applications", deep.clone(), 400, "recursion limit exceeded"),
        ("a byte order mark, which Go refuses too", "PUT", "/namespaces/n/applications", format!("\u{feff}{}", runnable_json("application", "a")), 200, "1405008"),
        ("the same, that chains look at", "POST", "/namespaces/n/applications", format!("\u{feff}{}", runnable_json("application", "a")), 400, "1405010"),
        ("strconv.Atoi", "PUT", "/namespaces/n/deployments/a/scale/x", String::new(), 200, "strconv.Atoi"),
        ("1.3 no such route", "GET", "/namespaces/n/deployments/a", String::new(), 405, "405: Method Not Allowed"),
        ("1.3 no such route", "PATCH", "/namespaces/n/applications", String::new(), 405, "405: Method Not Allowed"),
        ("1.3 no such route", "GET", "/other", String::new(), 404, "404: Page Not Found"),
        ("1.3 kubeconfig", "GET", "/customresourcedefinitions", String::new(), 404, "404: Page Not Found"),
        ("1.3 kubeconfig", "POST", "/customresources/g/v1/k", String::new(), 404, "404: Page Not Found"),
    ] {
        let (forwarded_request, reply_status, reply) = scene.send(method, path, &body).await;
        assert!(forwarded_request.is_none(), "{source}: {forwarded_request:?}");
        assert_eq!(reply_status, status, "{source}: {reply}");
        assert!(reply.contains(expected), "{source}: {reply}");
    }
    let outside = Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(status_and_text(scene.driver.send(outside).await).await.0, 404);
    let stranger = Request::get(mesos_path("/cluster/resources")).body(Body::empty()).unwrap();
    let (status, reply) = status_and_text(scene.driver.send(stranger).await).await;
    assert_eq!(status, 400);
    assert!(reply.contains("http header BCS-ClusterID  don't exist"), "{reply}");
    assert!(scene.take_requests().is_empty());
}

/// bcs-mesos-driver replaces invalid UTF-8, and replies in XML or with 406 to clients that do not accept JSON.
#[tokio::test]
async fn invalid_utf8_is_refused_and_every_reply_is_json() {
    let scene = SchedulerScene::start().await;
    for (method, status) in [("POST", 400), ("PUT", 200)] {
        let body = b"{\"kind\":\"application\",\"a\":\"\xff\"}".to_vec();
        let request = request(method, &mesos_path("/namespaces/n/applications"), body);
        let (reply_status, reply) = status_and_text(scene.driver.send(request).await).await;
        assert_eq!(reply_status, status, "{reply}");
        assert!(reply.contains("invalid utf-8"), "{reply}");
    }
    assert!(scene.take_requests().is_empty());
    for accept in ["application/xml", "text/html", "*/*", ""] {
        for (path, body, status, expected) in [
            ("/namespaces/n/applications", "null", 400, "1405010"),
            ("/namespaces/n/configmaps", "{}", 200, "1405008"),
            ("/namespaces/n/applications/a/taskgroups/b/restart", "", 200, "success"),
        ] {
            let mut request = request("POST", &mesos_path(path), body);
            request.headers_mut().insert("accept", accept.parse().unwrap());
            let response = scene.driver.send(request).await;
            assert_eq!(
                response.headers()["content-type"],
                "application/json",
                "{accept} {path}"
            );
            let (status_code, reply) = status_and_text(response).await;
            assert_eq!(status_code, status, "{accept} {path}: {reply}");
            assert!(reply.contains(expected), "{accept} {path}: {reply}");
        }
    }
}

#[tokio::test]
async fn methods_without_a_route_are_refused() {
    let scene = SchedulerScene::start().await;
    for method in ["HEAD", "OPTIONS", "PATCH"] {
        let mut stream = scene.driver.connect().await;
        let head = format!(
            "{method} {} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\nconnection: close\r\n\r\n",
            mesos_path(APPLICATIONS_PATH)
        );
        write(&mut stream, &head).await;
        let reply = read_rest(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 405 "), "{method}: {reply}");
        assert!(reply.contains("allow: GET, POST, PUT\r\n"), "{method}: {reply}");
        assert_eq!(reply.ends_with("\r\n\r\n"), method == "HEAD", "{method}: {reply}");
    }
}

#[tokio::test]
async fn a_request_ends_when_its_client_hangs_up() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let setup = Setup::new(&[listener.local_addr().unwrap()]);
    let driver = in_front_of_schedulers(setup).start().await;
    let mut client = driver.connect().await;
    let body = runnable_json("application", "a");
    let head = format!(
        "PUT {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    write(&mut client, &head).await;
    let (mut scheduler, _) = within_timeout(listener.accept()).await.unwrap();
    read_until(&mut scheduler, "\r\n\r\n").await;
    drop(client);
    let mut rest = Vec::new();
    within_timeout(scheduler.read_to_end(&mut rest)).await.unwrap();
    assert!(serde_json::from_slice::<Value>(&rest).unwrap()["raw_json"].is_object());
}
