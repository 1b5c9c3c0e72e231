//! Measures how long well-behaved requests take during each attack: `cargo task hostile`. Tests check that attacks are
//! repelled; this program measures their effect on other clients.

mod attack;
mod client;
mod informational;
mod scene;

use std::{io, path::Path, process::ExitCode, time::Duration};

use admittance_net::workers::shorten_time_slice;
use admittance_tests::Error;
use attack::{ATTACKS, Attack};
use clap::Parser;
use client::Latency;
use scene::HostileScene;
use tokio::runtime::{Builder, Handle, Runtime};

/// Attack the program in every known way, one after another, and measure the requests of a well-behaved client during
/// each attack.
///
/// Exits with 1 if a request of the well-behaved client takes longer than allowed or fails, or if the program uses more
/// memory than allowed.
#[derive(Debug, Parser)]
#[command(name = "cargo task hostile --", version)]
struct Arguments {
    /// Run only the attacks whose names contain this text.
    name: Option<String>,
    /// The duration of each attack, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The number of attacking clients.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// The maximum ratio of the 99th percentiles with and without an attack.
    #[arg(long, default_value_t = 3.0)]
    ratio: f64,
    /// The maximum additional memory of the program and its children, in MiB.
    #[arg(long, default_value_t = 1024)]
    memory: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = runtimes()
        .map_err(Error::io("starting threads"))
        .and_then(|(runtime, attackers)| runtime.block_on(run(&arguments, attackers.handle())));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a runtime for the well-behaved client and its upstream server, and one for the attackers, whose thread runs
/// only while no other thread has work.
fn runtimes() -> io::Result<(Runtime, Runtime)> {
    let attackers = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .on_thread_start(run_only_when_idle)
        .build()?;
    interrupt_all_others();
    let well_behaved = Builder::new_multi_thread()
        .enable_all()
        .on_thread_start(interrupt_all_others)
        .build()?;
    Ok((well_behaved, attackers))
}

/// Lets the calling thread run only while no other thread has work. If the kernel refuses, nothing changes.
fn run_only_when_idle() {
    set_scheduler(libc::SCHED_IDLE, 0);
}

/// Lets the calling thread interrupt all other threads when it has work, if the kernel permits that.
fn interrupt_all_others() {
    if !set_scheduler(libc::SCHED_FIFO, 1) {
        shorten_time_slice();
    }
}

#[expect(unsafe_code, reason = "no safe interface to this system call exists")]
fn set_scheduler(policy: libc::c_int, sched_priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority };
    // The flag keeps threads and processes that the calling thread starts from inheriting the scheduling policy.
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel only reads the parameters; 0 means the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

async fn run(arguments: &Arguments, attackers: &Handle) -> Result<bool, Error> {
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}  outcome",
        "attack", "quiet p50", "quiet p99", "p50", "p99", "ratio", "memory"
    );
    let mut is_good = true;
    let is_chosen = |attack: &&Attack| match &arguments.name {
        Some(name) => attack.name.contains(name.as_str()),
        None => true,
    };
    let store = tempfile::tempdir().map_err(Error::io("a directory for the store"))?;
    for attack in ATTACKS.iter().filter(is_chosen) {
        is_good &= run_attack(attack, arguments, store.path(), attackers).await?;
    }
    Ok(is_good)
}

async fn run_attack(attack: &Attack, arguments: &Arguments, store: &Path, attackers: &Handle) -> Result<bool, Error> {
    let mut scene = HostileScene::start(attack, store, attackers).await?;
    let time = Duration::from_secs(arguments.seconds);
    scene.prepare(attack).await?;
    scene.warm_up().await?;
    let quiet = scene.measure(time / 2).await?;
    let before = scene.memory_bytes()?;
    let limit = before + (arguments.memory << 20);
    let (attacked, memory, outcome) = scene.measure_during(attack, arguments.clients, time, limit).await?;
    let Some(attacked) = attacked else {
        println!(
            "{:<26} the program used {} MiB, and was killed",
            attack.name,
            memory >> 20
        );
        return Ok(false);
    };
    let ratio = attacked.percentile(99).as_secs_f64() / quiet.percentile(99).as_secs_f64();
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>9} {ratio:>6.1} {:>7}M  {outcome}",
        attack.name,
        milliseconds(&quiet, 50),
        milliseconds(&quiet, 99),
        milliseconds(&attacked, 50),
        milliseconds(&attacked, 99),
        memory.saturating_sub(before) >> 20,
    );
    for failure in attacked.failures.iter().take(3) {
        println!("  ! a well-behaved request failed: {failure}");
    }
    Ok(ratio <= arguments.ratio && memory <= limit && attacked.failures.is_empty())
}

fn milliseconds(latency: &Latency, percent: usize) -> String {
    format!("{:.2}ms", latency.percentile(percent).as_secs_f64() * 1e3)
}
