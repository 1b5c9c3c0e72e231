use std::sync::Arc;

use admittance_net::tls::{ClientTls, ServerTls};
use axum::body::Body;
use http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{OUTER, SimulatedDriver, envelope, gateway};
use crate::{harness::*, tls::FileAuthority};

#[tokio::test]
async fn requests_reach_the_drivers_of_their_cluster() {
    let (one, two) = (SimulatedDriver::start().await, SimulatedDriver::start().await);
    let gateway = gateway(&[("BCS-1", &[one.address]), ("BCS-2", &[two.address])], |_| {})
        .start()
        .await;
    let paths = [
        // (method, path at the gateway, expected path at the driver)
        (
            "GET",
            format!("{OUTER}/namespaces/n/applications?x=%20;y"),
            "/mesosdriver/v4/namespaces/n/applications?x=%20;y",
        ),
        (
            "POST",
            format!("{OUTER}/namespaces/n/applications"),
            "/mesosdriver/v4/namespaces/n/applications",
        ),
        ("PUT", format!("{OUTER}/a%2Fb"), "/mesosdriver/v4/a%2Fb"),
        ("DELETE", format!("{OUTER}/a/"), "/mesosdriver/v4/a/"),
    ];
    for (cluster, driver, other) in [("BCS-1", &one, &two), ("BCS-2", &two, &one)] {
        for (method, outer, inner) in &paths {
            let request = Request::builder()
                .method(*method)
                .uri(outer)
                .header("bcs-clusterid", cluster)
                .body(Body::from("{}"))
                .unwrap();
            let (status, body) = envelope(gateway.send(request).await).await;
            assert_eq!((status, &body["code"]), (200, &json!(0)), "{method} {outer}");
            let driver_requests = driver.take_requests();
            let [driver_request] = driver_requests.as_slice() else {
                panic!("{method} {outer}: {driver_requests:?}");
            };
            assert_eq!(
                (driver_request.method.as_str(), driver_request.uri.to_string().as_str()),
                (*method, *inner)
            );
            assert_eq!(driver_request.body, "{}");
            assert_eq!(driver_request.headers["bcs-clusterid"], cluster);
        }
        assert!(other.take_requests().is_empty());
    }
}

#[tokio::test]
async fn a_driver_gets_the_headers_of_the_client_except_tokens() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway(&[(CLUSTER, &[driver.address])], |_| {}).start().await;
    let request = Request::post(format!("{OUTER}/a"))
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
    let [received] = driver.take_requests().try_into().unwrap();
    let mut lines: Vec<String> = received
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
    let gateway = gateway(
        &[(CLUSTER, &[refusing().await, driver.address, refusing().await])],
        |_| {},
    )
    .start()
    .await;
    for number in 0..6 {
        let body = format!("{{\"number\":{number}}}");
        let (status, reply) = envelope(gateway.send(request("POST", &format!("{OUTER}/a"), body.clone())).await).await;
        assert_eq!((status, &reply["code"]), (200, &json!(0)));
        let [received] = driver.take_requests().try_into().unwrap();
        assert_eq!(received.body, body);
    }
}

#[tokio::test]
async fn a_request_that_was_sent_to_a_driver_is_not_sent_again() {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let dying = listener.local_addr().unwrap();
    let dies = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        until(&mut stream, "\r\n\r\n{}").await
    });
    let other = SimulatedDriver::start().await;
    let gateway = gateway(&[(CLUSTER, &[dying, other.address])], |_| {}).start().await;
    let path = format!("{OUTER}/a");
    let (status, reply) = envelope(gateway.send(request("POST", &path, "{}")).await).await;
    assert_eq!((status, &reply["code"]), (200, &json!(1_405_053)), "{reply}");
    assert!(soon(dies).await.unwrap().starts_with("POST /mesosdriver/v4/a "));
    assert!(other.take_requests().is_empty());
    for _ in 0..4 {
        let (_, reply) = envelope(gateway.send(request("POST", &path, "{}")).await).await;
        assert_eq!(reply["code"], 0, "{reply}");
    }
    assert_eq!(other.take_requests().len(), 4);
}

#[tokio::test]
async fn the_gateway_connects_to_drivers_with_mutual_tls() {
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let tls = ServerTls::of_files(identity.clone(), Some(authority.file("ca.pem"))).unwrap();
    let driver = Setup::new(&[echo().await]).tls(tls).start().await;
    let server = format!("https://localhost:{}", driver.address.port());
    for (shown, code) in [(Some(identity), None), (None, Some(1_405_053))] {
        let gateway = gateway(&[], |config| {
            config
                .clusters
                .insert(CLUSTER.parse().unwrap(), vec![server.parse().unwrap()]);
            config.drivers.tls = ClientTls::of_files(Some(authority.file("ca.pem")), shown).unwrap();
        })
        .start()
        .await;
        let path = format!("{OUTER}/namespaces/n/applications");
        let (status, body) = text(gateway.send(request("POST", &path, application("good"))).await).await;
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
    let (busy, release, mut arrivals) = held_upstream().await;
    let idle = SimulatedDriver::start().await;
    let gateway = Arc::new(gateway(&[(CLUSTER, &[busy, idle.address])], |_| {}).start().await);
    let ask = |gateway: Arc<RunningDriver>| async move {
        text(gateway.send(request("GET", &format!("{OUTER}/a"), Body::empty())).await).await
    };
    // The test sends requests until one arrives at the busy driver, which does not answer it yet.
    let pending_reply = loop {
        let mut reply_task = tokio::spawn(ask(gateway.clone()));
        tokio::select! {
            arrived = soon(arrivals.recv()) => break arrived.map(|()| reply_task).unwrap(),
            answer = &mut reply_task => assert!(answer.unwrap().1.contains("success")),
        }
    };
    for _ in 0..5 {
        let (status, body) = soon(ask(gateway.clone())).await;
        assert_eq!(status, 200);
        assert!(body.contains("success"), "{body}");
    }
    assert!(arrivals.try_recv().is_err());
    release.notify_one();
    assert_eq!(soon(pending_reply).await.unwrap().1, "done");
}

#[tokio::test]
async fn a_gateway_serves_a_real_driver() {
    let scheduler = echo().await;
    let driver = Setup::new(&[scheduler]).start().await;
    let gateway = gateway(
        &[(CLUSTER, &[driver.address]), ("BCS-OTHER", &[driver.address])],
        |_| {},
    )
    .start()
    .await;
    let path = format!("{OUTER}/namespaces/n/applications");
    let (status, body) = text(gateway.send(request("POST", &path, application("plain"))).await).await;
    assert_eq!(status, 200);
    assert!(body.contains("\"seen\":true"), "{body}");
    let (status, body) = envelope(gateway.send(request("POST", &path, application("bad"))).await).await;
    assert_eq!((status, &body["code"]), (200, &json!(1_405_234)));
    let mut wrong = request("POST", &path, application("good"));
    wrong
        .headers_mut()
        .insert("bcs-clusterid", "BCS-OTHER".parse().unwrap());
    let (status, body) = envelope(gateway.send(wrong).await).await;
    assert_eq!((status, &body["code"]), (200, &json!(1_405_234)));
}

#[tokio::test]
async fn a_connection_to_a_console_passes_through_the_gateway() {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let driver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("GET /mesosdriver/v4/cluster/resources "), "{head}");
        let reply = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{HOSTS}",
            HOSTS.len()
        );
        write(&mut stream, &reply).await;
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = until(&mut stream, "\r\n\r\n").await;
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
    let gateway = gateway(&[(CLUSTER, &[address])], |_| {}).start().await;
    let mut stream = gateway.connect().await;
    let head = format!(
        "GET /bcsapi/v1/webconsole/x?host_ip=10.0.0.7&cluster_id={CLUSTER} HTTP/1.1\r\nhost: x\r\n\
         sec-websocket-protocol: mine, base64url.bearer.authorization.k8s.io.YWJj\r\n\
         connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    write(&mut stream, &head).await;
    let reply = until(&mut stream, "\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 101 "), "{reply}");
    // A browser requires that the reply names one of the protocols that the browser offered.
    assert!(reply.contains("sec-websocket-protocol: mine\r\n"), "{reply}");
    write(&mut stream, "ping").await;
    assert_eq!(until(&mut stream, "ping").await, "ping");
    let driver_head = soon(driver).await.unwrap();
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

const HOSTS: &str = r#"{"result":true,"code":0,"message":"success","data":{"agents":[{"ip":"10.0.0.7"}]}}"#;

#[tokio::test]
async fn only_consoles_on_hosts_of_the_cluster_are_reached() {
    let driver = SimulatedDriver::answering(200, HOSTS).await;
    let gateway = gateway(&[(CLUSTER, &[driver.address])], |_| {}).start().await;
    let resources = "/mesosdriver/v4/cluster/resources";
    for (query, code, at_driver) in [
        ("host_ip=10.0.0.8", 1_405_058, &[resources][..]),
        ("host_ip=10.0.0.7", 0, &["/mesosdriver/v4/webconsole/x"]),
        ("host_ip=::ffff:10.0.0.7", 0, &["/mesosdriver/v4/webconsole/x"]),
        ("host_ip=10.0.0.8&host_ip=10.0.0.7", 1_405_058, &[resources]),
        ("host_ip=localhost", 1_405_058, &[]),
        ("", 1_405_058, &[]),
    ] {
        for path in ["webconsole", "%77ebconsole"] {
            let path = format!("/bcsapi/v1/{path}/x?cluster_id={CLUSTER}&{query}");
            let (_, body) = envelope(gateway.send(request("GET", &path, Body::empty())).await).await;
            assert_eq!(body["code"], code, "{path}: {body}");
            let reached_paths: Vec<_> = driver
                .take_requests()
                .iter()
                .map(|request| request.uri.path().replace("%77", "w"))
                .collect();
            assert_eq!(reached_paths, at_driver, "{path}");
        }
    }
    // A request for a console may name the cluster in its query. Any other request must name the cluster in the header
    // `BCS-ClusterID`. This one does not, so it gets an error.
    let path = format!("{OUTER}/namespaces/n/applications?cluster_id={CLUSTER}");
    let (_, body) = envelope(gateway.send(Request::get(path).body(Body::empty()).unwrap()).await).await;
    assert_eq!(body["code"], 1_405_007);
}

#[tokio::test]
async fn the_status_of_a_gateway_lists_its_clusters() {
    let driver = SimulatedDriver::start().await;
    let down = refusing().await;
    let gateway = gateway(&[("BCS-1", &[driver.address]), ("BCS-2", &[down])], |_| {})
        .start()
        .await;
    let mut asking = request("GET", &format!("{OUTER}/a"), Body::empty());
    asking.headers_mut().insert("bcs-clusterid", "BCS-2".parse().unwrap());
    gateway.send(asking).await;
    let mut detail = gateway.status().await;
    let server = detail["gateway"]["clusters"][1]["drivers"][0].as_object_mut().unwrap();
    assert!(server.remove("since").unwrap().is_string());
    let problem = server.remove("problem").unwrap();
    assert!(problem.as_str().unwrap().contains("Connection refused"), "{problem}");
    assert_eq!(
        detail["gateway"],
        json!({
            "clusters": [
                {"cluster": "BCS-1", "drivers": [{"server": format!("http://{}", driver.address), "up": true}]},
                {"cluster": "BCS-2", "drivers": [{"server": format!("http://{down}"), "up": false}]},
            ],
            "kubernetes": [],
        })
    );
    assert_eq!(detail["upstream"], json!([]));
}

#[tokio::test]
async fn a_gateway_finishes_requests_in_flight_at_shutdown() {
    let (driver, release, mut arrivals) = held_upstream().await;
    let gateway = gateway(&[(CLUSTER, &[driver])], |_| {}).start().await;
    let address = gateway.address;
    let asking = request("GET", &format!("{OUTER}/a"), Body::empty());
    let reply = tokio::spawn(async move { text(send(address, asking).await).await });
    soon(arrivals.recv()).await.unwrap();
    gateway.shutdown.signal();
    release.notify_one();
    assert_eq!(soon(reply).await.unwrap(), (200, "done".to_owned()));
    assert_eq!(
        gateway.wait_until_stopped().await,
        admittance_driver::ShutdownResult::Cleanly
    );
}
