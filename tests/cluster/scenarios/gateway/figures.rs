//! Measures what a gateway costs: its latency, and the memory of open watches.

use std::{fmt, sync::Arc};

use admittance_tests::resident_memory;

use super::{
    scene::{GatewayScene, GatewaySetting},
    watches::start_watches,
};
use crate::{cluster::TestCluster, figures::FigureRow, process::wait_until};

const WATCHES: usize = 1000;
/// The number of watches that are opened at once. Each causes TLS handshakes in four programs on this machine.
const BATCH_SIZE: usize = 50;

pub(crate) async fn measure_gateways(cluster: &Arc<TestCluster>) -> Vec<FigureRow> {
    let mut rows = Vec::new();
    for (title, has_tunnel, has_chains) in [
        ("a gateway, direct", false, false),
        ("a gateway, by tunnel", true, false),
        ("a gateway, by tunnel, one plugin", true, true),
    ] {
        let mut setting = GatewaySetting::simple(has_tunnel);
        if !has_chains {
            setting.chains.clear();
        }
        let gateway = GatewayScene::start_configured(cluster.clone(), setting).await;
        rows.push(FigureRow::measure(title, &gateway.rest, &gateway.path("pods")).await);
    }
    rows
}

#[derive(Debug)]
pub(crate) struct WatchMemory {
    has_tunnel: bool,
    /// The bytes by which the gateway's resident memory has grown when all watches are open.
    gateway_bytes: u64,
    agent_bytes: u64,
}

pub(crate) async fn memory_of_watches(cluster: &Arc<TestCluster>) -> Vec<WatchMemory> {
    let mut all = Vec::new();
    for has_tunnel in [false, true] {
        let gateway = GatewayScene::start(cluster.clone(), has_tunnel).await;
        let resident = || {
            [
                gateway.scene.running_program().id().unwrap(),
                gateway.agent.id().unwrap(),
            ]
            .map(|process| resident_memory(process).unwrap())
        };
        let (before, other_watcher_count) = (resident(), count_watchers(&gateway).await);
        let mut watches = Vec::new();
        for batch in 1..=WATCHES / BATCH_SIZE {
            watches.push(start_watches(&gateway, BATCH_SIZE));
            wait_until("the watches of the API server", async || {
                (count_watchers(&gateway).await >= other_watcher_count + batch * BATCH_SIZE).then_some(())
            })
            .await;
        }
        let after = resident();
        drop(watches);
        wait_until("the end of the watches", async || {
            (count_watchers(&gateway).await <= other_watcher_count).then_some(())
        })
        .await;
        let [gateway_memory, agent_memory] = [0, 1].map(|process| after[process].saturating_sub(before[process]));
        all.push(WatchMemory {
            has_tunnel,
            gateway_bytes: gateway_memory,
            agent_bytes: agent_memory,
        });
    }
    all
}

async fn count_watchers(gateway: &GatewayScene) -> usize {
    let metrics = gateway.scene.rest.get("/metrics").await.unwrap().text();
    let is_of_watches = |line: &&str| {
        line.starts_with("apiserver_longrunning_gauge{")
            && line.contains(r#"resource="configmaps""#)
            && line.contains(r#"verb="WATCH""#)
    };
    let lines = metrics.lines().filter(is_of_watches);
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum()
}

impl fmt::Display for WatchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = if self.has_tunnel { "by tunnel" } else { "direct" };
        let each = |bytes: u64| bytes / u64::try_from(WATCHES).unwrap_or(1) / 1024;
        write!(
            f,
            "{WATCHES} idle watches by a gateway, {route}: {} KiB each in the gateway",
            each(self.gateway_bytes)
        )?;
        if self.has_tunnel {
            write!(f, ", {} KiB in the agent", each(self.agent_bytes))?;
        }
        Ok(())
    }
}
