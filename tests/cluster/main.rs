//! A real Kubernetes API server, and what `kubectl` sees of Admittance behind it.
//!
//! `cargo task cluster` makes what this needs (etcd, kube-apiserver and kubectl, once, under
//! `target/kubernetes`), compiles the driver and the plugins, and starts this program. It brings the API
//! server up on ports that are free, plays its scenarios one after another, and takes everything down.
//!
//! - `cargo task cluster` plays all of them, and at the end prints how long creations take.
//! - `cargo task cluster NAME...` plays those whose names contain one of the words.
//! - `cargo task cluster figures` only prints those figures.
//! - `cargo task cluster --list` tells their names.
//! - `cargo task cluster --stay` plays none, and lets you use the API server until Ctrl-C.
//!
//! It is no part of `cargo task test`, which only compiles it: making the API server needs Debian 12 and
//! the network. The API server is Kubernetes 1.20, so it knows `admissionregistration.k8s.io/v1` and both
//! versions of AdmissionReview, and neither match conditions (1.27) nor admission policies (1.26); see
//! [`scenarios`].

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a scenario says what is wrong by panicking"
)]

mod authority;
mod cluster;
mod figures;
mod kubectl;
mod process;
mod registration;
mod rest;
mod scenarios;
mod scene;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use admittance_tests::Error;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cluster::{Cluster, User},
    scenarios::{SCENARIOS, Scenario},
};

/// Bring up a Kubernetes API server, and try the webhook server with it and kubectl.
#[derive(Debug, Parser)]
#[command(name = "cargo task cluster", bin_name = "cargo task cluster")]
struct Arguments {
    /// Play only the scenarios whose names contain one of these words; `figures` are the times at the end.
    names: Vec<String>,
    /// List the scenarios, and play none.
    #[arg(long)]
    list: bool,
    /// Play no scenario, and keep the API server until Ctrl-C.
    #[arg(long, conflicts_with_all = ["names", "list"])]
    stay: bool,
}

impl Arguments {
    fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let is_chosen = |scenario: &&Scenario| {
            self.names.is_empty()
                || self
                    .names
                    .iter()
                    .any(|word| scenario.name.contains(word.as_str()))
        };
        SCENARIOS.iter().filter(is_chosen)
    }

    /// Whether creations are timed at the end.
    fn measures(&self) -> bool {
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
    // Whichever branch is left is dropped, and its programs and files with it.
    let result = tokio::select! {
        result = run(&arguments) => result,
        result = interrupted() => result.map(|()| ExitCode::FAILURE),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    if arguments.scenarios().next().is_none() && !arguments.measures() {
        return Err(Error::Invalid(
            "no scenario has such a name; `cargo task cluster --list` lists them".to_owned(),
        ));
    }
    let begin = Instant::now();
    let mut cluster = Arc::new(Cluster::start().await?);
    println!("The API server is ready after {:.1?}.", begin.elapsed());
    if arguments.stay {
        stay(&cluster).await;
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for scenario in arguments.scenarios() {
        print!("scenario {} ... ", scenario.name);
        // A screen that is gone is no reason to stop.
        let _ = io::stdout().flush();
        let begin = Instant::now();
        // In a task of its own, which takes a panic with it.
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
        cluster.remove_webhooks().await?;
    }
    if arguments.measures() {
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
        println!(
            "The logs of the API server are in {}",
            cluster.keep_files().display()
        );
    }
    Ok(ExitCode::FAILURE)
}

/// Let somebody use the API server.
async fn stay(cluster: &Cluster) {
    println!("Use it from the top of the repository; Ctrl-C ends it:\n");
    println!(
        "  target/kubernetes/bin/kubectl --kubeconfig {} get namespaces\n",
        cluster.kubeconfig(User::Admin).display()
    );
    std::future::pending().await
}

async fn interrupted() -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::io("a signal"))?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.map_err(Error::io("a signal")),
        _ = terminate.recv() => Ok(()),
    }
}
