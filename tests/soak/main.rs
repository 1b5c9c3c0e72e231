//! Measures hot reloading over many rounds: `cargo task soak`. The tests run the same code with fewer rounds.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use admittance_tests::{Error, KillResult, Kills, SwapResult, Swaps, Versions};
use clap::Parser;

/// Change modules under load, and kill the program while definitions are applied to it, many times.
#[derive(Debug, Parser)]
#[command(name = "cargo task soak --", version)]
struct Arguments {
    /// The number of module swaps in a chain of one stage.
    #[arg(long, default_value_t = 1000)]
    swaps: u32,
    /// The number of module swaps in a chain of ten stages.
    #[arg(long, default_value_t = 100)]
    chain_swaps: u32,
    /// The number of kills.
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// The number of connections that send requests.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// The seed for the random moments [default: random].
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<bool, Error> {
    println!("modules of {} kB", Versions::find()?.size() / 1000);
    let mut is_good = true;
    for (rounds, stages) in [(arguments.swaps, 1), (arguments.chain_swaps, 10)] {
        is_good &= swap(Swaps {
            rounds,
            stages,
            connections: arguments.connections,
        })
        .await?;
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    is_good &= kill(Kills {
        rounds: arguments.kills,
        seed,
    })
    .await?;
    Ok(is_good)
}

const PROGRESS: Duration = Duration::from_secs(10);

async fn swap(swaps: Swaps) -> Result<bool, Error> {
    let Swaps {
        rounds,
        stages,
        connections,
    } = swaps;
    if rounds == 0 {
        return Ok(true);
    }
    println!("\n{rounds} swaps of a chain of {stages}, under the load of {connections} connections");
    let mut last = Instant::now();
    let swapped = swaps
        .run(|round, load_counts| {
            if last.elapsed() >= PROGRESS {
                last = Instant::now();
                println!(
                    "  {round} swaps, {} requests, {} failed",
                    load_counts.requests, load_counts.failures
                );
            }
        })
        .await?;
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    row("requests", swapped.load_counts.requests);
    row("failed, mixed or old", swapped.load_counts.failures);
    for (name, percent) in [("p50", 50), ("p99", 99), ("most", 100)] {
        let name = format!("from the rename to the first response, {name}");
        row(&name, format!("{:.1?}", swapped.latency(percent)));
    }
    row("memory before", megabytes(swapped.memory_before));
    row("memory, most after a swap", megabytes(swapped.memory_peak));
    row("memory after", megabytes(swapped.memory_after));
    let SwapResult {
        load_counts, status, ..
    } = swapped;
    for (name, field) in [
        ("tables in memory", "tables"),
        ("plugins in memory", "plugins"),
        ("revision", "revision"),
    ] {
        row(name, status.get(field).unwrap_or_default());
    }
    for problem in &load_counts.problems {
        println!("  ! {problem}");
    }
    Ok(load_counts.failures == 0)
}

async fn kill(kills: Kills) -> Result<bool, Error> {
    if kills.rounds == 0 {
        return Ok(true);
    }
    println!("\n{} kills, with the seed {}", kills.rounds, kills.seed);
    let KillResult {
        new_module_kills: new,
        known_module_kills: known,
        start_kills: starting,
        finished_kills: finished,
        acknowledged_kills: acknowledged,
        longest_start,
        problems,
    } = kills
        .run(|round, description| println!("  {round}: {description}"))
        .await?;
    row("while new modules were fetched and compiled", new);
    row("while known modules were applied", known);
    row("while it started", starting);
    row("after it had reported success", acknowledged);
    row("done, but not reported yet", finished);
    row("longest start", format!("{longest_start:.1?}"));
    row("incomplete, or never applied", problems.len());
    for problem in &problems {
        println!("  ! {problem}");
    }
    Ok(problems.is_empty())
}

fn row(name: &str, value: impl std::fmt::Display) {
    println!("  {name:<48} {:>12}", value.to_string());
}
