use std::sync::Arc;

use admittance_net::tls::{ClientTls, ServerTls};
use axum::body::Body;
use http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{GATEWAY_PREFIX, SimulatedDriver, gateway_setup, status_and_json};
use crate::{harness::*, tls::FileAuthority};

#[tokio::test]
async fn requests_reach_the_drivers_of_their_cluster() {
    let (first_driver, second_driver) = (SimulatedDriver::start().await, SimulatedDriver::start().await);
    let gateway = gateway_setup(
        &[("BCS-1", &[first_driver.address]), ("BCS-2", &[second_driver.address])],
        |_| {},
    )
    .start()
    .await;
    let paths = [
        // (method, path at the gateway, expected path at the driver)
        (
            "GET",
            format!("{GATEWAY_PREFIX}/namespaces/n/applications?x=%20;y"),
            "/mesosdriver/v4/namespaces/n/applications?x=%20;y",
        ),
        (
            "POST",
            format!("{GATEWAY_PREFIX}/namespaces/n/applications"),
            "/mesosdriver/v4/namespaces/n/applications",
        ),
        ("PUT", format!("{GATEWAY_PREFIX}/a%2Fb"), "/mesosdriver/v4/a%2Fb"),
        ("DELETE", format!("{GATEWAY_PREFIX}/a/"), "/mesosdriver/v4/a/"),
    ];
    for (cluster, driver, other_driver) in [
        ("BCS-1", &first_driver, &second_driver),
        ("BCS-2", &second_driver, &first_driver),
    ] {
        for (method, gateway_path, driver_path) in &paths {
            let request = Request::builder()
                .method(*method)
                .uri(gateway_path)
                .header("bcs-clusterid", cluster)
                .body(Body::from("{}"))
                .unwrap();
            let (status, body) = status_and_json(gateway.send(request).await).await;
            assert_eq!((status, &body["code"]), (200, &json!(0)), "{method} {gateway_path}");
            let driver_requests = driver.take_requests();
            let [driver_request] = driver_requests.as_slice() else {
                panic!("{method} {gateway_path}: {driver_requests:?}");
            };
            assert_eq!(
                (driver_request.method.as_str(), driver_request.uri.to_string().as_str()),
                (*method, *driver_path)
            );
            assert_eq!(driver_request.body, "{}");
            assert_eq!(driver_request.headers["bcs-clusterid"], cluster);
        }
        assert!(other_driver.take_requests().is_empty());
    }
}

#[tokio::test]
async fn a_driver_gets_the_headers_of_the_client_except_tokens() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |_| {}).start().await;
    let request = Request::post(format!("{GATEWAY_PREFIX}/a"))
        .header("bcs-clusterid", CLUSTER)
        .header("authorization", "Bearer secret")
        .header("x-bcs-user-token", "secret")
        .header("x-request-id", "me-1")
        .header("x-mine", "1")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("connection", "x-once")
        .header("x-once", "1")
        .body(Body::from("{}"))
        .unwrap();
    let response = gateway.send(request).await;
    assert_eq!(response.headers()["x-request-id"], "me-1");
    let [driver_request] = driver.take_requests().try_into().unwrap();
    let mut lines: Vec<String> = driver_request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    assert_eq!(
        lines.join("\n"),
        format!(
            "bcs-clusterid: {CLUSTER}\ncontent-length: 2\nhost: {}\n\
             traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nx-forwarded-for: 127.0.0.1\n\
             x-forwarded-host: {}\nx-forwarded-proto: http\nx-mine: 1\nx-request-id: me-1",
            driver.address, gateway.address
        )
    );
}

#[tokio::test]
async fn a_driver_that_refuses_connections_is_skipped() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(
        &[(
            CLUSTER,
            &[refusing_upstream().await, driver.address, refusing_upstream().await],
        )],
        |_| {},
    )
    .start()
    .await;
    for number in 0..6 {
        let body = format!("{{\"number\":{number}}}");
        let (status, reply) = status_and_json(
            gateway
                .send(request("POST", &format!("{GATEWAY_PREFIX}/a"), body.clone()))
                .await,
        )
        .await;
        assert_eq!((status, &reply["code"]), (200, &json!(0)));
        let [driver_request] = driver.take_requests().try_into().unwrap();
        assert_eq!(driver_request.body, body);
    }
}

#[tokio::test]
async fn a_request_that_was_sent_to_a_driver_is_not_sent_again() {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let dropping_address = listener.local_addr().unwrap();
    let dropped_request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, "\r\n\r\n{}").await
    });
    let live_driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[dropping_address, live_driver.address])], |_| {})
        .start()
        .await;
    let path = format!("{GATEWAY_PREFIX}/a");
    let (status, reply) = status_and_json(gateway.send(request("POST", &path, "{}")).await).await;
    assert_eq!((status, &reply["code"]), (200, &json!(1_405_053)), "{reply}");
    assert!(
        within_timeout(dropped_request)
            .await
            .unwrap()
            .starts_with("POST /mesosdriver/v4/a ")
    );
    assert!(live_driver.take_requests().is_empty());
    for _ in 0..4 {
        let (_, reply) = status_and_json(gateway.send(request("POST", &path, "{}")).await).await;
        assert_eq!(reply["code"], 0, "{reply}");
    }
    assert_eq!(live_driver.take_requests().len(), 4);
}

#[tokio::test]
async fn the_gateway_connects_to_drivers_with_mutual_tls() {
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let tls = ServerTls::of_files(identity.clone(), Some(authority.file_path("ca.pem"))).unwrap();
    let driver = Setup::new(&[echo_upstream().await]).tls(tls).start().await;
    let server = format!("https://localhost:{}", driver.address.port());
    for (client_identity, code) in [(Some(identity), None), (None, Some(1_405_053))] {
        let gateway = gateway_setup(&[], |config| {
            config
                .clusters
                .insert(CLUSTER.parse().unwrap(), vec![server.parse().unwrap()]);
            config.drivers.tls = ClientTls::of_files(Some(authority.file_path("ca.pem")), client_identity).unwrap();
        })
        .start()
        .await;
        let path = format!("{GATEWAY_PREFIX}/namespaces/n/applications");
        let (status, body) = status_and_text(gateway.send(request("POST", &path, application("good"))).await).await;
        assert_eq!(status, 200);
        match code {
            None => assert_eq!(body, application("good")),
            Some(code) => assert!(body.contains(&code.to_string()), "{body}"),
        }
        let status = gateway.status().await;
        assert_eq!(status["certificates"][0]["certificate"], "upstream", "{status}");
    }
}

#[tokio::test]
async fn the_driver_with_the_fewest_requests_gets_the_next() {
    let (busy_address, release, mut arrivals) = held_upstream().await;
    let idle_driver = SimulatedDriver::start().await;
    let gateway = Arc::new(
        gateway_setup(&[(CLUSTER, &[busy_address, idle_driver.address])], |_| {})
            .start()
            .await,
    );
    let ask = |gateway: Arc<RunningDriver>| async move {
        status_and_text(
            gateway
                .send(request("GET", &format!("{GATEWAY_PREFIX}/a"), Body::empty()))
                .await,
        )
        .await
    };
    // The test sends requests until one arrives at the busy driver, which does not answer it yet.
    let pending_reply = loop {
        let mut reply_task = tokio::spawn(ask(gateway.clone()));
        tokio::select! {
            arrived = within_timeout(arrivals.recv()) => break arrived.map(|()| reply_task).unwrap(),
            answer = &mut reply_task => assert!(answer.unwrap().1.contains("success")),
        }
    };
    for _ in 0..5 {
        let (status, body) = within_timeout(ask(gateway.clone())).await;
        assert_eq!(status, 200);
        assert!(body.contains("success"), "{body}");
    }
    assert!(arrivals.try_recv().is_err());
    release.notify_one();
    assert_eq!(within_timeout(pending_reply).await.unwrap().1, "done");
}

#[tokio::test]
async fn a_gateway_serves_a_real_driver() {
    let scheduler = echo_upstream().await;
    let driver = Setup::new(&[scheduler]).start().await;
    let gateway = gateway_setup(
        &[(CLUSTER, &[driver.address]), ("BCS-OTHER", &[driver.address])],
        |_| {},
    )
    .start()
    .await;
    let path = format!("{GATEWAY_PREFIX}/namespaces/n/applications");
    let (status, body) = status_and_text(gateway.send(request("POST", &path, application("plain"))).await).await;
    assert_eq!(status, 200);
    assert!(body.contains("\"seen\":true"), "{body}");
    let (status, body) = status_and_json(gateway.send(request("POST", &path, application("bad"))).await).await;
    assert_eq!((status, &body["code"]), (200, &json!(1_405_234)));
    let mut request_for_other_cluster = request("POST", &path, application("good"));
    request_for_other_cluster
        .headers_mut()
        .insert("bcs-clusterid", "BCS-OTHER".parse().unwrap());
    let (status, body) = status_and_json(gateway.send(request_for_other_cluster).await).await;
    assert_eq!((status, &body["code"]), (200, &json!(1_405_234)));
}

#[tokio::test]
async fn a_connection_to_a_console_passes_through_the_gateway() {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let driver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("GET /mesosdriver/v4/cluster/resources "), "{head}");
        let reply = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{HOSTS_REPLY}",
            HOSTS_REPLY.len()
        );
        write(&mut stream, &reply).await;
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        write(
            &mut stream,
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        )
        .await;
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        head
    });
    let gateway = gateway_setup(&[(CLUSTER, &[address])], |_| {}).start().await;
    let mut stream = gateway.connect().await;
    let head = format!(
        "GET /bcsapi/v1/webconsole/x?host_ip=10.0.0.7&cluster_id={CLUSTER} HTTP/1.1\r\nhost: x\r\n\
         sec-websocket-protocol: mine, base64url.bearer.authorization.k8s.io.YWJj\r\n\
         connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    write(&mut stream, &head).await;
    let reply = read_until(&mut stream, "\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 101 "), "{reply}");
    // A browser requires that the reply names one of the protocols that the browser offered.
    assert!(reply.contains("sec-websocket-protocol: mine\r\n"), "{reply}");
    write(&mut stream, "ping").await;
    assert_eq!(read_until(&mut stream, "ping").await, "ping");
    let driver_head = within_timeout(driver).await.unwrap();
    assert!(
        driver_head.starts_with("GET /mesosdriver/v4/webconsole/x?host_ip=10.0.0.7&"),
        "{driver_head}"
    );
    assert!(
        driver_head.contains(&format!("bcs-clusterid: {CLUSTER}\r\n")),
        "{driver_head}"
    );
    assert!(
        driver_head.contains("mine") && !driver_head.contains("YWJj"),
        "{driver_head}"
    );
}

const HOSTS_REPLY: &str = r#"{"result":true,"code":0,"message":"success","data":{"agents":[{"ip":"10.0.0.7"}]}}"#;

#[tokio::test]
async fn only_consoles_on_hosts_of_the_cluster_are_reached() {
    let driver = SimulatedDriver::start_with_reply(200, HOSTS_REPLY).await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |_| {}).start().await;
    let resources = "/mesosdriver/v4/cluster/resources";
    for (query, code, expected_paths) in [
        ("host_ip=10.0.0.8", 1_405_058, &[resources][..]),
        ("host_ip=10.0.0.7", 0, &["/mesosdriver/v4/webconsole/x"]),
        ("host_ip=::ffff:10.0.0.7", 0, &["/mesosdriver/v4/webconsole/x"]),
        ("host_ip=10.0.0.8&host_ip=10.0.0.7", 1_405_058, &[resources]),
        ("host_ip=localhost", 1_405_058, &[]),
        ("", 1_405_058, &[]),
    ] {
        for path in ["webconsole", "%77ebconsole"] {
            let path = format!("/bcsapi/v1/{path}/x?cluster_id={CLUSTER}&{query}");
            let (_, body) = status_and_json(gateway.send(request("GET", &path, Body::empty())).await).await;
            assert_eq!(body["code"], code, "{path}: {body}");
            let reached_paths: Vec<_> = driver
                .take_requests()
                .iter()
                .map(|request| request.uri.path().replace("%77", "w"))
                .collect();
            assert_eq!(reached_paths, expected_paths, "{path}");
        }
    }
    // A request for a console may name the cluster in its query. Any other request must name the cluster in the header
    // `BCS-ClusterID`. This one does not, so it gets an error.
    let path = format!("{GATEWAY_PREFIX}/namespaces/n/applications?cluster_id={CLUSTER}");
    let (_, body) = status_and_json(gateway.send(Request::get(path).body(Body::empty()).unwrap()).await).await;
    assert_eq!(body["code"], 1_405_007);
}

#[tokio::test]
async fn the_status_of_a_gateway_lists_its_clusters() {
    let driver = SimulatedDriver::start().await;
    let refusing_address = refusing_upstream().await;
    let gateway = gateway_setup(&[("BCS-1", &[driver.address]), ("BCS-2", &[refusing_address])], |_| {})
        .start()
        .await;
    let mut cluster_request = request("GET", &format!("{GATEWAY_PREFIX}/a"), Body::empty());
    cluster_request
        .headers_mut()
        .insert("bcs-clusterid", "BCS-2".parse().unwrap());
    gateway.send(cluster_request).await;
    let mut status = gateway.status().await;
    let server = status["gateway"]["clusters"][1]["drivers"][0].as_object_mut().unwrap();
    assert!(server.remove("since").unwrap().is_string());
    let problem = server.remove("problem").unwrap();
    assert!(problem.as_str().unwrap().contains("Connection refused"), "{problem}");
    assert_eq!(
        status["gateway"],
        json!({
            "clusters": [
                {"cluster": "BCS-1", "drivers": [{"server": format!("http://{}", driver.address), "up": true}]},
                {"cluster": "BCS-2", "drivers": [{"server": format!("http://{refusing_address}"), "up": false}]},
            ],
            "kubernetes": [],
        })
    );
    assert_eq!(status["upstream"], json!([]));
}

#[tokio::test]
async fn a_gateway_finishes_requests_in_flight_at_shutdown() {
    let (driver, release, mut arrivals) = held_upstream().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver])], |_| {}).start().await;
    let address = gateway.address;
    let held_request = request("GET", &format!("{GATEWAY_PREFIX}/a"), Body::empty());
    let reply = tokio::spawn(async move { status_and_text(send(address, held_request).await).await });
    within_timeout(arrivals.recv()).await.unwrap();
    gateway.shutdown.signal();
    release.notify_one();
    assert_eq!(within_timeout(reply).await.unwrap(), (200, "done".to_owned()));
    assert_eq!(
        gateway.wait_until_stopped().await,
        admittance_driver::ShutdownResult::Cleanly
    );
}
