//! Tests Admittance behind a real Kubernetes API server, with `kubectl`.
//!
//! `cargo task cluster` builds the dependencies (etcd, kube-apiserver and kubectl, once, under
//! `target/kubernetes`), compiles the driver and the plugins, and starts this program. It starts the API
//! server on free ports, runs its scenarios one after another, and stops everything.
//!
//! - `cargo task cluster` runs all scenarios, and finally measures how long creations take.
//! - `cargo task cluster NAME...` runs the scenarios whose names contain one of the words.
//! - `cargo task cluster figures` runs no scenario, and only makes the final measurements.
//! - `cargo task cluster replicas --changes 500` changes a chain 500 times while three replicas serve it.
//! - `cargo task cluster gateway --watch 600` opens watches for ten minutes, like a run of all scenarios.
//! - `cargo task cluster --list` lists the names of the scenarios.
//! - `cargo task cluster --stay` runs no scenario, and keeps the API server running until Ctrl-C.
//!
//! If the user is root, the task runs this program in a network namespace of its own, except with `--stay`.
//!
//! This program is not part of `cargo task test`, which only compiles it: building the API server requires Debian 12
//! and the network. The API server is Kubernetes 1.20, so it supports `admissionregistration.k8s.io/v1` and both
//! versions of AdmissionReview, but neither match conditions (1.27) nor admission policies (1.26); see [`scenarios`].

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a scenario reports failures by panicking"
)]

mod authority;
mod cluster;
#[path = "../../host/bcs/tests/zookeeper/ensemble.rs"]
mod ensemble;
mod figures;
mod kubectl;
mod kubelet;
mod many;
mod mariadb;
mod process;
mod registration;
mod rest;
mod scenarios;
mod scene;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_tests::Error;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cluster::{ClusterUser, TestCluster},
    scenarios::{SCENARIOS, Scenario},
};

/// Start a Kubernetes API server, and test the webhook server and the gateway with it and kubectl.
#[derive(Debug, Parser)]
#[command(name = "cargo task cluster", bin_name = "cargo task cluster")]
struct Arguments {
    /// Run only the scenarios whose names contain one of these words; `figures` are the final measurements.
    names: Vec<String>,
    /// List the scenarios without running them.
    #[arg(long)]
    list: bool,
    /// For how many seconds the watches of `gateway::watches_stay_open` stay open [default: 600 if all scenarios run,
    /// and 10 otherwise].
    #[arg(long, value_name = "SECONDS")]
    watch: Option<u64>,
    /// The number of changes in `replicas::changes_go_live_everywhere_at_once`.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    changes: u32,
    /// For how many seconds the API server is down in `replicas::changes_go_live_everywhere_at_once` [default: 60 if
    /// all scenarios run, and 5 otherwise].
    #[arg(long, value_name = "SECONDS")]
    outage: Option<u64>,
    /// Run no scenario, and keep the API server running until Ctrl-C.
    #[arg(long, conflicts_with_all = ["names", "list"])]
    stay: bool,
}

impl Arguments {
    fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let is_chosen = |scenario: &&Scenario| {
            self.names.is_empty() || self.names.iter().any(|word| scenario.name.contains(word.as_str()))
        };
        SCENARIOS.iter().filter(is_chosen)
    }

    fn longest_watch(&self) -> Duration {
        let unless_chosen = if self.names.is_empty() { 600 } else { 10 };
        Duration::from_secs(self.watch.unwrap_or(unless_chosen))
    }

    fn outage(&self) -> Duration {
        let unless_chosen = if self.names.is_empty() { 60 } else { 5 };
        Duration::from_secs(self.outage.unwrap_or(unless_chosen))
    }

    fn measures_figures(&self) -> bool {
        self.names.is_empty() || self.names.iter().any(|word| word == "figures")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for scenario in arguments.scenarios() {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    // `run` completes when all scenarios have run, and `interrupted` completes at Ctrl-C. After either of them, `run`
    // is dropped, which stops the processes and removes their files.
    let result = tokio::select! {
        result = run(&arguments) => result,
        result = wait_for_interrupt() => result.map(|()| ExitCode::FAILURE),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    if arguments.scenarios().next().is_none() && !arguments.measures_figures() {
        return Err(Error::Invalid(
            "no scenario matches; `cargo task cluster --list` lists them".to_owned(),
        ));
    }
    let begin = Instant::now();
    let cluster = TestCluster::start(arguments.longest_watch(), arguments.changes, arguments.outage());
    let mut cluster = Arc::new(cluster.await?);
    println!("The API server is ready after {:.1?}.", begin.elapsed());
    if arguments.stay {
        stay_until_interrupted(&cluster).await;
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for scenario in arguments.scenarios() {
        print!("scenario {} ... ", scenario.name);
        // Flushing fails if standard output is closed. The scenarios continue nevertheless.
        let _ = io::stdout().flush();
        let begin = Instant::now();
        // Each scenario runs in a task of its own, so that its panic does not end the program.
        match tokio::spawn((scenario.play)(Arc::clone(&cluster))).await {
            Ok(()) => {
                println!("ok ({:.1?})", begin.elapsed());
                passed += 1;
            }
            Err(_) => {
                println!("FAILED");
                failed.push(scenario.name);
            }
        }
        cluster.clean().await?;
    }
    if arguments.measures_figures() {
        println!("\n{}", figures::measure(Arc::clone(&cluster)).await);
    }
    println!("\n{passed} passed, {} failed", failed.len());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for name in failed {
        println!("  {name}");
    }
    if let Some(cluster) = Arc::get_mut(&mut cluster) {
        println!("The logs of the API server are in {}", cluster.keep_files().display());
    }
    Ok(ExitCode::FAILURE)
}

async fn stay_until_interrupted(cluster: &TestCluster) {
    println!("Use it from the top of the repository; Ctrl-C ends it:\n");
    println!(
        "  target/kubernetes/bin/kubectl --kubeconfig {} get namespaces\n",
        cluster.kubeconfig(ClusterUser::Admin).display()
    );
    std::future::pending().await
}

async fn wait_for_interrupt() -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::io("a signal"))?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.map_err(Error::io("a signal")),
        _ = terminate.recv() => Ok(()),
    }
}
