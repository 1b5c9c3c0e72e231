//! Tests the limits per client: its slots for connections, requests, watches and tunnels, memory, and timeouts.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use admittance_driver::ReviewsConfig;
use admittance_net::limits::raise_descriptor_limit;
use axum::{Router, body::Body};
use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
};

use crate::{
    gateway::{GATEWAY_PREFIX, SimulatedDriver, gateway_setup},
    harness::*,
};

/// A timeout that is short for a test, but longer than a request takes on a busy machine.
const SHORT_TIMEOUT: Duration = Duration::from_millis(500);
const LOCAL_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

async fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    within_timeout(socket.connect(to)).await.unwrap()
}

/// Returns the head of a request that announces a body of nine bytes, and the first byte of the body.
fn unfinished_request(method: &str) -> String {
    format!("{method} {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\ncontent-length: 9\r\n\r\n{{")
}

async fn ask(mut stream: TcpStream, method: &str) -> String {
    let body = application("good");
    let length = body.len();
    let head = format!(
        "{method} {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    write(&mut stream, &head).await;
    read_rest(&mut stream).await
}

fn large_unfinished_request(path: &str, content_type: &str, length: usize) -> String {
    let body_start = " ".repeat(length - 1);
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nbcs-clusterid: {CLUSTER}\r\ncontent-type: {content_type}\r\n\
         content-length: {length}\r\n\r\n{body_start}"
    )
}

/// Sends a request without its last byte, and then this byte; returns whether the request is refused because no memory
/// is left.
async fn is_refused(address: SocketAddr, request: &str) -> bool {
    let mut stream = connect_from(OTHER_CLIENT, address).await;
    write(&mut stream, request).await;
    write(&mut stream, " ").await;
    let head = read_until(&mut stream, "\r\n\r\n").await;
    head.starts_with("HTTP/1.1 503 ")
}

/// A client gets at most its share of the memory for unfinished bodies, at every port and for every front end.
#[tokio::test]
async fn unfinished_bodies_share_a_memory_limit() {
    const SIZE: usize = 100 << 10;
    let with_limits = |setup: Setup| {
        setup.on_this_thread().limits(|limits| {
            limits.body = SIZE;
            // The memory is enough for four complete bodies, and for the first bytes of further ones.
            limits.body_memory = Some(4 * SIZE + 100);
        })
    };
    let mut reviews_setup = Setup::new(&[]);
    reviews_setup.config.front = Box::new(ReviewsConfig::default());
    let simulated_driver = SimulatedDriver::start().await;
    let gateway_clusters = [(CLUSTER, &[simulated_driver.address][..])];
    let gateway_path = format!("{GATEWAY_PREFIX}/a");
    let (json, yaml) = ("application/json", "application/yaml");
    for (name, setup, path, kind, is_admin) in [
        (
            "driver",
            Setup::new(&[echo_upstream().await]),
            APPLICATIONS,
            json,
            false,
        ),
        ("reviews", reviews_setup, "/admit", json, false),
        (
            "gateway",
            gateway_setup(&gateway_clusters, |_| {}),
            &gateway_path,
            yaml,
            false,
        ),
        ("admin", Setup::new(&[echo_upstream().await]), "/v1/applies", json, true),
    ] {
        let driver = with_limits(setup).start().await;
        let address = if is_admin { driver.admin } else { driver.address };
        let request = large_unfinished_request(path, kind, SIZE);
        let mut open_streams = Vec::new();
        // One client may use three quarters of the memory, which is enough for three of these bodies. So one of the
        // four requests is refused.
        for _ in 0..4 {
            let mut stream = connect_from(OTHER_CLIENT, address).await;
            write(&mut stream, &request).await;
            open_streams.push(stream);
        }
        let replies = open_streams
            .iter_mut()
            .map(|stream| Box::pin(read_until(stream, "try again later")));
        let (reply, ..) = future::select_all(replies).await;
        assert!(reply.starts_with("HTTP/1.1 503 "), "{name}: {reply}");
        let mut other_stream = connect_from(LOCAL_CLIENT, address).await;
        write(&mut other_stream, &large_unfinished_request(path, kind, SIZE / 2)).await;
        write(&mut other_stream, " ").await;
        let reply = read_until(&mut other_stream, "\r\n\r\n").await;
        assert!(!reply.starts_with("HTTP/1.1 503 "), "{name}: {reply}");
        drop((open_streams, other_stream));
        let wait_for_memory = async {
            while is_refused(address, &request).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within_timeout(wait_for_memory).await;
    }
}

async fn reporting_upstream() -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let routes = Router::new().fallback(async move |request: Request<Body>| {
        arrived.send(()).unwrap();
        request.into_body()
    });
    (serve(routes).await, arrivals)
}

/// No chain matches PUT, so the bodies of these requests are streamed, and only the number of slots limits them.
#[tokio::test]
async fn unfinished_bodies_of_one_client_do_not_lock_out_another() {
    raise_descriptor_limit();
    let (upstream, mut arrivals) = reporting_upstream().await;
    let driver = Setup::new(&[upstream]).start().await;
    let mut open_streams = Vec::new();
    for _ in 0..1024 {
        let mut stream = connect_from(LOCAL_CLIENT, driver.address).await;
        write(&mut stream, &unfinished_request("PUT")).await;
        open_streams.push(stream);
    }
    // One client may take 768 of the 1,024 slots.
    for _ in 0..768 {
        within_timeout(arrivals.recv()).await.unwrap();
    }
    let reply = ask(connect_from(LOCAL_CLIENT, driver.address).await, "PUT").await;
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    for method in ["PUT", "POST"] {
        let reply = ask(connect_from(OTHER_CLIENT, driver.address).await, method).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{method}: {reply}");
    }
    drop(open_streams);
}

#[tokio::test]
async fn a_request_with_a_stalled_body_frees_its_slot() {
    let (upstream, _arrivals) = reporting_upstream().await;
    let driver = Setup::new(&[upstream])
        .limits(|limits| {
            limits.concurrency = 1;
            limits.idle_timeout = SHORT_TIMEOUT;
        })
        .start()
        .await;
    // The body of a PUT is streamed to the upstream, and the body of a POST is read for the chains.
    for method in ["PUT", "POST"] {
        let mut stream = driver.connect().await;
        write(&mut stream, &unfinished_request(method)).await;
        // If the upstream has begun to reply before the body stalls, the client gets a truncated reply.
        let reply = read_rest(&mut stream).await;
        assert!(
            !reply.ends_with('}') || reply.starts_with("HTTP/1.1 408 "),
            "{method}: {reply}"
        );
        let reply = ask(driver.connect().await, method).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{method}: {reply}");
    }
}

#[tokio::test]
async fn a_stalled_body_ends_the_request_with_a_reason() {
    let upstream = serve(Router::new().fallback(async |body: Bytes| body)).await;
    let driver = Setup::new(&[upstream])
        .limits(|limits| limits.idle_timeout = SHORT_TIMEOUT)
        .start()
        .await;
    for method in ["PUT", "POST"] {
        let mut stream = driver.connect().await;
        write(&mut stream, &unfinished_request(method)).await;
        let reply = read_rest(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 408 "), "{method}: {reply}");
        assert!(reply.contains("the client was idle for 500ms"), "{method}: {reply}");
    }
}

#[tokio::test]
async fn a_body_that_arrives_too_slowly_ends_the_request_with_a_reason() {
    let upstream = serve(Router::new().fallback(async |body: Bytes| body)).await;
    let driver = Setup::new(&[upstream])
        .limits(|limits| {
            limits.idle_timeout = SHORT_TIMEOUT;
            limits.minimum_rate = 1024;
        })
        .start()
        .await;
    let mut stream = driver.connect().await;
    let head = unfinished_request("PUT").replace("length: 9", "length: 999999");
    write(&mut stream, &head).await;
    let (mut read_half, mut write_half) = stream.split();
    let dripping = async {
        while write_half.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut reply = String::new();
    let reply_reading = async {
        let mut part = [0; 1024];
        while !reply.contains("\r\n\r\n") {
            let read = read_half.read(&mut part).await.unwrap();
            assert_ne!(read, 0, "{reply}");
            reply.push_str(&String::from_utf8_lossy(&part[..read]));
        }
    };
    within_timeout(async { tokio::join!(reply_reading, dripping) }).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
}

#[tokio::test]
async fn a_stalled_body_over_http2_ends_the_request_with_a_reason() {
    let upstream = serve(Router::new().fallback(async |body: Bytes| body)).await;
    let driver = Setup::new(&[upstream])
        .limits(|limits| limits.idle_timeout = SHORT_TIMEOUT)
        .start()
        .await;
    let stream = TokioIo::new(driver.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let body = stream::iter([Ok::<_, std::io::Error>(Bytes::from("{"))]).chain(stream::pending());
    let mut stalled_request = request("PUT", APPLICATIONS, Body::from_stream(body));
    *stalled_request.uri_mut() = format!("http://localhost{APPLICATIONS}").parse().unwrap();
    assert_eq!(
        within_timeout(sender.send_request(stalled_request))
            .await
            .unwrap()
            .status(),
        408
    );
    let mut complete_request = request("PUT", APPLICATIONS, application("good"));
    *complete_request.uri_mut() = format!("http://localhost{APPLICATIONS}").parse().unwrap();
    assert_eq!(
        within_timeout(sender.send_request(complete_request))
            .await
            .unwrap()
            .status(),
        200
    );
}

/// Starts an upstream with an endless reply. It reports when the driver stops reading the reply.
async fn serve_endless_reply() -> (SocketAddr, mpsc::Receiver<()>) {
    let (stream_guard, stream_end) = mpsc::channel::<()>(1);
    let routes = Router::new().fallback(async move || {
        let guard = stream_guard.clone();
        let parts = stream::repeat_with(move || {
            let _ = &guard;
            Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 65536]))
        });
        Body::from_stream(parts)
    });
    (serve(routes).await, stream_end)
}

#[tokio::test]
async fn a_reply_that_the_client_does_not_read_is_aborted() {
    let (upstream, _stream_end) = serve_endless_reply().await;
    for is_http2 in [false, true] {
        // The aborted request may still occupy the only slot of its driver. So each HTTP version is tested with a new
        // driver.
        let driver = Setup::new(&[upstream])
            .limits(|limits| {
                limits.concurrency = 1;
                limits.idle_timeout = SHORT_TIMEOUT;
            })
            .start()
            .await;
        let stream = TokioIo::new(driver.connect().await);
        let mut get_request = request("GET", APPLICATIONS, Body::empty());
        *get_request.uri_mut() = format!("http://localhost{APPLICATIONS}").parse().unwrap();
        let response = if is_http2 {
            let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            within_timeout(sender.send_request(get_request)).await.unwrap()
        } else {
            get_request.headers_mut().insert("host", "x".parse().unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            within_timeout(sender.send_request(get_request)).await.unwrap()
        };
        assert_eq!(response.status(), 200);
        let wait_until_aborted = async {
            loop {
                let retry = driver.send(request("GET", APPLICATIONS, Body::empty())).await;
                if retry.status() == 200 {
                    return;
                }
                assert_eq!(retry.status(), 503);
            }
        };
        within_timeout(wait_until_aborted).await;
        drop(response);
        let wait_for_free_slot =
            async { while driver.send(request("DELETE", "/x", Body::empty())).await.status() == 503 {} };
        within_timeout(wait_for_free_slot).await;
    }
}

async fn serve_events() -> (SocketAddr, tokio::sync::broadcast::Sender<()>) {
    let (sender, _) = tokio::sync::broadcast::channel::<()>(8);
    let routes = {
        let sender = sender.clone();
        Router::new().fallback(async move |request: Request<Body>| {
            if request.uri().path() == "/plain" {
                return Response::new(Body::from("plain"));
            }
            let event_stream = stream::unfold(sender.subscribe(), async |mut receiver| {
                receiver.recv().await.ok()?;
                Some((Ok::<_, std::io::Error>(Bytes::from("event\n")), receiver))
            });
            Response::new(Body::from_stream(event_stream))
        })
    };
    (serve(routes).await, sender)
}

#[tokio::test]
async fn a_watch_outlives_idle_timeouts_and_takes_no_request_slot() {
    let (upstream, event_sender) = serve_events().await;
    let driver = Setup::new(&[upstream])
        .upstream(|upstream| upstream.response_timeout = SHORT_TIMEOUT)
        .limits(|limits| {
            limits.concurrency = 1;
            limits.streams = 1;
            limits.idle_timeout = SHORT_TIMEOUT;
        })
        .start()
        .await;
    let mut watch = driver.send(request("GET", "/pods?watch=true", Body::empty())).await;
    assert_eq!(watch.status(), 200);
    let second_watch = driver.send(request("GET", "/pods?watch=true", Body::empty())).await;
    assert_eq!(second_watch.status(), 503, "watches have a limit of their own");
    let mut list_body = driver.send(request("GET", "/pods", Body::empty())).await.into_body();
    assert!(within_timeout(list_body.frame()).await.unwrap().is_err());
    let wait_for_free_slot =
        async { while driver.send(request("GET", "/plain", Body::empty())).await.status() == 503 {} };
    within_timeout(wait_for_free_slot).await;
    for _ in 0..2 {
        tokio::time::sleep(2 * SHORT_TIMEOUT).await;
        event_sender.send(()).unwrap();
        let event = within_timeout(watch.frame())
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        assert_eq!(event, "event\n");
    }
}

pub(crate) async fn serve_protocol_switch() -> SocketAddr {
    let routes = Router::new().fallback(async |mut request: Request<Body>| {
        if !request.headers().contains_key("upgrade") {
            return Response::new(Body::from("plain"));
        }
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let stream = TokioIo::new(upgrade.await.unwrap());
            let (mut read_half, mut write_half) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut read_half, &mut write_half).await;
        });
        let response = Response::builder().status(101);
        response
            .header("connection", "upgrade")
            .header("upgrade", "echo")
            .body(Body::empty())
            .unwrap()
    });
    serve(routes).await
}

async fn open_tunnel(driver: &RunningDriver) -> (TcpStream, String) {
    let mut stream = driver.connect().await;
    write(
        &mut stream,
        "GET /x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
    )
    .await;
    let head = read_until(&mut stream, "\r\n\r\n").await;
    (stream, head)
}

#[tokio::test]
async fn tunnels_do_not_count_towards_the_request_limit() {
    let driver = Setup::new(&[serve_protocol_switch().await])
        .limits(|limits| {
            limits.concurrency = 1;
            limits.streams = 1;
        })
        .start()
        .await;
    let (mut tunnel, head) = open_tunnel(&driver).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let (_refused, head) = open_tunnel(&driver).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let plain = status_and_text(driver.send(request("GET", "/plain", Body::empty())).await).await;
    assert_eq!(plain, (200, "plain".to_owned()), "requests have their own places");
    write(&mut tunnel, "still open").await;
    assert_eq!(read_until(&mut tunnel, "open").await, "still open");
    drop(tunnel);
    let wait_for_free_place = async { while !open_tunnel(&driver).await.1.starts_with("HTTP/1.1 101 ") {} };
    within_timeout(wait_for_free_place).await;
}

#[tokio::test]
async fn an_idle_tunnel_is_closed() {
    let driver = Setup::new(&[serve_protocol_switch().await])
        .limits(|limits| limits.stream_idle_timeout = SHORT_TIMEOUT)
        .start()
        .await;
    let (mut tunnel, head) = open_tunnel(&driver).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(read_rest(&mut tunnel).await, "", "it is closed");
}

#[tokio::test]
async fn connections_of_one_client_do_not_lock_out_another() {
    let driver = Setup::new(&[echo_upstream().await])
        .limits(|limits| limits.connections = Some(8))
        .start()
        .await;
    let mut open_streams = Vec::new();
    for _ in 0..6 {
        open_streams.push(connect_from(LOCAL_CLIENT, driver.address).await);
    }
    let mut refused = connect_from(LOCAL_CLIENT, driver.address).await;
    assert_eq!(read_rest(&mut refused).await, "", "it has its share");
    let reply = ask(connect_from(OTHER_CLIENT, driver.address).await, "POST").await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let reply = ask(open_streams.pop().unwrap(), "POST").await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let wait_for_connection = async {
        loop {
            let mut stream = connect_from(LOCAL_CLIENT, driver.address).await;
            let head = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let mut reply = String::new();
            // If the driver refuses this connection, the write may fail. The loop then tries again with a new
            // connection.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.read_to_string(&mut reply).await;
            if reply.starts_with("HTTP/1.1 ") {
                return;
            }
        }
    };
    within_timeout(wait_for_connection).await;
}

#[tokio::test]
async fn thousands_of_idle_connections_stay_usable() {
    raise_descriptor_limit();
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let mut open_streams = Vec::new();
    for _ in 0..4500 {
        open_streams.push(driver.connect().await);
    }
    assert_eq!(driver.post(application("good")).await.0, 200);
    let reply = ask(open_streams.pop().unwrap(), "POST").await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[tokio::test]
async fn webhook_servers_gateways_and_admin_ports_limit_idle_clients() {
    let mut setup = Setup::new(&[]).limits(|limits| limits.idle_timeout = SHORT_TIMEOUT);
    setup.config.front = Box::new(ReviewsConfig::default());
    let reviews = setup.start().await;
    let simulated_driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[simulated_driver.address])], |_| {})
        .limits(|limits| limits.idle_timeout = SHORT_TIMEOUT)
        .start()
        .await;
    let applications = format!("{GATEWAY_PREFIX}/namespaces/n/applications");
    for (case, address, path, words) in [
        ("reviews", reviews.address, "/admit", "the client was idle for 500ms"),
        (
            "gateway",
            gateway.address,
            applications.as_str(),
            "the client was idle for 500ms",
        ),
        (
            "operator's port",
            reviews.admin,
            "/v1/definitions",
            "the body did not arrive",
        ),
    ] {
        let mut stream = connect_from(LOCAL_CLIENT, address).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nbcs-clusterid: {CLUSTER}\r\ncontent-type: application/json\r\n\
             content-length: 9\r\n\r\n{{"
        );
        write(&mut stream, &head).await;
        let reply = read_rest(&mut stream).await;
        assert!(
            reply.starts_with("HTTP/1.1 408 ") && reply.contains(words),
            "{case}: {reply}"
        );
    }
    assert!(simulated_driver.take_requests().is_empty());
}

#[tokio::test]
async fn open_watches_and_tunnels_are_counted_apart_from_requests() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let (watch_server, _events) = serve_events().await;
    let tunnel_server = serve_protocol_switch().await;
    let has_metric = |name: &str, value: u32| metrics.render().contains(&format!("admittance_http_{name} {value}\n"));
    for (case, upstream, path, headers) in [
        ("a watch", watch_server, "/pods?watch=true", ""),
        ("an old watch", watch_server, "/api/v1/watch/pods", ""),
        (
            "a tunnel",
            tunnel_server,
            "/x",
            "connection: upgrade\r\nupgrade: echo\r\n",
        ),
    ] {
        let driver = Setup::new(&[upstream]).on_this_thread().start().await;
        let mut stream = driver.connect().await;
        write(&mut stream, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 "), "{case}: {head}");
        let rendered = metrics.render();
        assert!(has_metric("streams_open", 1), "{case}: {rendered}");
        assert!(!has_metric("requests_in_flight", 1), "{case}: {rendered}");
        drop(stream);
        let wait_until_closed = async {
            while !has_metric("streams_open", 0) {
                tokio::task::yield_now().await;
            }
        };
        within_timeout(wait_until_closed).await;
    }
}
