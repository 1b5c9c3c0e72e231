//! Measures the program as a proxy of an upstream server, compared with that server alone.

use std::path::Path;

use admittance::Host;
use admittance_driver::{Config, Connections, Driver, Shutdown};
use admittance_tests::{Client, FakeUpstream};
use http::Request;

use crate::{chain_file, measure::MeasuredTable};

pub(crate) async fn measure(directory: &Path, calls: usize, object: &str) {
    let upstream = FakeUpstream::start().await.unwrap();
    let client = Client::new().unwrap();
    let title = format!(
        "the proxy: POST of a {} byte Pod, {calls} requests each, one connection",
        object.len()
    );
    let mut table = MeasuredTable::new(&title);
    let direct = {
        let url = upstream.url();
        table
            .measure("the upstream itself", None, calls, async || {
                post(&client, &url, object).await
            })
            .await
    };
    for (name, stages) in [
        ("no chain", None),
        ("a chain of one plugin stage", Some(1)),
        ("a chain of ten plugin stages", Some(10)),
    ] {
        let config = config(directory, &upstream.url());
        let mut host = Host::builder();
        if let Some(stages) = stages {
            host = host.definitions(chain_file(directory, stages));
        }
        let host = host.build().await.unwrap();
        let driver = Driver::bind(config, Connections::default(), host, None).await.unwrap();
        let url = format!("http://{}", driver.address());
        let shutdown = Shutdown::default();
        let running = tokio::spawn(driver.run(shutdown.clone()));
        table
            .measure(name, Some(direct), calls, async || post(&client, &url, object).await)
            .await;
        shutdown.signal();
        running.await.unwrap();
    }
    table.print();
}

async fn post(client: &Client, url: &str, object: &str) {
    let request = Request::post(format!("{url}/api/v1/pods"))
        .body(object.to_owned())
        .unwrap();
    let reply = client.send(request).await.unwrap();
    assert!(reply.status.is_success(), "{reply:?}");
}

fn config(directory: &Path, upstream: &str) -> Config {
    let path = directory.join("admittance.yaml");
    let text = format!(
        "listen: {{address: '127.0.0.1:0'}}
dialect:
  rest:
    routes:
      - {{method: [POST], path: /api/v1/pods, operation: CREATE, resource: pods, kind: {{pointer: /kind}}, name: {{pointer: /metadata/name}}}}
upstream: {{servers: ['{upstream}']}}
"
    );
    std::fs::write(&path, text).unwrap();
    Config::read(&path).unwrap()
}
