//! Tests mutual TLS between client and driver, and between driver and scheduler.

use std::{fs, path::Path};

use admittance_tests::{Admittance, Client, ClientTrust, MesosCluster, Scheduler, SchedulerKind, SchedulerTls};
use http::Method;
use serde_json::Value;

use super::{
    nodes::{DRIVERS, Nodes, SchedulerCandidate},
    scene::{CLUSTER, Front, code_and_message, driver_config},
    zookeeper::ZooKeeperNode,
};
use crate::scene::application;

/// Creates a CA, and two certificates from it: one for servers and one for clients.
async fn create_certificates(out: &Path) {
    let arguments = ["certs", "--out", out.to_str().unwrap()];
    let names = ["--host", "localhost", "--host", "127.0.0.1", "--client", "operator"];
    let certs_output = Admittance::run(arguments.into_iter().chain(names)).await.unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
}

fn pem(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

fn trusting_client(trusts: &Path, shows: Option<&Path>) -> Client {
    let identity = shows.map(|folder| (pem(folder, "operator.pem"), pem(folder, "operator.key")));
    let identity = identity
        .as_ref()
        .map(|(certificate, key)| (certificate.as_str(), key.as_str()));
    let authorities = &pem(trusts, "ca.pem");
    Client::with_trust(ClientTrust { authorities, identity }).unwrap()
}

#[tokio::test]
async fn mutual_tls_is_used_with_clients_and_the_scheduler() {
    let directory = tempfile::tempdir().unwrap();
    // There are three CAs: for the driver and its clients, for the scheduler, and one that neither side trusts.
    let [ours, schedulers, theirs] = ["ours", "schedulers", "theirs"].map(|name| directory.path().join(name));
    for folder in [&ours, &schedulers, &theirs] {
        create_certificates(folder).await;
    }
    let zookeeper = ZooKeeperNode::create_shared("tls").await;
    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start_over_tls(
        &cluster,
        SchedulerTls {
            certificate: &pem(&schedulers, "localhost.pem"),
            key: &pem(&schedulers, "localhost.key"),
            client_authority: &pem(&schedulers, "ca.pem"),
        },
    )
    .await
    .unwrap();
    let _stands = SchedulerCandidate::join_election(&zookeeper.connection(), &scheduler).await;
    let nodes = Nodes::connect(&zookeeper.connection()).await;
    let of_cluster = format!("{DRIVERS}/{CLUSTER}");
    nodes.put(&of_cluster, &Value::Null).await;

    let listener = format!(
        "address: \"127.0.0.1:0\", tls: {{ certificate: {0}/localhost.pem, key: {0}/localhost.key, clientCa: {0}/ca.pem }}",
        ours.display()
    );
    let config = driver_config(&zookeeper, "registration: {}\n").replace("address: \"127.0.0.1:0\"", &listener);
    let to_scheduler = |shows: &Path| {
        format!(
            "discover: {{}}, tls: {{ ca: {0}/ca.pem, certificate: {1}/operator.pem, key: {1}/operator.key }}",
            schedulers.display(),
            shows.display()
        )
    };
    let driver = Front::start(&config.replace("discover: {}", &to_scheduler(&schedulers))).await;
    let registered = nodes
        .until_children(&of_cluster, "registered", |nodes| nodes.len() == 1)
        .await;
    assert_eq!(registered[0].data["scheme"], "https");
    assert_eq!(registered[0].data["ip"], "127.0.0.1");

    let create = async |client: &Client, program: &Admittance, name: &str| {
        let object = application("shop", name, "docker.io/library/nginx:1.29").to_string();
        let url = program.tls_url("/mesosdriver/v4/namespaces/shop/applications");
        client.send_bcs(Method::POST, &url, object).await
    };
    // (case, CA that the client trusts, certificate that it presents, whether the driver answers its request)
    for (name, trusts, shows, is_served) in [
        ("right", &ours, Some(&ours), true),
        ("none", &ours, None, false),
        ("another-authority", &ours, Some(&theirs), false),
        ("does-not-trust", &theirs, Some(&ours), false),
    ] {
        let client = trusting_client(trusts, shows.map(|folder| folder.as_path()));
        let reply = create(&client, &driver.program, name).await;
        assert_eq!(
            reply.is_ok_and(|reply| code_and_message(&reply).0 == 0),
            is_served,
            "{name}"
        );
        let is_there = cluster.object(SchedulerKind::Application, "shop", name).is_some();
        assert_eq!(is_there, is_served, "{name}");
    }
    assert_eq!(scheduler.problems(), [""; 0]);

    // The scheduler does not trust this driver's certificate. It refuses the connection, and the client gets the error.
    let stranger = Front::start(&config.replace("discover: {}", &to_scheduler(&theirs))).await;
    let client = trusting_client(&ours, Some(&ours));
    let reply = create(&client, &stranger.program, "stranger").await.unwrap();
    let (code, message) = code_and_message(&reply);
    assert_eq!((reply.status.as_u16(), code), (200, 1_405_009), "{message}");
    assert!(cluster.object(SchedulerKind::Application, "shop", "stranger").is_none());
}
