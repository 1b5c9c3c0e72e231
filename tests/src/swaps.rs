//! Replaces the module of a plugin, or of a chain of plugins, while clients send requests.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{CreationLoad, Error, FakeUpstream, LoadCounts, Serve, Versions, files::write, replace};

/// Replaces a module repeatedly. Every stage of a chain uses this module.
#[derive(Clone, Copy, Debug)]
pub struct Swaps {
    /// The number of times that the module is replaced. The version with which the program starts does not count.
    pub rounds: u32,
    pub stages: usize,
    pub connections: usize,
}

#[derive(Clone, Debug)]
pub struct SwapResult {
    /// The counts of the clients that sent requests while the module was replaced.
    pub load_counts: LoadCounts,
    /// For each version, the time from the replacement of the module to the first response with this version. The times
    /// are in ascending order.
    pub latencies: Vec<Duration>,
    /// The resident memory of the program before the first replacement, in bytes. It was measured under load.
    pub memory_before: u64,
    /// The highest resident memory of the program after any replacement, in bytes.
    pub memory_peak: u64,
    /// The resident memory of the program after the last replacement, in bytes. It was measured under load.
    pub memory_after: u64,
    /// The content of `/v1/status` after all clients had stopped.
    pub status: Value,
}

impl SwapResult {
    pub fn latency(&self, percent: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() * percent / 100).min(last);
        self.latencies.get(at).copied().unwrap_or_default()
    }
}

const CONFIG: &str = "
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: [\"http://127.0.0.1:1\"] }
definitions: [definitions]
store: { directory: store, sizeLimit: 64MiB }
";

impl Swaps {
    /// Replaces the module `rounds` times. After each replacement, calls `progress` with the number of the replacement
    /// and the counts of the clients.
    pub async fn run(self, mut progress: impl FnMut(u32, &LoadCounts)) -> Result<SwapResult, Error> {
        let versions = Versions::find()?;
        let directory = tempfile::tempdir().map_err(Error::io("a directory"))?;
        let definitions = directory.path().join("definitions");
        std::fs::create_dir(&definitions).map_err(Error::io("a directory for definitions"))?;
        let module = definitions.join("versioned.wasm");
        let config = directory.path().join("admittance.yaml");
        write(&config, CONFIG)?;
        write(&definitions.join("chain.yaml"), chain(self.stages, &module))?;
        write(&module, versions.module(1))?;
        let upstream = FakeUpstream::start_forgetful().await?;
        let program = Serve::new(&config)?.upstream(&upstream.url()).start().await?;
        let url = program.url("/mesosdriver/v4/namespaces/load/applications");
        let mut load = CreationLoad::start(url, self.stages, self.connections)?;
        load.wait_until_seen_by_all(1).await?;
        let memory_before = program.resident_memory()?;
        let mut memory_most = memory_before;
        let mut latencies = Vec::new();
        for version in 2..=self.rounds + 1 {
            let bytes = versions.module(version);
            let started = Instant::now();
            replace(&module, bytes)?;
            load.wait_until_seen(version).await?;
            latencies.push(started.elapsed());
            // Every connection has seen the new version, so no older version may handle a request from now on.
            load.retire_versions_before(version);
            memory_most = memory_most.max(program.resident_memory()?);
            progress(version - 1, &load.counts());
        }
        load.wait_until_seen_by_all(self.rounds + 1).await?;
        let memory_after = program.resident_memory()?;
        let load_counts = load.end().await;
        let status = program
            .wait_for_status("one table, and written down", |status| {
                status["tables"] == 1 && status["building"] == false
            })
            .await?;
        latencies.sort_unstable();
        Ok(SwapResult {
            load_counts,
            latencies,
            memory_before,
            memory_peak: memory_most,
            memory_after,
            status,
        })
    }
}

fn chain(stages: usize, module: &Path) -> String {
    let stages = (0..stages).map(|stage| {
        format!(
            "    - name: stage-{stage}\n      plugin: {{ source: \"file:{}\", settings: {{ name: stage-{stage} }} }}\n",
            module.display()
        )
    });
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: versioned }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
{}",
        stages.collect::<String>()
    )
}
