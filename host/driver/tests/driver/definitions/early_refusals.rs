use axum::body::Body;
use tempfile::TempDir;

use super::{PREFIX, ROUTE, definition_json, parse_refusal, refusals::start_driver};
use crate::harness::request;

#[tokio::test]
async fn invalid_requests_are_refused_without_reading_them() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(&directory).await;
    let body = || definition_json("new", "https://h.example").to_string();
    for (method, headers, body, expected, code, message) in [
        (
            "POST",
            vec![("bcs-clusterid", "BCS-MESOS-2")],
            body(),
            400,
            1_405_234,
            "http header BCS-ClusterID BCS-MESOS-2 don't exist",
        ),
        (
            "GET",
            vec![],
            String::new(),
            400,
            1_405_234,
            "http header BCS-ClusterID  don't exist",
        ),
        (
            "DELETE",
            vec![("bcs-clusterid", "bcs-mesos-10001")],
            String::new(),
            400,
            1_405_234,
            "http header BCS-ClusterID bcs-mesos-10001 don't exist",
        ),
        (
            "POST",
            vec![("bcs-clusterid", "BCS-MESOS-10001"), ("content-encoding", "gzip")],
            body(),
            415,
            1_405_012,
            "the request's body has the Content-Encoding `gzip`; send it uncompressed",
        ),
        (
            "PUT",
            vec![("bcs-clusterid", "BCS-MESOS-10001")],
            " ".repeat(64 * 1024 + 1),
            413,
            1_405_012,
            "the request's body is larger than the 65536 bytes that are allowed here",
        ),
    ] {
        let path = match method {
            "GET" | "DELETE" => format!("{PREFIX}{ROUTE}/there"),
            _ => format!("{PREFIX}{ROUTE}"),
        };
        let mut request = request(method, &path, Body::from(body));
        request.headers_mut().remove("bcs-clusterid");
        for (name, value) in headers {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let (status, answer) = driver.send_definition_request(request).await;
        assert_eq!(
            (status, parse_refusal(&answer)),
            (expected, (code, message.to_owned())),
            "{method}"
        );
    }
    assert_eq!(driver.live_chains().await, ["defaultGroup/there"]);
}
