//! Measures an audit of many objects, and startup with many chains, against the real API server.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use admittance_tests::Admittance;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    cluster::TestCluster,
    process::wait_until,
    rest::UserClient,
    scenarios::resources::{CHAINS_PATH, denying_chain},
    scene::{GOOD_IMAGE, Scene, plugin_stage, pod},
};

/// The number of objects that are audited. A debug build is slower, so it audits fewer.
const OBJECTS: usize = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
const CHAINS: usize = if cfg!(debug_assertions) { 200 } else { 2_000 };
const CONCURRENCY: usize = 8;

#[derive(Debug)]
pub(crate) struct ScaleFigures {
    audit: Value,
    /// The program's resident memory in bytes: before the audit, and at most during the audit.
    memory: [u64; 2],
    cold_start: Duration,
    warm_start: Duration,
}

async fn create_all(rest: &UserClient, path: String, objects: impl Iterator<Item = Value>) {
    let mut shares = vec![Vec::new(); CONCURRENCY];
    for (number, object) in objects.enumerate() {
        shares[number % CONCURRENCY].push(object);
    }
    let mut creating = JoinSet::new();
    for share in shares {
        let (rest, path) = (rest.clone(), path.clone());
        creating.spawn(async move {
            for object in share {
                let reply = rest.post(&path, &object).await.unwrap();
                assert_eq!(reply.status, 201, "{}", reply.text());
            }
        });
    }
    creating.join_all().await;
}

async fn end_program(mut program: Admittance) {
    program.terminate().unwrap();
    program.wait_for_end().await.unwrap();
}

/// Returns a Pod of 1.6 kB. The chain denies it if the number is divisible by ten.
fn large_pod(number: usize) -> Value {
    let image = if number.is_multiple_of(10) { "bad" } else { GOOD_IMAGE };
    let mut pod = pod(&format!("pod-{number}"), image);
    let variables = (0..40).map(|variable| json!({"name": format!("V{variable}"), "value": "some value"}));
    pod["spec"]["containers"][0]["env"] = variables.collect();
    pod
}

pub(crate) async fn measure(cluster: Arc<TestCluster>) -> ScaleFigures {
    let (audit, memory) = audit_all(cluster.clone()).await;
    let [cold, warm] = start_twice(cluster).await;
    ScaleFigures {
        audit,
        memory,
        cold_start: cold,
        warm_start: warm,
    }
}

async fn delete_chains(scene: &Scene) {
    let reply = scene.rest.send(Method::DELETE, CHAINS_PATH, None).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Measures how long the program takes to be ready: first with an empty store, then with all plugins in the store.
async fn start_twice(cluster: Arc<TestCluster>) -> [Duration; 2] {
    let scene = Scene::prepare_replicas(cluster, json!({})).await;
    let store = TempDir::new().unwrap();
    let chains = (0..CHAINS).map(|number| {
        let mut chain = denying_chain(&scene, "bad image");
        chain["metadata"]["name"] = json!(format!("chain-{number:04}"));
        if number.is_multiple_of(2) {
            let registry = format!("registry-{number}.example.com");
            let settings = json!({"allowedRegistries": [registry]});
            chain["spec"]["stages"] = json!([plugin_stage("image-policy", settings)]);
        }
        chain
    });
    create_all(&scene.rest, CHAINS_PATH.to_owned(), chains).await;
    let mut times = [Duration::ZERO; 2];
    for time in &mut times {
        let begin = Instant::now();
        let program = scene.start_replica(store.path()).await;
        *time = begin.elapsed();
        let status = program.status().await.unwrap();
        assert_eq!(status["chains"].as_array().map(Vec::len), Some(CHAINS));
        end_program(program).await;
    }
    delete_chains(&scene).await;
    times
}

/// Lets the leader audit all objects. Returns its report, and the program's memory before the audit and its peak.
async fn audit_all(cluster: Arc<TestCluster>) -> (Value, [u64; 2]) {
    let audit = json!({"resources": ["pods"], "rate": 1000});
    let more = json!({"dialect": {"kubernetes": {"audit": audit}}});
    let scene = Scene::prepare_replicas(cluster, more).await;
    let store = TempDir::new().unwrap();
    let pods = format!("/api/v1/namespaces/{}/pods", scene.namespace);
    create_all(&scene.rest, pods, (0..OBJECTS).map(large_pod)).await;
    scene.apply(&denying_chain(&scene, "bad image")).await.assert_success();
    let program = scene.start_replica(store.path()).await;
    let before = program.resident_memory().unwrap();
    let peak = AtomicU64::new(before);
    let report = wait_until("the end of the audit", async || {
        peak.fetch_max(program.resident_memory().unwrap(), Ordering::Relaxed);
        let mut audit = program.status().await.unwrap()["audit"].take();
        let listed_count = audit["last"]["listed"].as_u64()?;
        (listed_count >= OBJECTS as u64).then(|| audit["last"].take())
    })
    .await;
    let status = program.status().await.unwrap();
    assert_eq!(status["audit"]["objects"]["denied"], OBJECTS / 10, "{status}");
    end_program(program).await;
    delete_chains(&scene).await;
    (report, [before, peak.into_inner()])
}

impl fmt::Display for ScaleFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, peak] = self.memory.map(|bytes| bytes as f64 / 1e6);
        writeln!(
            f,
            "audit of {OBJECTS} Pods: {:.1} s, {before:.0} MB of memory before and {peak:.0} MB at most",
            self.audit["seconds"].as_f64().unwrap_or_default(),
        )?;
        write!(
            f,
            "{CHAINS} chains as resources: ready after {:.1?} with an empty store, and {:.1?} with a warm one",
            self.cold_start, self.warm_start
        )
    }
}
