//! Tests the forwarding of requests to consoles on the cluster's hosts.

use std::{net::SocketAddr, time::Duration};

use admittance_bcs::ConsoleConfig;
use admittance_driver::ShutdownResult;
use axum::{Router, body::Body};
use http::{Request, Response};
use hyper_util::rt::TokioIo;

use super::scheduler::*;
use crate::harness::*;

fn with_consoles(
    address: SocketAddr,
    change: impl FnOnce(&mut ConsoleConfig) + 'static,
) -> impl FnOnce(Setup) -> Setup {
    move |setup| {
        setup.bcs(|bcs| {
            bcs.console.port = address.port();
            change(&mut bcs.console);
        })
    }
}

async fn reporting_upstream() -> SocketAddr {
    let routes = Router::new().fallback(async |request: Request<Body>| {
        let (head, body) = request.into_parts();
        let header = |name: &str| {
            let values: Vec<&str> = head
                .headers
                .get_all(name)
                .iter()
                .map(|value| value.to_str().unwrap())
                .collect();
            format!("{name}: {}\n", values.join(" "))
        };
        let header_lines = ["host", "cookie", "x-forwarded-for", "te"].map(header).concat();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Response::builder()
            .status(418)
            .header("set-cookie", "c=d")
            .body(Body::from(format!(
                "{} {}\n{header_lines}{}",
                head.method,
                head.uri,
                String::from_utf8_lossy(&body)
            )))
            .unwrap()
    });
    serve(routes).await
}

#[tokio::test]
async fn console_requests_go_to_the_host_that_they_name() {
    let scene = SchedulerScene::start_with_setup(with_consoles(reporting_upstream().await, |_| ())).await;
    // (method, path and query of the client's request, expected path and query at the console)
    for (method, path, expected) in [
        (
            "GET",
            "/webconsole/api/sessions?host_ip=127.0.0.1&x=%20",
            "/bcsapi/v1/consoleproxy/api/sessions?host_ip=127.0.0.1&x=%20",
        ),
        // The same host as in the previous case, 127.0.0.1, written as an IPv6 address.
        (
            "POST",
            "/webconsole/a?host_ip=::ffff:127.0.0.1",
            "/bcsapi/v1/consoleproxy/a?host_ip=::ffff:127.0.0.1",
        ),
    ] {
        let mut request = request(method, &mesos_path(path), "a body");
        request
            .headers_mut()
            .insert("host", "door.example.com".parse().unwrap());
        request.headers_mut().insert("cookie", "a=b".parse().unwrap());
        request
            .headers_mut()
            .insert("x-forwarded-for", "192.0.2.1".parse().unwrap());
        let response = scene.driver.send(request).await;
        assert_eq!(response.headers()["set-cookie"], "c=d", "{path}");
        let expected_report = format!(
            "{method} {expected}\nhost: door.example.com\ncookie: a=b\nx-forwarded-for: 192.0.2.1 127.0.0.1\nte: \na body"
        );
        assert_eq!(status_and_text(response).await, (418, expected_report), "{path}");
    }
    assert!(
        scene.take_requests().is_empty(),
        "the scheduler has nothing to do with it"
    );
}

#[tokio::test]
async fn a_websocket_becomes_a_tunnel() {
    let routes = Router::new().route(
        "/bcsapi/v1/consoleproxy/x",
        axum::routing::any(async |mut request: Request<Body>| {
            assert_eq!(request.headers()["upgrade"], "websocket");
            assert_eq!(request.headers()["sec-websocket-key"], "dGhl");
            assert_eq!(request.headers()["origin"], "http://door");
            assert_eq!(request.headers()["host"], "door");
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let line = read_until(&mut stream, "\n").await;
                write(&mut stream, &line.to_uppercase()).await;
                read_rest(&mut stream).await;
            });
            Response::builder()
                .status(101)
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-accept", "x")
                .body(Body::empty())
                .unwrap()
        }),
    );
    let set_consoles = with_consoles(serve(routes).await, |_| ());
    let scene = SchedulerScene::start_with_setup(|base| {
        set_consoles(base).limits(|limits| limits.shutdown_timeout = Duration::from_millis(50))
    })
    .await;
    let mut stream = scene.driver.connect().await;
    let head = format!(
        "GET {} HTTP/1.1\r\nhost: door\r\norigin: http://door\r\nbcs-clusterid: {CLUSTER}\r\nconnection: Upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-key: dGhl\r\n\r\nearly ",
        mesos_path("/webconsole/x?host_ip=127.0.0.1")
    );
    write(&mut stream, &head).await;
    let reply = read_until(&mut stream, "\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 101 "), "{reply}");
    assert!(reply.contains("sec-websocket-accept: x\r\n"), "{reply}");
    write(&mut stream, "bird\n").await;
    assert_eq!(read_until(&mut stream, "\n").await, "EARLY BIRD\n");
    scene.driver.shutdown.signal();
    assert_eq!(scene.driver.wait_until_stopped().await, ShutdownResult::Cut);
    assert_eq!(read_rest(&mut stream).await, "");
}

#[tokio::test]
#[rustfmt::skip]
async fn invalid_and_unreachable_hosts_of_consoles_are_refused() {
    let away = refusing_upstream().await;
    let scene = SchedulerScene::start_with_setup(with_consoles(away, |console| {
        console.hosts = Some(vec!["127.0.0.0/24".parse().unwrap(), "10.0.0.0/8".parse().unwrap()]);
    }))
    .await;
    // (name of the case, query, whether it opens a WebSocket, expected status, part of the reply)
    for (source, query, upgrade, status, expected) in [
        ("1.3 no host_ip", "", false, 400, "param host_ip must not be empty"),
        ("here alone: a name", "?host_ip=localhost", false, 400, "param host_ip must be an IP address"),
        ("dialect.bcs.console.hosts", "?host_ip=127.0.1.1", false, 403, "host_ip 127.0.1.1 is not one of the hosts"),
        ("dialect.bcs.console.hosts", "?host_ip=::ffff:127.0.1.1", true, 403, "host_ip 127.0.1.1 is not one of the hosts"),
        ("dialect.bcs.console.hosts", "?host_ip=::1", false, 403, "host_ip ::1 is not one of the hosts"),
        ("nobody there", "?host_ip=127.0.0.1", false, 502, "no server of the upstream accepted a connection"),
        ("nobody there", "?host_ip=127.0.0.1", true, 503, "errcode: 1405064, couldn't dial to remote backend url"),
    ] {
        let mut request = request("GET", &mesos_path(&format!("/webconsole/x{query}")), Body::empty());
        if upgrade {
            request.headers_mut().insert("connection", "upgrade".parse().unwrap());
            request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
        }
        let response = scene.driver.send(request).await;
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8", "{source}");
        let (reply_status, reply) = status_and_text(response).await;
        assert_eq!(reply_status, status, "{source}: {reply}");
        assert!(reply.contains(expected), "{source}: {reply}");
    }
    let stranger = Request::get(mesos_path("/webconsole/x?host_ip=127.0.0.1")).body(Body::empty()).unwrap();
    assert_eq!(status_and_text(scene.driver.send(stranger).await).await.0, 400, "it is for no cluster");
}
