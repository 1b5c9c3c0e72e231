//! Measures the webhook server with AdmissionReviews over TLS on one connection, as kube-apiserver sends them.

use std::path::Path;

use admittance::Host;
use admittance_driver::{Config, Connections, Driver, Shutdown};
use admittance_tests::{Client, ClientTrust, review_of_pod};
use http::Request;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};

use crate::{chain_file, measure::MeasuredTable};

pub(crate) async fn measure(directory: &Path, calls: usize, object: &str) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("server.pem"), cert.pem()).unwrap();
    std::fs::write(directory.join("server.key"), signing_key.serialize_pem()).unwrap();
    let review = review(object);
    let title = format!(
        "the webhook server: an AdmissionReview of {} bytes over TLS, {calls} each, one connection",
        review.len()
    );
    let mut table = MeasuredTable::new(&title);
    let mut hop = None;
    for (name, stages) in [
        ("no chain: the hop alone", None),
        ("a chain of one plugin stage", Some(1)),
        ("a chain of ten plugin stages", Some(10)),
    ] {
        let mut host = Host::builder();
        if let Some(stages) = stages {
            host = host.definitions(chain_file(directory, stages));
        }
        let host = host.build().await.unwrap();
        let driver = Driver::bind(config(directory), Connections::default(), host, None)
            .await
            .unwrap();
        let url = format!("https://localhost:{}/mutate?timeout=10s", driver.address().port());
        let client = Client::with_trust(ClientTrust {
            authorities: &cert.pem(),
            identity: None,
        })
        .unwrap();
        let shutdown = Shutdown::default();
        let running = tokio::spawn(driver.run(shutdown.clone()));
        let measured = table
            .measure(name, hop, calls, async || {
                ask(&client, &url, &review, stages.is_some()).await;
            })
            .await;
        hop.get_or_insert(measured);
        drop(client);
        shutdown.signal();
        running.await.unwrap();
    }
    table.print();
}

async fn ask(client: &Client, url: &str, review: &str, is_changed: bool) {
    let request = Request::post(url)
        .header("content-type", "application/json")
        .body(review.to_owned())
        .unwrap();
    let reply: Value = client.send(request).await.unwrap().json().unwrap();
    let response = &reply["response"];
    assert_eq!(
        (&response["allowed"], response["patch"].is_string()),
        (&json!(true), is_changed),
        "{reply}"
    );
}

pub(crate) fn review(object: &str) -> String {
    review_of_pod(&serde_json::from_str(object).unwrap())
}

fn config(directory: &Path) -> Config {
    let path = directory.join("reviews.yaml");
    let text = "listen: { address: '127.0.0.1:0', tls: { certificate: server.pem, key: server.key } }
dialect: { kubernetes: {} }
";
    std::fs::write(&path, text).unwrap();
    Config::read(&path).unwrap()
}
