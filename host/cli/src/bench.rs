//! `admittance bench`: measures hooks in the sandbox, and compares two versions.

mod report;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance::{
    Table,
    admission::{Decision, RefusalCause, Request},
    sandbox::{CallCost, CallMeter},
};
use admittance_driver::LogFormat;
use clap::Args;

use self::report::{BenchReport, quantile};
use crate::{
    files, logging, modules,
    output::Output,
    request_file::LocatedRequest,
    run::{HookArguments, RequestArguments},
};

/// Measure a plugin or a chain in the sandbox, without a server.
///
/// Requests go through the hooks one after the other, on one core. Each call of a plugin has its own instance, as under
/// `serve`. INSTANCE is the time for creating and ending the instances of plugins, GUEST the time in which the plugins
/// compute, and MEMORY the size of the memory pages that they write, because each written page is copied. With
/// --compare, the two versions are measured in turns, and the verdict says whether the difference is more than noise.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance bench images.wasm pod.yaml --settings '{\"refuseLatest\": true}'
  admittance bench chains/ objects/ --for 30s
  admittance bench images.wasm pod.yaml --compare images-2.wasm --output json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    hooks: HookArguments,
    #[command(flatten)]
    requests: RequestArguments,
    /// A second version to compare with the first: a plugin that gets the same settings and grants, or another chain.
    #[arg(long, value_name = "CHAIN|PLUGIN", value_parser = modules::hooks)]
    compare: Option<PathBuf>,
    /// The time for which each version is measured, such as 5s or 1m.
    #[arg(long = "for", value_name = "DURATION", default_value = "5s", value_parser = crate::arguments::duration)]
    time: Duration,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show log lines of this level and above, including the lines that plugins log.
    #[arg(long, value_name = "LEVEL", default_value = "error", env = "ADMITTANCE_LOG")]
    log: String,
}

/// The duration of a round, in which each version is measured once.
const ROUND_DURATION: Duration = Duration::from_millis(50);

const MIN_ROUND_COUNT: u32 = 12;

/// The number of requests for which the written memory is measured.
const MEMORY_REQUESTS: usize = 5;

struct BenchedVersion {
    hooks: String,
    table: Arc<Table>,
    meter: Arc<CallMeter>,
    request_times: Vec<Duration>,
    costs: Vec<CallCost>,
    /// The number of bytes of memory that the plugins write during a request. `None` if it could not be measured.
    touched_byte_count: Option<u64>,
    round_medians: Vec<Duration>,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let config = arguments.hooks.read_config(&arguments.requests)?;
    let requests = arguments.requests.read(config.as_ref())?;
    let first = &arguments.hooks.hooks;
    if let Some(other) = arguments
        .compare
        .as_deref()
        .filter(|other| files::is_module(other) != files::is_module(first))
    {
        let error = format!(
            "--compare {}: compare a plugin with a plugin, or a chain with a chain",
            other.display()
        );
        return Err(error.into());
    }
    let report = crate::block_on(async {
        let mut versions = Vec::new();
        for hooks in [Some(first), arguments.compare.as_ref()].into_iter().flatten() {
            let meter = Arc::new(CallMeter::default());
            let builder = arguments.hooks.host_builder(hooks, config.as_ref(), Some(&meter))?;
            let table = builder.build().await?.table();
            for located_request in &requests {
                check_request(&table, located_request)
                    .await
                    .map_err(|why| format!("{}: {why}", hooks.display()))?;
            }
            let memory_meter = Arc::new(CallMeter::with_memory_measurement());
            let builder = arguments
                .hooks
                .host_builder(hooks, config.as_ref(), Some(&memory_meter))?;
            let touched_byte_count = touched_bytes(&builder.build().await?.table(), &memory_meter, &requests).await;
            versions.push(BenchedVersion {
                hooks: hooks.display().to_string(),
                table,
                meter,
                request_times: Vec::new(),
                costs: Vec::new(),
                touched_byte_count,
                round_medians: Vec::new(),
            });
        }
        let requests: Vec<_> = requests.into_iter().map(|located| located.request).collect();
        measure(&mut versions, &requests, arguments.time).await;
        Ok::<_, crate::Error>(BenchReport::new(versions))
    })??;
    arguments.output.print(&report, BenchReport::text)?;
    Ok(ExitCode::SUCCESS)
}

async fn check_request(table: &Table, located_request: &LocatedRequest) -> Result<(), String> {
    let location = &located_request.location;
    let outcome = table.admit(located_request.request.clone()).await;
    if outcome.trace.is_empty() {
        return Err(format!(
            "no chain is for the request in {location}; `admittance run` says why"
        ));
    }
    match outcome.decision {
        Decision::Refused(refusal) if matches!(refusal.cause, RefusalCause::Failed(_)) => {
            Err(format!("{location}: {refusal}"))
        }
        _ => Ok(()),
    }
}

/// Returns the median number of bytes that plugins write per request. `None` if it cannot be measured.
async fn touched_bytes(table: &Table, meter: &CallMeter, requests: &[LocatedRequest]) -> Option<u64> {
    let mut byte_counts = Vec::new();
    for (number, located_request) in requests.iter().cycle().take(2 * MEMORY_REQUESTS).enumerate() {
        table.admit(located_request.request.clone()).await;
        let cost = meter.take();
        if number >= MEMORY_REQUESTS {
            byte_counts.extend(cost.and_then(|cost| cost.touched));
        }
    }
    byte_counts.sort_unstable();
    quantile(&byte_counts, 0.5)
}

/// Measures all versions in each round, in alternating order. The first rounds warm up the machine.
async fn measure(versions: &mut [BenchedVersion], requests: &[Request], time: Duration) {
    const WARM_UP: u32 = 4;
    let rounds = u32::try_from(time.as_nanos() / ROUND_DURATION.as_nanos())
        .unwrap_or(u32::MAX)
        .max(MIN_ROUND_COUNT);
    for round in 0..WARM_UP.saturating_add(rounds) {
        for version in versions.iter_mut() {
            let (mut times, mut costs) = run_round(version, requests).await;
            if round >= WARM_UP {
                times.sort_unstable();
                version.round_medians.extend(quantile(&times, 0.5));
                version.request_times.append(&mut times);
                version.costs.append(&mut costs);
            }
        }
        versions.reverse();
    }
    // Each round reverses the versions. After an odd number of rounds, one more reversal restores the original order.
    if WARM_UP.saturating_add(rounds) % 2 == 1 {
        versions.reverse();
    }
}

async fn run_round(version: &BenchedVersion, requests: &[Request]) -> (Vec<Duration>, Vec<CallCost>) {
    let started = Instant::now();
    let (mut times, mut costs) = (Vec::new(), Vec::new());
    for request in requests.iter().cycle() {
        let request = request.clone();
        let call_start = Instant::now();
        let outcome = version.table.admit(request).await;
        times.push(call_start.elapsed());
        drop(outcome);
        costs.extend(version.meter.take());
        if started.elapsed() >= ROUND_DURATION {
            break;
        }
    }
    (times, costs)
}
