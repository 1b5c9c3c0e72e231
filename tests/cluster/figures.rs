//! Measures how long creations take with webhooks, without them, and through a gateway, and the cost of many objects.
//! The figures are printed but not checked. `cargo task cluster figures` measures a release build, `cargo task cluster`
//! a debug build.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    cluster::TestCluster,
    many::{self, ScaleFigures},
    registration::Registration,
    rest::UserClient,
    scenarios::gateway::{WatchMemory, measure_gateways, memory_of_watches},
    scene::{GOOD_IMAGE, Scene, chain, core_rules, image_policy_stage, pod, sidecar_stage, validating_chain},
};

const TIMED_REQUESTS: usize = 300;
const WARM_UP: usize = 50;
const CONCURRENCY: usize = 8;

#[derive(Debug)]
pub(crate) struct Figures {
    rows: Vec<FigureRow>,
    watches: Vec<WatchMemory>,
    scale_figures: ScaleFigures,
}

#[derive(Debug)]
pub(crate) struct FigureRow {
    title: &'static str,
    /// The durations of creations that one client made one after another, sorted.
    latencies: Vec<Duration>,
    rate: f64,
}

/// Measures creations of Pods. They are dry runs, which do everything except write to etcd.
pub(crate) async fn measure(cluster: Arc<TestCluster>) -> Figures {
    let rules = || core_rules(&["CREATE"], &["pods"]);
    let chains = [
        chain("injection", rules(), json!([sidecar_stage("2.1")])),
        chain("both", rules(), json!([sidecar_stage("2.1"), image_policy_stage()])),
        validating_chain(chain("policy", rules(), json!([image_policy_stage()]))),
    ];
    let scene = Scene::start(cluster.clone(), &chains).await;
    let path = format!("/api/v1/namespaces/{}/pods", scene.namespace);
    let row = async |title| FigureRow::measure(title, &scene.rest, &path).await;
    let mutating = |path| Registration::mutating(path);
    let validating = Registration::validating("/validate/policy");
    let mut rows = vec![row("no webhook").await];
    scene.register(&mutating("/mutate/injection")).await;
    rows.push(row("a mutating webhook, one plugin").await);
    scene.register(&mutating("/mutate/both")).await;
    rows.push(row("a mutating webhook, two plugins").await);
    scene.register(&validating).await;
    rows.push(row("the same and a validating webhook").await);
    scene.unregister(&mutating("/mutate/both")).await;
    rows.push(row("a validating webhook, one plugin").await);
    scene.unregister(&validating).await;
    rows.extend(measure_gateways(&cluster).await);
    Figures {
        rows,
        watches: memory_of_watches(&cluster).await,
        scale_figures: many::measure(cluster).await,
    }
}

impl FigureRow {
    pub(crate) async fn measure(title: &'static str, rest: &UserClient, path: &str) -> Self {
        let path = format!("{path}?dryRun=All");
        let pod = pod("web", GOOD_IMAGE);
        let mut alone = Vec::with_capacity(TIMED_REQUESTS);
        for number in 0..WARM_UP + TIMED_REQUESTS {
            let begin = Instant::now();
            create(rest, &path, &pod).await;
            if number >= WARM_UP {
                alone.push(begin.elapsed());
            }
        }
        alone.sort_unstable();
        let begin = Instant::now();
        let mut creating = JoinSet::new();
        for _ in 0..CONCURRENCY {
            let (rest, path, pod) = (rest.clone(), path.clone(), pod.clone());
            creating.spawn(async move {
                for _ in 0..TIMED_REQUESTS / CONCURRENCY {
                    create(&rest, &path, &pod).await;
                }
            });
        }
        creating.join_all().await;
        let created = u32::try_from(TIMED_REQUESTS / CONCURRENCY * CONCURRENCY).unwrap();
        Self {
            title,
            latencies: alone,
            rate: f64::from(created) / begin.elapsed().as_secs_f64(),
        }
    }

    fn percentile(&self, percent: usize) -> f64 {
        let index = (self.latencies.len() * percent / 100).min(self.latencies.len() - 1);
        self.latencies[index].as_secs_f64() * 1000.0
    }
}

async fn create(rest: &UserClient, path: &str, pod: &Value) {
    let reply = rest.post(path, pod).await.unwrap();
    assert_eq!(reply.status, 201, "{}", reply.text());
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:36}{:>10}{:>10}{:>16}",
            "dry-run creation of a Pod",
            "p50",
            "p99",
            format!("{CONCURRENCY} at once")
        )?;
        for row in &self.rows {
            let (p50, p99) = (row.percentile(50), row.percentile(99));
            writeln!(f, "{:36}{p50:>7.2} ms{p99:>7.2} ms{:>14.0}/s", row.title, row.rate)?;
        }
        for watches in &self.watches {
            write!(f, "\n{watches}")?;
        }
        write!(f, "\n{}", self.scale_figures)
    }
}
