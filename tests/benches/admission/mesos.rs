//! Measures the BCS driver in front of a scheduler, and a gateway in front of the driver.

use std::path::Path;

use admittance::Host;
use admittance_driver::{Config, Connections, Driver, Shutdown};
use admittance_tests::{Client, FakeUpstream};
use http::Request;
use serde_json::json;

use crate::{chain_file_for, measure::MeasuredTable};

const CLUSTER: &str = "BCS-MESOS-10001";

pub(crate) async fn measure(directory: &Path, calls: usize) {
    let scheduler = FakeUpstream::start().await.unwrap();
    let client = Client::new().unwrap();
    let application = application();
    let mut table = MeasuredTable::new(&format!(
        "BCS: POST of a {} byte application, {calls} requests each, one connection",
        application.len()
    ));
    let direct = {
        let url = format!("{}/v1/apps", scheduler.url());
        table
            .measure("the scheduler itself", None, calls, async || {
                post(&client, &url, &application).await
            })
            .await
    };
    for (name, behind, stages) in [
        ("the driver, no chain", "driver", None),
        ("the driver, translating, no chain", "scheduler", None),
        ("the driver, translating, one plugin stage", "scheduler", Some(1)),
    ] {
        let mut host = Host::builder();
        if let Some(stages) = stages {
            host = host.definitions(chain_file_for(directory, "application", stages));
        }
        let host = host.build().await.unwrap();
        let driver = start(
            directory,
            host,
            &format!(
                "dialect: {{bcs: {{cluster: {CLUSTER}, behind: {behind}}}}}\nupstream: {{servers: ['{}']}}\n",
                scheduler.url()
            ),
        )
        .await;
        let path = "namespaces/shop/applications";
        let url = format!("{}/mesosdriver/v4/{path}", driver.url);
        table
            .measure(name, Some(direct), calls, async || {
                post(&client, &url, &application).await
            })
            .await;
        let gateway = start(
            directory,
            Host::builder().build().await.unwrap(),
            &format!(
                "dialect: {{gateway: {{clusters: {{{CLUSTER}: ['{}']}}}}}}\n",
                driver.url
            ),
        )
        .await;
        let url = format!("{}/bcsapi/v4/scheduler/mesos/{path}", gateway.url);
        table
            .measure(&format!("{name}, by the gateway"), Some(direct), calls, async || {
                post(&client, &url, &application).await
            })
            .await;
        gateway.stop().await;
        driver.stop().await;
    }
    table.print();
}

struct RunningScheduler {
    url: String,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<admittance_driver::ShutdownResult>,
}

impl RunningScheduler {
    async fn stop(self) {
        self.shutdown.signal();
        self.task.await.unwrap();
    }
}

async fn start(directory: &Path, host: Host, dialect: &str) -> RunningScheduler {
    let path = directory.join("admittance.yaml");
    std::fs::write(&path, format!("listen: {{address: '127.0.0.1:0'}}\n{dialect}")).unwrap();
    let config = Config::read(&path).unwrap();
    let driver = Driver::bind(config, Connections::default(), host, None).await.unwrap();
    let shutdown = Shutdown::default();
    RunningScheduler {
        url: format!("http://{}", driver.address()),
        task: tokio::spawn(driver.run(shutdown.clone())),
        shutdown,
    }
}

async fn post(client: &Client, url: &str, object: &str) {
    let request = Request::post(url)
        .header("BCS-ClusterID", CLUSTER)
        .header("Content-Type", "application/json")
        .body(object.to_owned())
        .unwrap();
    let reply = client.send(request).await.unwrap();
    // The driver answers with the status 200 even if it refuses the request, so the code in the body is checked.
    assert!(
        reply.status.is_success() && reply.text().contains("\"code\":0"),
        "{reply:?}"
    );
}

fn application() -> String {
    let container = |index: usize| {
        json!({
            "type": "MESOS",
            "image": format!("registry.example.com/shop/web-{index}:1.4.2"),
            "imagePullPolicy": "Always",
            "ports": [{"containerPort": 8080 + index, "name": "http", "protocol": "HTTP"}],
            "env": [{"name": "LOG_LEVEL", "value": "info"}],
            "resources": {"limits": {"cpu": "0.5", "memory": "256"}, "requests": {"cpu": "0.1", "memory": "64"}},
        })
    };
    json!({
        "apiVersion": "v4",
        "kind": "application",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
        "restartPolicy": {"policy": "Always", "interval": 5, "backoff": 10},
        "killPolicy": {"gracePeriod": 5},
        "constraint": {"intersectionItem": []},
        "spec": {
            "instance": 2,
            "template": {"spec": {
                "containers": [container(0), container(1)],
                "networkMode": "BRIDGE",
                "networkType": "BRIDGE",
            }},
        },
    })
    .to_string()
}
