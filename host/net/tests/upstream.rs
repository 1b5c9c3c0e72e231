//! Tests of the choice of a server for each request, and of servers that go down.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy takes only the functions marked #[test] for tests, not what helps them"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admittance_net::tls::{self, Trust};
use admittance_net::upstream::{Choice, FollowedServer, FollowedServers, Servers, Upstream, UpstreamConfig};
use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{Notify, Semaphore, mpsc, watch},
};

/// A timeout for operations that always succeed. It is long enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("it hangs")
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

async fn serve(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

async fn serve_until_released() -> (SocketAddr, Arc<Notify>, mpsc::UnboundedReceiver<()>) {
    let release = Arc::new(Notify::new());
    let (arrival_sender, arrivals) = mpsc::unbounded_channel();
    let routes = {
        let release = release.clone();
        Router::new().fallback(async move |_: Request<Body>| {
            arrival_sender.send(()).unwrap();
            release.notified().await;
            "done"
        })
    };
    (serve(routes).await, release, arrivals)
}

async fn refusing_address() -> SocketAddr {
    TcpListener::bind(loopback()).await.unwrap().local_addr().unwrap()
}

type ServersSender = watch::Sender<Arc<FollowedServers>>;

const LONG_TIMEOUT: Duration = Duration::from_secs(600);

fn followed_servers(servers: &[(&str, SocketAddr)]) -> Arc<FollowedServers> {
    let server = |(name, address): &(&str, SocketAddr)| FollowedServer {
        name: (*name).to_owned(),
        server: format!("http://{address}").parse().unwrap(),
    };
    Arc::new(FollowedServers {
        servers: servers.iter().map(server).collect(),
        is_known: true,
        stale_reason: None,
    })
}

fn upstream(servers: Servers, choice: Choice, connect_timeout: Duration) -> Upstream {
    let config = UpstreamConfig {
        tls: tls::client_config(Trust::SystemAnd(None), None).unwrap().into(),
        connect_timeout,
        response_timeout: LONG_TIMEOUT,
        health: None,
    };
    Upstream::new(servers, choice, config)
}

fn followed_upstream(servers: &[(&str, SocketAddr)], choice: Choice) -> (Upstream, ServersSender) {
    let (sender, receiver) = watch::channel(followed_servers(servers));
    (upstream(Servers::Followed(receiver), choice, LONG_TIMEOUT), sender)
}

/// Posts a body. Returns the status and body of the reply, or 502 and the message if there is an error.
async fn post(upstream: &Upstream, body: impl Into<Body>) -> (u16, String) {
    let request = Request::post("/v1/apps").body(body.into()).unwrap();
    let response = match in_time(upstream.send(request)).await {
        Ok(response) => response,
        Err(error) => return (502, error.to_string()),
    };
    let status = response.status().as_u16();
    let body = in_time(response.into_body().collect()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn serve_named(name: &'static str) -> SocketAddr {
    serve(named_routes(name)).await
}

fn named_routes(name: &'static str) -> Router {
    Router::new().fallback(async move |body: String| format!("{name} {body}"))
}

async fn wait_until_down(upstream: &Upstream) {
    let refused = async {
        while upstream.health().first().is_none_or(|server| server.downtime.is_none()) {
            tokio::task::yield_now().await;
        }
    };
    in_time(refused).await;
}

#[tokio::test]
async fn requests_are_sent_only_to_the_master() {
    let (a, b, c) = (serve_named("a").await, serve_named("b").await, serve_named("c").await);
    let (upstream, sender) = followed_upstream(&[("n1", a), ("n2", b)], Choice::Master);
    let stale_servers = |servers: &[(&str, SocketAddr)]| {
        let mut servers = (*followed_servers(servers)).clone();
        servers.stale_reason = Some("the session is away".to_owned());
        Arc::new(servers)
    };
    // (registered servers, expected status and body of the reply)
    for (now, expected) in [
        (followed_servers(&[("n1", a), ("n2", b)]), (200, "a x")),
        (followed_servers(&[("n2", b)]), (200, "b x")),
        (followed_servers(&[("n2", b), ("n3", a), ("n4", c)]), (200, "b x")),
        (followed_servers(&[("n4", c)]), (200, "c x")),
        (followed_servers(&[]), (502, "the upstream has no master")),
        (followed_servers(&[("n5", a)]), (200, "a x")),
        // The discovery of servers has failed, so the list of servers may be out of date. Requests still go to the
        // servers in it.
        (stale_servers(&[("n5", a)]), (200, "a x")),
    ] {
        sender.send_replace(now.clone());
        for _ in 0..3 {
            let (status, body) = post(&upstream, "x").await;
            assert_eq!((status, body.as_str()), expected, "{now:?}");
        }
    }
    drop(sender);
    assert_eq!(post(&upstream, "x").await.1, "a x");
}

#[tokio::test]
async fn a_new_master_gets_new_requests_while_the_old_one_finishes_its_requests() {
    let (old, release, mut arrivals) = serve_until_released().await;
    let new = serve_named("new").await;
    let (upstream, sender) = followed_upstream(&[("n1", old), ("n2", new)], Choice::Master);
    let in_flight = tokio::spawn({
        let upstream = upstream.clone();
        async move { post(&upstream, "first").await }
    });
    in_time(arrivals.recv()).await.unwrap();
    sender.send_replace(followed_servers(&[("n2", new)]));
    assert_eq!(post(&upstream, "second").await, (200, "new second".to_owned()));
    release.notify_one();
    assert_eq!(in_time(in_flight).await.unwrap(), (200, "done".to_owned()));
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_retried() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let old = listener.local_addr().unwrap();
    let (upstream, sender) = {
        let (sender, receiver) = watch::channel(followed_servers(&[("n1", old)]));
        let upstream = upstream(Servers::Followed(receiver), Choice::Master, LONG_TIMEOUT);
        (upstream, sender)
    };
    let request_count = Arc::new(AtomicUsize::new(0));
    let new = serve(Router::new().fallback({
        let request_count = request_count.clone();
        async move || {
            request_count.fetch_add(1, Ordering::Relaxed);
            "new"
        }
    }))
    .await;
    let requests: Vec<_> = (0..5)
        .map(|_| {
            let upstream = upstream.clone();
            tokio::spawn(async move { post(&upstream, "body").await })
        })
        .collect();
    let mut connections = Vec::new();
    for _ in 0..requests.len() {
        let (mut connection, _) = in_time(listener.accept()).await.unwrap();
        let mut start = [0; 4];
        in_time(connection.read_exact(&mut start)).await.unwrap();
        assert_eq!(&start, b"POST");
        connections.push(connection);
    }
    sender.send_replace(followed_servers(&[("n2", new)]));
    drop((listener, connections));
    for request in requests {
        let (status, body) = in_time(request).await.unwrap();
        assert_eq!(
            (status, body.as_str()),
            (502, "the connection to the upstream broke before it replied")
        );
    }
    assert_eq!(request_count.load(Ordering::Relaxed), 0);
    assert_eq!(post(&upstream, "").await, (200, "new".to_owned()));
}

#[tokio::test]
async fn a_request_that_was_not_sent_is_sent_to_the_next_master() {
    let dead = refusing_address().await;
    let new = serve_named("new").await;
    let (upstream, sender) = followed_upstream(&[("n1", dead), ("n2", new)], Choice::Master);
    let request_task = tokio::spawn({
        let upstream = upstream.clone();
        async move { post(&upstream, "body").await }
    });
    wait_until_down(&upstream).await;
    sender.send_replace(followed_servers(&[("n1", dead), ("n3", new)]));
    sender.send_replace(followed_servers(&[]));
    sender.send_replace(followed_servers(&[("n3", new)]));
    assert_eq!(in_time(request_task).await.unwrap(), (200, "new body".to_owned()));
}

#[tokio::test]
async fn a_master_that_registers_again_counts_as_a_new_server() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (upstream, sender) = followed_upstream(&[("n1", address)], Choice::Master);
    let request_task = tokio::spawn({
        let upstream = upstream.clone();
        async move { post(&upstream, "body").await }
    });
    wait_until_down(&upstream).await;
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move { axum::serve(listener, named_routes("again")).await });
    sender.send_replace(followed_servers(&[("n2", address)]));
    assert_eq!(in_time(request_task).await.unwrap(), (200, "again body".to_owned()));
}

#[tokio::test]
async fn a_request_waits_for_a_master_only_until_the_connect_timeout() {
    let (sender, receiver) = watch::channel(followed_servers(&[("n1", refusing_address().await)]));
    let upstream = upstream(Servers::Followed(receiver), Choice::Master, Duration::from_millis(50));
    let expected = (502, "no server of the upstream accepted a connection".to_owned());
    assert_eq!(post(&upstream, "x").await, expected);
    sender.send_replace(Arc::default());
    assert_eq!(post(&upstream, "x").await.1, "the upstream has no master");
    // This is the last update of the list of servers, because the sender is dropped afterwards. So the request cannot
    // wait for a new master, and fails at once.
    sender.send_replace(followed_servers(&[("n1", refusing_address().await)]));
    drop(sender);
    assert_eq!(post(&upstream, "x").await, expected);
}

#[tokio::test]
async fn requests_wait_until_the_servers_are_known() {
    for choice in [Choice::Master, Choice::LeastLoaded, Choice::Turns] {
        let a = serve_named("a").await;
        let (sender, receiver) = watch::channel(Arc::<FollowedServers>::default());
        let upstream = upstream(Servers::Followed(receiver), choice, LONG_TIMEOUT);
        let request_task = tokio::spawn(async move { post(&upstream, "x").await });
        sender.send_replace(Arc::new(FollowedServers {
            stale_reason: Some("not yet".to_owned()),
            ..FollowedServers::default()
        }));
        sender.send_replace(followed_servers(&[("n1", a)]));
        assert_eq!(
            in_time(request_task).await.unwrap(),
            (200, "a x".to_owned()),
            "{choice:?}"
        );
    }
}

/// Starts a server that sends its name to `arrival_sender` when a request arrives, and replies after it gets a permit.
async fn serve_name_on_release(
    name: &'static str,
    arrival_sender: mpsc::UnboundedSender<&'static str>,
) -> (SocketAddr, Arc<Semaphore>) {
    let release = Arc::new(Semaphore::new(0));
    let routes = {
        let release = release.clone();
        Router::new().fallback(async move || {
            arrival_sender.send(name).unwrap();
            release.acquire().await.unwrap().forget();
            name
        })
    };
    (serve(routes).await, release)
}

#[tokio::test]
async fn the_least_loaded_server_gets_the_next_request() {
    let (arrival_sender, mut arrivals) = mpsc::unbounded_channel();
    let (a, release_a) = serve_name_on_release("a", arrival_sender.clone()).await;
    let (b, release_b) = serve_name_on_release("b", arrival_sender.clone()).await;
    let (c, _) = serve_name_on_release("c", arrival_sender).await;
    let dead = refusing_address().await;
    let (upstream, sender) = followed_upstream(&[("n0", dead), ("n1", a), ("n2", b)], Choice::LeastLoaded);
    let start_request = || {
        let upstream = upstream.clone();
        tokio::spawn(async move { post(&upstream, "x").await })
    };
    let mut request_tasks = Vec::new();
    let mut counts = [0, 0];
    for _ in 0..6 {
        request_tasks.push(start_request());
        match in_time(arrivals.recv()).await.unwrap() {
            "a" => counts[0] += 1,
            _ => counts[1] += 1,
        }
    }
    // Server `n0` refuses connections. So it gets no requests, although it has the fewest in flight.
    assert_eq!(counts, [3, 3]);
    release_a.add_permits(2);
    let mut reply_count = 0;
    while reply_count < 2 {
        let (reply, _, unfinished_tasks) = futures_util::future::select_all(request_tasks).await;
        assert_eq!(reply.unwrap(), (200, "a".to_owned()));
        request_tasks = unfinished_tasks;
        reply_count += 1;
    }
    for _ in 0..2 {
        request_tasks.push(start_request());
        assert_eq!(in_time(arrivals.recv()).await.unwrap(), "a");
    }
    sender.send_replace(followed_servers(&[("n2", b), ("n3", c)]));
    for _ in 0..3 {
        request_tasks.push(start_request());
        assert_eq!(in_time(arrivals.recv()).await.unwrap(), "c");
    }
    release_b.add_permits(1);
    let (first, ..) = in_time(futures_util::future::select_all(request_tasks)).await;
    assert_eq!(first.unwrap(), (200, "b".to_owned()));
}

#[tokio::test]
async fn a_request_is_retried_when_a_server_refuses_the_connection() {
    let (a, dead) = (serve_named("a").await, refusing_address().await);
    for choice in [Choice::LeastLoaded, Choice::Turns] {
        let (upstream, _sender) = followed_upstream(&[("n1", dead), ("n2", a)], choice);
        for _ in 0..4 {
            assert_eq!(post(&upstream, "x").await, (200, "a x".to_owned()), "{choice:?}");
        }
        assert!(
            upstream.health()[0].downtime.is_some() && upstream.health()[1].downtime.is_none(),
            "{choice:?}"
        );
    }
}

#[tokio::test]
async fn configured_servers_are_tried_in_order() {
    let (a, b, dead) = (serve_named("a").await, serve_named("b").await, refusing_address().await);
    let upstream_of = |addresses: &[SocketAddr]| {
        let servers = addresses
            .iter()
            .map(|address| format!("http://{address}").parse().unwrap());
        upstream(Servers::Listed(servers.collect()), Choice::Master, LONG_TIMEOUT)
    };
    for (addresses, expected) in [
        (vec![a, b], (200, "a x")),
        (vec![dead, b, a], (200, "b x")),
        (vec![dead], (502, "no server of the upstream accepted a connection")),
    ] {
        let upstream = upstream_of(&addresses);
        for _ in 0..3 {
            let (status, body) = post(&upstream, "x").await;
            assert_eq!((status, body.as_str()), expected, "{addresses:?}");
        }
    }
}

#[tokio::test]
async fn a_request_with_endless_informational_responses_fails() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let flood = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {}
    });
    let (upstream, _sender) = followed_upstream(&[("n1", address)], Choice::Turns);
    let (status, reason) = post(&upstream, "x").await;
    assert_eq!(
        (status, reason.contains("informational responses")),
        (502, true),
        "{reason}"
    );
    in_time(flood).await.unwrap();
}
