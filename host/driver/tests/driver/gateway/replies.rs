use std::time::Duration;

use admittance_gateway::{Statuses, TokenTable, TokensConfig};
use axum::body::Body;
use http::Request;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;

use super::{GATEWAY_PREFIX, SimulatedDriver, gateway_setup, status_and_json};
use crate::{harness::*, log::TestLog};

#[tokio::test]
async fn each_failure_has_the_reply_of_bcs_api() {
    let driver = SimulatedDriver::start().await;
    let (silent, _release, _arrivals) = held_upstream().await;
    let clusters: [(&str, &[_]); 3] = [
        (CLUSTER, &[driver.address]),
        ("BCS-DOWN", &[refusing_upstream().await, refusing_upstream().await]),
        ("BCS-SILENT", &[silent]),
    ];
    let path = format!("{GATEWAY_PREFIX}/a");
    let none = "http header BCS-ClusterID can't be empty";
    for statuses in Statuses::ALL {
        let gateway = gateway_setup(&clusters, |config| {
            config.statuses = statuses;
            config.drivers.response_timeout = Duration::from_millis(50);
        })
        .start()
        .await;
        // (method, path, values of `BCS-ClusterID`, status with `Statuses::Ok`, status with the other setting, code,
        // message)
        for (method, path, ids, ok, own, code, message) in [
            ("GET", &*path, &[][..], 200, 400, 1_405_007, none),
            ("GET", &*path, &[""][..], 200, 400, 1_405_007, none),
            (
                "GET",
                &*path,
                &[CLUSTER, "BCS-DOWN"][..],
                200,
                400,
                1_405_007,
                "with different values",
            ),
            (
                "GET",
                &*path,
                &["BCS-NONE"][..],
                200,
                404,
                1_405_051,
                "(bcs-api):mesos cluster BCS-NONE not found",
            ),
            // bcs-api replies to the next requests with exactly these messages.
            (
                "GET",
                &*path,
                &["bcs-mesos-10001"][..],
                200,
                404,
                1_405_051,
                "cluster bcs-mesos-10001 not found",
            ),
            (
                "POST",
                &*path,
                &["BCS-DOWN"][..],
                200,
                502,
                1_405_053,
                "(bcs-api):request mesos apiserver failed: no server",
            ),
            (
                "POST",
                &*path,
                &["BCS-SILENT"][..],
                200,
                504,
                1_405_053,
                "request mesos apiserver failed: the upstream did not reply within 50ms",
            ),
            (
                "PATCH",
                &*path,
                &[CLUSTER][..],
                405,
                405,
                1_405_061,
                "GET, POST, PUT and DELETE",
            ),
            ("HEAD", &*path, &[CLUSTER][..], 405, 405, 0, ""),
            (
                "GET",
                "/bcsapi/v4/scheduler/k8s/a",
                &[CLUSTER][..],
                404,
                404,
                1_405_061,
                "not found: paths begin with",
            ),
            (
                "GET",
                "/mesosdriver/v4/a",
                &[CLUSTER][..],
                404,
                404,
                1_405_061,
                "not found: paths begin with",
            ),
            (
                "GET",
                "/bcsapi/v1/a/%2e%2e/b",
                &[CLUSTER][..],
                400,
                400,
                1_405_061,
                "a segment `.` or `..`",
            ),
            // The header `BCS-ClusterID` may be repeated if all its values are equal.
            ("GET", &*path, &[CLUSTER, CLUSTER][..], 200, 200, 0, "success"),
        ] {
            let request = ids
                .iter()
                .fold(Request::builder().method(method).uri(path), |request, id| {
                    request.header("bcs-clusterid", *id)
                });
            let response = gateway.send(request.body(Body::empty()).unwrap()).await;
            let case = format!("{statuses:?} {method} {path} {ids:?}");
            let expected = if statuses == Statuses::Ok { ok } else { own };
            assert!(response.headers().contains_key("x-request-id"), "{case}");
            if method == "HEAD" {
                assert_eq!(response.status(), expected, "{case}");
                continue;
            }
            let (status, body) = status_and_json(response).await;
            assert_eq!(status, expected, "{case}: {body}");
            assert_eq!(body["code"], code, "{case}: {body}");
            assert!(body["message"].as_str().unwrap().contains(message), "{case}: {body}");
            assert_eq!(body["result"], code == 0, "{case}");
        }
    }
}

#[tokio::test]
async fn the_http_status_of_a_drivers_reply_is_passed_on() {
    for status in [200, 201, 400, 404, 500] {
        let driver = SimulatedDriver::start_with_reply(status, "as it is").await;
        for (statuses, expected) in [(Statuses::Ok, 200), (Statuses::Driver, status)] {
            let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |config| config.statuses = statuses)
                .start()
                .await;
            let response = gateway
                .send(request("GET", &format!("{GATEWAY_PREFIX}/a"), Body::empty()))
                .await;
            assert_eq!(status_and_text(response).await, (expected, "as it is".to_owned()));
        }
    }
}

#[tokio::test]
async fn requests_in_flight_beyond_the_limit_are_refused() {
    let (driver, release, mut arrivals) = held_upstream().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver])], |_| {})
        .limits(|limits| limits.concurrency = 1)
        .start()
        .await;
    let address = gateway.address;
    let path = format!("{GATEWAY_PREFIX}/a");
    let first = request("GET", &path, Body::empty());
    let first = tokio::spawn(async move { status_and_text(send(address, first).await).await });
    within_timeout(arrivals.recv()).await.unwrap();
    let (status, body) = status_and_json(gateway.send(request("GET", &path, Body::empty())).await).await;
    assert_eq!((status, &body["code"]), (503, &json!(1_405_050)));
    release.notify_one();
    assert_eq!(within_timeout(first).await.unwrap(), (200, "done".to_owned()));
}

#[tokio::test]
async fn requests_are_counted_by_cluster_and_status() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let driver = SimulatedDriver::start_with_reply(404, "none").await;
    let gateway = gateway_setup(
        &[(CLUSTER, &[driver.address]), ("BCS-DOWN", &[refusing_upstream().await])],
        |_| {},
    )
    .on_this_thread()
    .start()
    .await;
    let path = format!("{GATEWAY_PREFIX}/a");
    gateway.send(request("GET", &path, Body::empty())).await;
    for unknown in ["BCS-X", "BCS-Y", "BCS-Z"] {
        let mut asking = request("GET", &path, Body::empty());
        asking.headers_mut().insert("bcs-clusterid", unknown.parse().unwrap());
        gateway.send(asking).await;
    }
    let mut asking = request("GET", &path, Body::empty());
    asking
        .headers_mut()
        .insert("bcs-clusterid", "BCS-DOWN".parse().unwrap());
    gateway.send(asking).await;
    let rendered = metrics.render();
    let assert_counted = |labels: &str, value: u32| {
        let line = format!("admittance_gateway_requests_total{{{labels}}} {value}\n");
        assert!(rendered.contains(&line), "{line}{rendered}");
    };
    assert_counted(
        &format!("cluster=\"{CLUSTER}\",status=\"4xx\",passage=\"untouched\""),
        1,
    );
    assert_counted("cluster=\"unknown\",status=\"4xx\",passage=\"unknown-cluster\"", 3);
    assert_counted(
        "cluster=\"BCS-DOWN\",status=\"5xx\",passage=\"upstream-unreachable\"",
        1,
    );
    assert!(!rendered.contains("BCS-X"), "{rendered}");
    assert!(rendered.contains("admittance_gateway_clusters 2\n"), "{rendered}");
}

#[tokio::test]
async fn the_access_log_names_the_cluster_and_the_user() {
    let (log, _listening) = TestLog::of_this_thread();
    let driver = SimulatedDriver::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.yaml");
    // The digest is the output of `printf %s secret | sha256sum`.
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let text = format!("tokens: [{{ name: ci, sha256: {digest}, clusters: {{ '*': Read }} }}]");
    std::fs::write(&path, text).unwrap();
    let table = TokenTable::read(&path).unwrap();
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |config| {
        config.tokens = Some(TokensConfig::File(table));
    })
    .on_this_thread()
    .start()
    .await;
    let ask = async |method: &str| {
        let mut asking = request(
            method,
            &format!("{GATEWAY_PREFIX}/namespaces/defaultGroup/applications/a"),
            Body::empty(),
        );
        asking
            .headers_mut()
            .insert("authorization", "Bearer secret".parse().unwrap());
        gateway.send(asking).await;
    };
    ask("GET").await;
    // `tracing` caches whether any subscriber wants a line of the log. Another test's thread may have filled this
    // cache, so it is rebuilt.
    tracing::callsite::rebuild_interest_cache();
    ask("GET").await;
    ask("POST").await;
    let text = log.text();
    let assert_logged = |parts: &[&str]| {
        let mut lines = text.lines().filter(|line| line.contains("admittance::access"));
        assert!(
            lines.any(|line| parts.iter().all(|part| line.contains(part))),
            "{parts:?}: {text}"
        );
    };
    assert_logged(&[
        "method=GET",
        "status=200",
        "passage=\"untouched\"",
        &format!("cluster=\"{CLUSTER}\""),
        "by=\"ci\"",
    ]);
    assert_logged(&["method=POST", "status=400", "passage=\"forbidden\""]);
    assert!(!text.contains("secret"), "{text}");
}
