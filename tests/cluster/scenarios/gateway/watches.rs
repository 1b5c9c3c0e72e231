//! Tests how long watches through a gateway stay open: until the user's permission, the user's token or the connection
//! ends.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use super::{RECONNECT_TIMEOUT, scene::GatewayScene};
use crate::{cluster::TestCluster, process::wait_until};

const WATCHES: usize = 100;
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn watches_stay_open(cluster: Arc<TestCluster>) {
    let limit = cluster.longest_watch;
    let mut watching = JoinSet::new();
    for has_tunnel in [false, true] {
        let gateway = GatewayScene::start(cluster.clone(), has_tunnel).await;
        watching.spawn(async move { watch_for(&gateway, limit).await });
    }
    watching.join_all().await;
}

/// Opens two watches for the time `limit`: one gets an event every few seconds, and the other only at the end.
async fn watch_for(gateway: &GatewayScene, limit: Duration) {
    let create = async |name: String, kind: &str| {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"kind": kind}},
        });
        gateway.scene.apply(&object).await.assert_success();
    };
    create("busy-0".to_owned(), "busy").await;
    create("idle-0".to_owned(), "idle").await;
    let start =
        |kind: &str| gateway.start_kubectl(&format!("get configmaps --selector=kind={kind} --watch --output=name"));
    let (mut busy, mut idle) = (start("busy"), start("idle"));
    busy.wait_for_line("busy-0").await;
    idle.wait_for_line("idle-0").await;
    let begin = Instant::now();
    let mut number = 1;
    while begin.elapsed() < limit {
        tokio::time::sleep(WRITE_INTERVAL.min(limit)).await;
        let name = format!("busy-{number}");
        create(name.clone(), "busy").await;
        busy.wait_for_line(&name).await;
        number += 1;
    }
    create("idle-1".to_owned(), "idle").await;
    idle.wait_for_line("idle-1").await;
}

pub(crate) async fn a_hundred_watches_end_with_their_token(cluster: Arc<TestCluster>) {
    let gateway = GatewayScene::start(cluster, true).await;
    let mut watches = open_watches(&gateway, WATCHES).await;
    for _ in 0..20 {
        gateway.run("get configmaps").await.assert_success();
    }
    gateway.revoke().await;
    end_with_errors(&mut watches, WATCHES).await;
}

/// The tasks of open watches. A task ends with a reply if the API server ended the watch, and otherwise with an error.
pub(super) type RunningWatches = JoinSet<Result<admittance_tests::Reply, admittance_tests::Error>>;

/// Opens watches for a label that no object has, so that they get no events.
pub(super) fn start_watches(gateway: &GatewayScene, count: usize) -> RunningWatches {
    let path = gateway.path("configmaps?watch=true&timeoutSeconds=600&labelSelector=kind=none");
    let mut watches = JoinSet::new();
    for _ in 0..count {
        let (rest, path) = (gateway.rest.clone(), path.clone());
        watches.spawn(async move { rest.get(&path).await });
    }
    watches
}

/// Opens watches without events, and waits until the gateway has all of them.
pub(super) async fn open_watches(gateway: &GatewayScene, count: usize) -> RunningWatches {
    let watches = start_watches(gateway, count);
    wait_until("the watches", async || {
        let metrics = gateway.scene.metrics().await;
        let open = metrics.sum("admittance_http_streams_open", &[]);
        (open >= Some(u32::try_from(count).unwrap().into())).then_some(())
    })
    .await;
    watches
}

/// Checks that each of the `count` watches ends soon with an error. Usually, the connection of the watch breaks. If the
/// gateway has not replied to the watch yet, the gateway may also reply with an error status.
pub(super) async fn end_with_errors(watches: &mut RunningWatches, count: usize) {
    let counting = async {
        let mut ended_count = 0;
        while let Some(watch) = watches.join_next().await {
            if let Ok(reply) = watch.unwrap() {
                assert!(!reply.status.is_success(), "{} {}", reply.status, reply.text());
            }
            ended_count += 1;
        }
        ended_count
    };
    assert_eq!(tokio::time::timeout(RECONNECT_TIMEOUT, counting).await.unwrap(), count);
}
