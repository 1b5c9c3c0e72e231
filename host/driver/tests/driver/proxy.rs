use std::{collections::BTreeSet, time::Duration};

use admittance_net::upstream::HealthCheck;
use axum::{Router, body::Body, routing::any};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::harness::*;

#[tokio::test]
async fn a_request_goes_through_the_chains_before_the_upstream() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let changed_body =
        r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"plain","namespace":"n"},"seen":true}"#;
    assert_eq!(driver.post(application("good")).await, (200, application("good")));
    assert_eq!(driver.post(application("plain")).await, (200, changed_body.to_owned()));
    let (status, body) = driver.post(application("bad")).await;
    assert_eq!(status, 400);
    assert!(body.contains("1405234") && body.contains("stage judge of chain c denied the request: it is bad"));
    let request_without_cluster = Request::post(APPLICATIONS)
        .body(Body::from(application("good")))
        .unwrap();
    let (status, body) = status_and_text(driver.send(request_without_cluster).await).await;
    assert_eq!(status, 400);
    assert!(body.contains("http header BCS-ClusterID  don't exist"), "{body}");
}

#[tokio::test]
async fn the_upstream_gets_forwarded_headers() {
    let routes = Router::new().fallback(async |request: Request<Body>| {
        let mut lines: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        format!("{} {}\n{}", request.method(), request.uri(), lines.join("\n"))
    });
    let upstream = serve(routes).await;
    let driver = Setup::new(&[upstream]).start().await;
    let request = Request::get("/mesosdriver/v4/a%2Fb?x=%20;y")
        .header("bcs-clusterid", CLUSTER)
        .header("x-request-id", "me-1")
        .header("x-forwarded-for", "192.0.2.1")
        .header("connection", "x-once")
        .header("x-once", "1")
        .header("te", "trailers")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("tracestate", "a=1")
        .body(Body::empty())
        .unwrap();
    let response = driver.send(request).await;
    assert_eq!(response.headers()["x-request-id"], "me-1");
    let expected = format!(
        "GET /mesosdriver/v4/a%2Fb?x=%20;y\nbcs-clusterid: {CLUSTER}\nconnection: te\nhost: {upstream}\nte: trailers\n\
         traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\ntracestate: a=1\n\
         x-forwarded-for: 127.0.0.1\nx-forwarded-for: 192.0.2.1\nx-forwarded-host: {}\n\
         x-forwarded-proto: http\nx-request-id: me-1",
        driver.address
    );
    assert_eq!(status_and_text(response).await.1, expected);
}

#[tokio::test]
async fn bodies_that_no_chain_matches_are_streamed_both_ways() {
    let driver = Setup::new(&[echo_upstream().await])
        .limits(|limits| limits.body = 1024)
        .start()
        .await;
    assert_streams(&driver, APPLICATIONS).await;
}

#[tokio::test]
async fn the_length_header_of_a_chunked_body_is_ignored() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    for method in ["POST", "PUT"] {
        let body = application("good");
        let mut stream = driver.connect().await;
        let message = format!(
            "{method} {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\nconnection: close\r\n\
             content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        write(&mut stream, &message).await;
        let reply = read_rest(&mut stream).await;
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.contains(&body),
            "{method}: {reply}"
        );
    }
}

#[tokio::test]
async fn trailers_are_forwarded() {
    let routes = Router::new().fallback(async |request: Request<Body>| {
        let collected = request.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let frames = stream::iter([
            Ok::<_, std::io::Error>(Frame::data(collected.to_bytes())),
            Ok(Frame::trailers(trailers)),
        ]);
        Response::builder()
            .header("trailer", "x-sum")
            .body(Body::new(StreamBody::new(frames)))
            .unwrap()
    });
    let driver = Setup::new(&[serve(routes).await]).start().await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "42".parse().unwrap());
    let frames = [
        Ok::<_, std::io::Error>(Frame::data(Bytes::from("abc"))),
        Ok(Frame::trailers(trailers)),
    ];
    let mut request = request("PUT", APPLICATIONS, Body::new(StreamBody::new(stream::iter(frames))));
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    request.headers_mut().insert("trailer", "x-sum".parse().unwrap());
    let collected = within_timeout(driver.send(request).await.into_body().collect())
        .await
        .unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "42");
    assert_eq!(collected.to_bytes(), "abc");
}

#[tokio::test]
async fn a_switched_protocol_becomes_a_tunnel() {
    let routes = Router::new().route(
        "/mesosdriver/v4/webconsole/x",
        any(async |mut request: Request<Body>| {
            assert_eq!(request.headers()["upgrade"], "shout");
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let line = read_until(&mut stream, "\n").await;
                write(&mut stream, &line.to_uppercase()).await;
            });
            Response::builder()
                .status(101)
                .header("connection", "upgrade")
                .header("upgrade", "shout")
                .body(Body::empty())
                .unwrap()
        }),
    );
    let driver = Setup::new(&[serve(routes).await]).start().await;
    let mut stream = driver.connect().await;
    let head = format!(
        "GET /mesosdriver/v4/webconsole/x HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\n\
         connection: Upgrade\r\nupgrade: shout\r\n\r\nearly "
    );
    write(&mut stream, &head).await;
    let reply = read_until(&mut stream, "\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 101 "), "{reply}");
    assert!(reply.contains("upgrade: shout\r\n"), "{reply}");
    write(&mut stream, "bird\n").await;
    assert_eq!(read_rest(&mut stream).await, "EARLY BIRD\n");
}

#[tokio::test]
async fn the_next_server_is_tried_when_a_server_refuses_connections() {
    let driver = Setup::new(&[
        refusing_upstream().await,
        echo_upstream().await,
        refusing_upstream().await,
    ])
    .start()
    .await;
    for _ in 0..6 {
        // A streamed body cannot be sent twice, so the driver does not send the request to the second server.
        let body = stream::iter(["a", "b"]).map(|chunk| Ok::<_, std::io::Error>(Bytes::from(chunk)));
        let response = driver.send(request("PUT", APPLICATIONS, Body::from_stream(body))).await;
        assert_eq!(status_and_text(response).await, (200, "ab".to_owned()));
    }
    assert_eq!(driver.get_from_admin("/readyz").await.0, 200);
    let detail = driver.status().await.to_string();
    assert_eq!(detail.matches(r#""up":false"#).count(), 2, "{detail}");
}

#[tokio::test]
async fn requests_alternate_between_servers() {
    let serve_name = async |name: &'static str| serve(Router::new().fallback(async move || name)).await;
    let driver = Setup::new(&[serve_name("a").await, serve_name("b").await])
        .start()
        .await;
    let mut replies = String::new();
    for _ in 0..4 {
        replies += &driver.post(application("good")).await.1;
    }
    assert!(replies == "abab" || replies == "baba", "{replies}");
}

#[tokio::test]
async fn a_request_fails_without_a_reachable_server() {
    let driver = Setup::new(&[refusing_upstream().await]).start().await;
    let (status, body) = driver.post(application("good")).await;
    assert_eq!(status, 200, "as the BCS driver has it");
    assert_eq!(
        body,
        r#"{"result":false,"code":1405009,"message":"do http request failed!no server of the upstream accepted a connection","data":{}}"#
    );
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let driver = Setup::new(&[address]).start().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
        let mut part = [0; 3];
        stream.read_exact(&mut part).await.unwrap();
        drop(stream);
        // The listener is returned and stays open. If the driver connects a second time, the test can notice it.
        listener
    };
    let ((_, body), listener) = within_timeout(async { tokio::join!(driver.post(application("good")), server) }).await;
    assert!(
        body.contains("the connection to the upstream broke before it replied"),
        "{body}"
    );
    let second_connection = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(second_connection.is_err(), "the request was sent again");
}

#[tokio::test]
async fn a_slow_upstream_times_out() {
    let routes = Router::new().fallback(async || std::future::pending::<()>().await);
    let driver = Setup::new(&[serve(routes).await])
        .upstream(|upstream| upstream.response_timeout = Duration::from_millis(50))
        .start()
        .await;
    let (_, body) = driver.post(application("good")).await;
    assert!(body.contains("the upstream did not reply within 50ms"), "{body}");
}

#[tokio::test]
async fn health_checks_remove_and_restore_a_server() {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };
    let healthy = Arc::new(AtomicBool::new(false));
    let state = healthy.clone();
    let routes = Router::new()
        .route(
            "/health",
            any(async move || {
                if state.load(Ordering::Relaxed) {
                    http::StatusCode::OK
                } else {
                    http::StatusCode::SERVICE_UNAVAILABLE
                }
            }),
        )
        .fallback(async || "sick");
    let healthy_server = serve(
        Router::new()
            .route("/health", any(async || ""))
            .fallback(async || "well"),
    )
    .await;
    let driver = Setup::new(&[serve(routes).await, healthy_server])
        .upstream(|upstream| {
            upstream.health = Some(HealthCheck {
                path: "/health".parse().unwrap(),
                interval: Duration::from_millis(10),
                timeout: Duration::from_secs(1),
                authorization: None,
            });
        })
        .start()
        .await;
    let wait_until_up = async |count: usize| loop {
        let detail = driver.status().await.to_string();
        if detail.matches(r#""up":true"#).count() == count {
            break;
        }
        tokio::task::yield_now().await;
    };
    within_timeout(wait_until_up(1)).await;
    for _ in 0..4 {
        assert_eq!(driver.post(application("good")).await.1, "well");
    }
    healthy.store(true, Ordering::Relaxed);
    within_timeout(wait_until_up(2)).await;
    let bodies = [
        driver.post(application("good")).await.1,
        driver.post(application("good")).await.1,
    ];
    assert!(
        bodies.contains(&"sick".to_owned()) && bodies.contains(&"well".to_owned()),
        "{bodies:?}"
    );
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    for (method, expected) in [("POST", "HTTP/1.1 200"), ("PUT", "HTTP/1.1 200")] {
        let mut stream = driver.connect().await;
        let body = application("good");
        let head = format!(
            "{method} {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\nexpect: 100-continue\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        write(&mut stream, &head).await;
        assert_eq!(
            read_until(&mut stream, "\r\n\r\n").await,
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        write(&mut stream, &body).await;
        let reply = read_rest(&mut stream).await;
        assert!(
            reply.starts_with(expected) && reply.ends_with(&body),
            "{method}: {reply}"
        );
    }
}

#[tokio::test]
async fn the_admin_port_serves_probes_and_metrics() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    assert_eq!(driver.get_from_admin("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(
        driver.get_from_admin("/metrics").await,
        (200, "a_metric 1\n".to_owned())
    );
    // `/readyz` needs no authentication, so the reply has no details.
    assert_eq!(driver.get_from_admin("/readyz").await.0, 200);
    assert_eq!(driver.status().await["chains"][0]["name"], "c");
    assert_eq!(driver.get_from_admin("/other").await.0, 404);
}

#[tokio::test]
async fn clients_cannot_choose_the_labels_of_metrics() {
    const MARK: &str = "flood";
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let driver = Setup::new(&[echo_upstream().await]).on_this_thread().start().await;
    let object = |kind: &str, name: &str| {
        json!({"apiVersion": MARK, "kind": kind, "metadata": {"name": name, "namespace": MARK}}).to_string()
    };
    let mut series = Vec::new();
    for round in ["a", "b", "c"] {
        let mark = format!("{MARK}-{round}");
        for (method, path, body) in [
            ("POST", APPLICATIONS, object("application", "bad")),
            ("POST", APPLICATIONS, object("application", "odd")),
            ("POST", APPLICATIONS, object("application", &mark)),
            ("POST", APPLICATIONS, object(&mark, "good")),
            ("POST", APPLICATIONS, mark.clone()),
            ("FLOOD", APPLICATIONS, mark.clone()),
            ("GET", "/mesosdriver/v4/flood", String::new()),
            (
                "DELETE",
                "/mesosdriver/v4/namespaces/flood/applications/flood",
                String::new(),
            ),
            ("GET", "/flood?flood=flood", String::new()),
        ] {
            let mut flood_request = request(method, path, body);
            for header in ["user-agent", "traceparent", "x-forwarded-for", "flood"] {
                flood_request.headers_mut().insert(header, mark.parse().unwrap());
            }
            status_and_text(driver.send(flood_request).await).await;
        }
        let rendered = metrics.render();
        assert!(
            rendered.contains("admittance_requests_total{decision=\"denied\"}"),
            "{rendered}"
        );
        assert!(!rendered.to_lowercase().contains(MARK), "{rendered}");
        let lines = rendered
            .lines()
            .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()));
        series.push(lines.filter(|line| !line.starts_with('#')).collect::<BTreeSet<_>>());
    }
    assert_eq!(series[1], series[2]);
}
