//! Tests a gateway in front of the API server, with an agent in the cluster, for users with kubectl and tokens.

mod agents;
mod attacks;
mod balancer;
mod figures;
mod kills;
mod roles;
mod scene;
mod several_gateways;
mod watches;

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use self::scene::GatewayScene;
pub(crate) use self::{
    agents::{agents_find_the_addresses_of_api_servers, role_bindings_of_the_cluster_decide},
    attacks::{a_register_token_cannot_be_guessed, no_client_becomes_another_user, no_client_reaches_another_cluster},
    figures::{WatchMemory, measure_gateways, memory_of_watches},
    kills::{confirmed_objects_survive_a_kill_of_the_agent, confirmed_objects_survive_a_kill_of_the_gateway},
    roles::roles_of_a_file_are_bound_in_the_cluster,
    several_gateways::{a_second_gateway_replaces_a_killed_one, gateways_survive_an_outage_of_the_database},
    watches::{a_hundred_watches_end_with_their_token, watches_stay_open},
};
use crate::{
    cluster::TestCluster,
    kubelet::Kubelet,
    scene::{GOOD_IMAGE, pod},
};

const BAD_IMAGE: &str = "registry.example.com/web:latest";
/// The time within which a revocation must take effect, and an agent must connect again.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn a_cluster_is_used_directly(cluster: Arc<TestCluster>) {
    let gateway = GatewayScene::start(cluster, false).await;
    check_objects(&gateway).await;
    check_lists(&gateway).await;
    check_containers(&gateway).await;
    check_streams(&gateway).await;
}

pub(crate) async fn a_cluster_is_used_through_a_tunnel(cluster: Arc<TestCluster>) {
    let mut gateway = GatewayScene::start(cluster, true).await;
    check_objects(&gateway).await;
    check_lists(&gateway).await;
    check_containers(&gateway).await;

    gateway.agent.kill().await.unwrap();
    gateway
        .run("get pods")
        .await
        .assert_failure_with(&["Error from server"]);
    gateway.start_agent();
    tokio::time::timeout(RECONNECT_TIMEOUT, gateway.wait_until_reached())
        .await
        .unwrap();
    check_streams(&gateway).await;
}

async fn check_objects(gateway: &GatewayScene) {
    let labelled = |image: &str, version: &str| {
        let mut object = pod("web", image);
        object["metadata"]["labels"] = json!({"version": version});
        object
    };
    let refused = ["images", "latest"];
    gateway
        .run_with_object("apply -f -", &labelled(BAD_IMAGE, "1"))
        .await
        .assert_failure_with(&refused);
    gateway
        .run_with_object("apply -f -", &labelled(GOOD_IMAGE, "1"))
        .await
        .assert_success();
    // `kubectl apply` of an object that exists sends a PATCH.
    gateway
        .run_with_object("apply -f -", &labelled(GOOD_IMAGE, "2"))
        .await
        .assert_success();
    gateway
        .run_with_object("apply -f -", &labelled(BAD_IMAGE, "3"))
        .await
        .assert_failure_with(&refused);
    let stored = gateway.scene.get("pod web").await;
    assert_eq!(stored["metadata"]["labels"]["version"], "2", "{stored}");
    assert_eq!(gateway.run("get pod web --output=json").await.json(), stored);

    let mut other = pod("other", GOOD_IMAGE);
    gateway
        .run_with_object("apply --server-side -f -", &other)
        .await
        .assert_success();
    other["metadata"]["labels"] = json!({"a": "b"});
    gateway
        .run_with_object("apply --server-side -f -", &other)
        .await
        .assert_success();
    other["spec"]["containers"][0]["image"] = BAD_IMAGE.into();
    gateway
        .run_with_object("apply --server-side -f -", &other)
        .await
        .assert_failure_with(&refused);
    gateway.run("label pod other a=c --overwrite").await.assert_success();
    gateway.run("delete pod other --wait=false").await.assert_success();

    gateway
        .run("get nodes")
        .await
        .assert_failure_with(&["plain.alice", "forbidden"]);
    for arguments in [
        "get nodes --as=admin --as-group=system:masters",
        "get nodes --as=system:admin",
    ] {
        gateway
            .run(arguments)
            .await
            .assert_failure_with(&["plain.alice", "forbidden"]);
    }
    let path = format!("/api/v1/namespaces/{}/pods/web", gateway.scene.namespace);
    let audit = gateway.scene.cluster.audit_log().unwrap();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changed: Vec<_> = lines
        .filter(|event| event["verb"] == "patch" && event["requestURI"].as_str().unwrap().starts_with(&path))
        .filter(|event| event["responseStatus"]["code"] == 200)
        .collect();
    assert!(!changed.is_empty());
    for event in changed {
        assert_eq!(event["impersonatedUser"]["username"], "plain.alice", "{event}");
        let groups = event["impersonatedUser"]["groups"].to_string();
        assert!(
            groups.contains("developers") && groups.contains("admittance:edit"),
            "{event}"
        );
    }
}

async fn check_lists(gateway: &GatewayScene) {
    const COUNT: usize = 100;
    let namespace = &gateway.scene.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for number in 0..COUNT {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("large-{number}")},
            "data": {"text": "x".repeat(100 << 10)},
        });
        let reply = gateway.scene.rest.post(&path, &object).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.text());
    }
    for pieces in ["--chunk-size=0", "--chunk-size=7"] {
        let config_maps = gateway
            .run(&format!("get configmaps --output=json {pieces}"))
            .await
            .json();
        let items = config_maps["items"].as_array().unwrap();
        let large = items
            .iter()
            .filter(|item| item["metadata"]["name"].as_str().unwrap().starts_with("large-"));
        let length: usize = large.map(|item| item["data"]["text"].as_str().unwrap().len()).sum();
        assert_eq!(length, COUNT * (100 << 10), "{pieces}");
    }
}

async fn check_containers(gateway: &GatewayScene) {
    let kubelet = Kubelet::start().await;
    let node = format!("node-{}", gateway.scene.namespace);
    let rest = &gateway.scene.rest;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    let mut object = rest.post("/api/v1/nodes", &object).await.unwrap().json().unwrap();
    object["status"] = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.address.port()}},
    });
    let path = format!("/api/v1/nodes/{node}/status");
    let reply = rest.send(Method::PUT, &path, Some(&object)).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.text());
    let mut object = pod("served", GOOD_IMAGE);
    object["spec"]["nodeName"] = node.into();
    gateway.scene.apply(&object).await.assert_success();
    let mut object = gateway.scene.get("pod served").await;
    object["status"] = json!({"phase": "Running", "podIP": "127.0.0.1"});
    let path = format!("/api/v1/namespaces/{}/pods/served/status", gateway.scene.namespace);
    let reply = rest.send(Method::PUT, &path, Some(&object)).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.text());

    let echo_output = gateway.run("exec served -- echo").await.assert_success();
    assert_eq!(echo_output.stdout, "hello\n", "{}", echo_output.stderr);
    let text = "what is typed\n".repeat(10_000);
    let cat_output = gateway
        .run_with_input("exec -i served -- cat", &text)
        .await
        .assert_success();
    assert_eq!(cat_output.stdout, format!("hello\n{text}"));
    gateway
        .run("exec served -- rm -r /")
        .await
        .assert_failure_with(&["no-rm"]);

    let log_output = gateway.run("logs served").await.assert_success();
    assert_eq!(log_output.stdout, "line 0\nline 1\nline 2\n");
    let mut following = gateway.start_kubectl("logs -f served");
    following.wait_for_line("line 5").await;

    let mut forwarding = gateway.start_kubectl("port-forward pod/served :80");
    let line = forwarding.wait_for_line("127.0.0.1:").await;
    let address = line.split(' ').find(|word| word.starts_with("127.0.0.1:")).unwrap();
    for turn in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("{turn}").repeat(50_000);
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut echoed_text = String::new();
        stream.read_to_string(&mut echoed_text).await.unwrap();
        assert!(echoed_text == text, "{} bytes came back", echoed_text.len());
    }
}

async fn check_streams(gateway: &GatewayScene) {
    let mut watch = gateway.start_kubectl("get configmaps --watch-only --output=name");
    for turn in 0..5 {
        let name = format!("seen-{turn}");
        gateway
            .scene
            .run(&format!("create configmap {name}"))
            .await
            .assert_success();
        if turn == 0 {
            tokio::time::timeout(Duration::from_secs(60), async {
                loop {
                    gateway
                        .scene
                        .run(&format!(
                            "annotate configmap {name} a={} --overwrite",
                            fastrand::u32(..)
                        ))
                        .await;
                    if tokio::time::timeout(Duration::from_millis(500), watch.wait_for_line(&name))
                        .await
                        .is_ok()
                    {
                        break;
                    }
                }
            })
            .await
            .unwrap();
        } else {
            watch.wait_for_line(&name).await;
        }
    }
    gateway.revoke().await;
    watch.wait_until_ended(RECONNECT_TIMEOUT).await;
    gateway.run("get pods").await.assert_failure_with(&["logged in"]);
}
