use std::sync::Arc;

use admittance_net::tls::ServerTls;
use axum::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::PrometheusBuilder;
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use super::{PREFIX, ROUTE, SUCCESS_REPLY, definition_json};
use crate::{
    harness::{Setup, echo_upstream, request, status_and_text, within_timeout},
    log::TestLog,
    tls::FileAuthority,
};

/// The driver runs on this test's thread, so that its log and metrics contain nothing from other tests.
#[tokio::test]
async fn requests_for_definitions_are_logged_and_counted() {
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .on_this_thread()
        .start()
        .await;
    let body = definition_json("w", "https://h.example").to_string();

    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let (log, _listening) = TestLog::of_this_thread();
    assert_eq!(
        driver.send_definition("POST", ROUTE, body.clone()).await.1,
        SUCCESS_REPLY
    );
    driver.send_definition("POST", ROUTE, body).await;
    driver.send_definition("POST", ROUTE, "{").await;
    driver.reply_data("GET", "/admissionwebhooks").await;
    driver.reply_data("GET", &format!("{ROUTE}/w")).await;
    driver.send_definition("DELETE", &format!("{ROUTE}/absent"), "").await;

    let rendered = metrics.render();
    for (action, code) in [
        ("create", "0"),
        ("create", "1405201"),
        ("create", "1405010"),
        ("list", "0"),
        ("get", "0"),
        ("delete", "1405202"),
    ] {
        let line = format!("admittance_definition_requests_total{{action=\"{action}\",code=\"{code}\"}} 1\n");
        assert!(rendered.contains(&line), "{line}{rendered}");
    }

    let (_, status) = driver.call_admin("GET", "/v1/status", "").await;
    assert_eq!(status["by"], "client 127.0.0.1");
    let lines = |target: &str| {
        let text = log.text();
        let lines = text
            .lines()
            .filter_map(|line| Some(line.split_once(target)?.1.to_owned()));
        lines.collect::<Vec<_>>()
    };
    let audit = lines("admittance::audit: ");
    let begins = [
        "client 127.0.0.1: create admissionwebhook defaultGroup/w by=",
        "client 127.0.0.1: create admissionwebhook defaultGroup/w was refused: admission already exist: ",
        "client 127.0.0.1: delete admissionwebhook defaultGroup/absent was refused: admission not exist: ",
    ];
    assert_eq!(audit.len(), begins.len(), "{audit:?}");
    for (line, expected) in audit.iter().zip(begins) {
        assert!(line.starts_with(expected), "{line}");
    }
    let access = lines("admittance::access: ");
    assert!(
        access.iter().all(|line| line.contains("passage=\"definitions\"")),
        "{access:?}"
    );
    assert_eq!(access.len(), 6);
}

#[tokio::test]
async fn the_status_names_the_certificate_of_the_client_that_made_a_change() {
    let authority = FileAuthority::new();
    let tls = ServerTls::of_files(authority.sign("localhost"), Some(authority.file_path("ca.pem"))).unwrap();
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .tls(tls)
        .start()
        .await;
    let identity = authority.sign("deployer.example");
    let connector = TlsConnector::from(Arc::new(authority.client_config(Some(&identity), b"http/1.1")));
    let name = ServerName::try_from("localhost").unwrap();
    let stream = within_timeout(connector.connect(name, driver.connect().await))
        .await
        .unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = definition_json("w", "https://h.example").to_string();
    let mut request = request("POST", &format!("{PREFIX}{ROUTE}"), Body::from(body));
    request.headers_mut().insert("host", "localhost".parse().unwrap());
    let (_, answer) = status_and_text(within_timeout(sender.send_request(request)).await.unwrap()).await;
    assert_eq!(answer, SUCCESS_REPLY);
    let (_, status) = driver.call_admin("GET", "/v1/status", "").await;
    assert_eq!(status["by"], "certificate rcgen self signed cert");
}
