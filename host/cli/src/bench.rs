//! `admittance bench`: measures hooks in the sandbox, and compares two versions.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance::{
    Table,
    admission::{Decision, Refusal, Request},
    sandbox::{CallCost, Meter},
};
use admittance_driver::LogFormat;
use bytesize::ByteSize;
use clap::Args;
use serde::Serialize;

use crate::{
    files, human, logging,
    output::{BAD, DIM, GOOD, Output},
    request_file::LocatedRequest,
    run::{HookArguments, RequestArguments},
    table::{Cell, Table as TextTable},
};

/// Measure a plugin or a chain in the sandbox, without a server.
///
/// Requests pass the hooks one after the other, on one core; each call of a plugin has its own instance, as under
/// `serve`. The time of plugins is shown twice: what it takes to create and end their instances, and what they compute.
/// MEMORY is what they write, in pages, each of which a call has to copy first. With --compare, rounds of the two versions alternate, and the verdict says whether the difference is more
/// than noise.
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
    /// Another version to compare with: a plugin that gets the same settings and grants, or another chain.
    #[arg(long, value_name = "CHAIN|PLUGIN")]
    compare: Option<PathBuf>,
    /// The time for which each version is measured: 5s, 1m.
    #[arg(long = "for", value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show log lines of this level and above, including those of plugins.
    #[arg(long, value_name = "LEVEL", default_value = "error", env = "ADMITTANCE_LOG")]
    log: String,
}

/// The duration of a round: long enough for thousands of calls, and short enough that both versions meet the same
/// disturbances.
const ROUND: Duration = Duration::from_millis(50);

/// The fewest rounds of each version; with fewer, a comparison says nothing.
const LEAST_ROUNDS: u32 = 12;

/// Two loads of one module in a process differ by up to this share, depending on where their memory lies. A smaller
/// difference says nothing about versions.
const PLACEMENT: f64 = 0.02;

/// The requests that measure memory, of which the median counts, after as many that only warm up.
const MEMORY_REQUESTS: usize = 5;

/// A version of the hooks, with its measurements so far.
struct BenchedVersion {
    hooks: String,
    table: Arc<Table>,
    /// Measures the calls of the table's plugins.
    meter: Arc<Meter>,
    times: Vec<Duration>,
    /// The costs of the plugins' calls.
    costs: Vec<CallCost>,
    /// The bytes that the plugins write for a request.
    touched: Option<u64>,
    /// The median of each round.
    medians: Vec<Duration>,
}

/// The measurements of one version. Its JSON form is part of the program's interface: fields are only added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionFigures {
    hooks: String,
    requests: usize,
    calls_per_second: f64,
    p50_microseconds: f64,
    p99_microseconds: f64,
    #[serde(flatten)]
    plugins: Option<PluginFigures>,
}

/// The medians over the requests for which plugins were called.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginFigures {
    p50_instance_microseconds: f64,
    p50_guest_microseconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    touched_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BenchReport {
    measured: Vec<VersionFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<VersionComparison>,
}

/// The ratio of the second version's time to the first version's: 0.9 is 10% less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionComparison {
    ratio: f64,
    /// The bounds of the ratio with a confidence of 99%.
    least: f64,
    most: f64,
    verdict: ComparisonVerdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum ComparisonVerdict {
    Faster,
    Slower,
    /// No difference beyond noise and [placement](PLACEMENT).
    Same,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let config = arguments.hooks.config()?;
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
            let meter = Arc::new(Meter::default());
            let builder = arguments.hooks.builder(hooks, config.as_ref(), Some(&meter))?;
            let table = builder.build().await?.table();
            for found in &requests {
                check(&table, found)
                    .await
                    .map_err(|why| format!("{}: {why}", hooks.display()))?;
            }
            let of_memory = Arc::new(Meter::of_memory());
            let builder = arguments
                .hooks
                .builder(hooks, config.as_ref(), Some(&of_memory))?;
            let touched = touched(&builder.build().await?.table(), &of_memory, &requests).await;
            versions.push(BenchedVersion {
                hooks: hooks.display().to_string(),
                table,
                meter,
                times: Vec::new(),
                costs: Vec::new(),
                touched,
                medians: Vec::new(),
            });
        }
        let requests: Vec<_> = requests.into_iter().map(|found| found.request).collect();
        measure(&mut versions, &requests, arguments.time).await;
        Ok::<_, crate::Error>(BenchReport::new(versions))
    })??;
    arguments.output.print(&report, BenchReport::text)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a request that fails or that no chain matches: its time would not measure the hooks.
async fn check(table: &Table, found: &LocatedRequest) -> Result<(), String> {
    let place = &found.place;
    let outcome = table.admit(found.request.clone()).await;
    if outcome.trace.is_empty() {
        return Err(format!(
            "no chain is for the request in {place}; `admittance run` says why"
        ));
    }
    match outcome.decision {
        Decision::Refused(refusal @ Refusal::Failed { .. }) => Err(format!("{place}: {refusal}")),
        _ => Ok(()),
    }
}

/// Returns the median of the bytes that plugins write for a request; `None` if no plugin is called, or the kernel does
/// not report it.
async fn touched(table: &Table, meter: &Meter, requests: &[LocatedRequest]) -> Option<u64> {
    let mut touched = Vec::new();
    for (number, found) in requests.iter().cycle().take(2 * MEMORY_REQUESTS).enumerate() {
        table.admit(found.request.clone()).await;
        let cost = meter.take();
        if number >= MEMORY_REQUESTS {
            touched.extend(cost.and_then(|cost| cost.touched));
        }
    }
    touched.sort_unstable();
    quantile(&touched, 0.5)
}

/// Measures every version in each round, in alternating order. The first rounds only warm up.
async fn measure(versions: &mut [BenchedVersion], requests: &[Request], time: Duration) {
    const WARM_UP: u32 = 4;
    let rounds = u32::try_from(time.as_nanos() / ROUND.as_nanos())
        .unwrap_or(u32::MAX)
        .max(LEAST_ROUNDS);
    for round in 0..WARM_UP.saturating_add(rounds) {
        for version in versions.iter_mut() {
            let (mut times, mut costs) = turn(version, requests).await;
            if round >= WARM_UP {
                times.sort_unstable();
                version.medians.extend(quantile(&times, 0.5));
                version.times.append(&mut times);
                version.costs.append(&mut costs);
            }
        }
        versions.reverse();
    }
    // Restores the order of the arguments.
    if WARM_UP.saturating_add(rounds) % 2 == 1 {
        versions.reverse();
    }
}

/// Runs one round, and returns the times of its requests and the costs of their plugins.
async fn turn(version: &BenchedVersion, requests: &[Request]) -> (Vec<Duration>, Vec<CallCost>) {
    let started = Instant::now();
    let (mut times, mut costs) = (Vec::new(), Vec::new());
    for request in requests.iter().cycle() {
        let request = request.clone();
        let sent = Instant::now();
        let outcome = version.table.admit(request).await;
        times.push(sent.elapsed());
        drop(outcome);
        costs.extend(version.meter.take());
        if started.elapsed() >= ROUND {
            break;
        }
    }
    (times, costs)
}

/// Returns the value below which this share of the sorted values lies.
fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

impl From<BenchedVersion> for VersionFigures {
    fn from(version: BenchedVersion) -> Self {
        let mut times = version.times;
        times.sort_unstable();
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let median = |of: fn(&CallCost) -> Duration| {
            let mut times: Vec<_> = version.costs.iter().map(of).collect();
            times.sort_unstable();
            quantile(&times, 0.5).map(micros)
        };
        let plugins = median(|cost| cost.instance)
            .zip(median(|cost| cost.guest))
            .map(|(instance, guest)| PluginFigures {
                p50_instance_microseconds: instance,
                p50_guest_microseconds: guest,
                touched_bytes: version.touched,
            });
        let at = |share| quantile(&times, share).map(micros).unwrap_or_default();
        let total: Duration = times.iter().sum();
        Self {
            hooks: version.hooks,
            requests: times.len(),
            calls_per_second: (times.len() as f64 / total.as_secs_f64()).round(),
            p50_microseconds: at(0.5),
            p99_microseconds: at(0.99),
            plugins,
        }
    }
}

impl VersionComparison {
    /// Compares the medians of both versions round by round. The bounds are a confidence interval of the median ratio:
    /// the number of ratios below the true median has a binomial distribution, as the number of heads in coin tosses
    /// has.
    fn of(first: &[Duration], second: &[Duration]) -> Option<Self> {
        let ratios = first.iter().zip(second);
        let ratios = ratios.map(|(first, second)| second.as_secs_f64() / first.as_secs_f64());
        let mut ratios: Vec<_> = ratios.filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let count = ratios.len() as f64;
        // 2.576 standard deviations of a binomial distribution with probability 1/2 are its 99% interval.
        let below = (count / 2.0 - 2.576 * count.sqrt() / 2.0).floor();
        let index = below.max(0.0) as usize;
        let least = *ratios.get(index)?;
        let most = *ratios.get(ratios.len().checked_sub(index + 1)?)?;
        Some(Self {
            ratio: quantile(&ratios, 0.5)?,
            least,
            most,
            verdict: match (least, most) {
                (_, most) if most < 1.0 - PLACEMENT => ComparisonVerdict::Faster,
                (least, _) if least > 1.0 + PLACEMENT => ComparisonVerdict::Slower,
                _ => ComparisonVerdict::Same,
            },
        })
    }
}

impl BenchReport {
    fn new(versions: Vec<BenchedVersion>) -> Self {
        let comparison = match versions.as_slice() {
            [first, second] => VersionComparison::of(&first.medians, &second.medians),
            _ => None,
        };
        Self {
            measured: versions.into_iter().map(VersionFigures::from).collect(),
            comparison,
        }
    }

    fn text(&self) -> String {
        let headings = [
            "HOOKS",
            "REQUESTS",
            "PER SECOND",
            "P50",
            "P99",
            "INSTANCE",
            "GUEST",
            "MEMORY",
        ];
        let mut table = TextTable::new(headings);
        let micros = |micros: f64| human::duration(Duration::from_secs_f64(micros / 1e6));
        for measured in &self.measured {
            let plugins = measured.plugins.as_ref();
            let of_plugins = |value: &dyn Fn(&PluginFigures) -> Option<String>| {
                plugins.and_then(value).map(Cell::number).unwrap_or_default()
            };
            table.row([
                Cell::text(&measured.hooks),
                Cell::number(measured.requests),
                Cell::number(measured.calls_per_second),
                Cell::number(micros(measured.p50_microseconds)),
                Cell::number(micros(measured.p99_microseconds)),
                of_plugins(&|plugins| Some(micros(plugins.p50_instance_microseconds))),
                of_plugins(&|plugins| Some(micros(plugins.p50_guest_microseconds))),
                of_plugins(&|plugins| Some(ByteSize(plugins.touched_bytes?).to_string())),
            ]);
        }
        let mut text = table.text();
        if let (Some(comparison), [_, second]) = (&self.comparison, self.measured.as_slice()) {
            let percent = |ratio: f64| format!("{:+.1}%", (ratio - 1.0) * 100.0);
            let (style, verdict) = match comparison.verdict {
                ComparisonVerdict::Faster => (GOOD, "takes less time"),
                ComparisonVerdict::Slower => (BAD, "takes more time"),
                ComparisonVerdict::Same => (DIM, "the difference is not more than noise"),
            };
            text += &format!(
                "\n{}: {style}{verdict}{style:#}: {} ({} to {} with 99%)\n",
                second.hooks,
                percent(comparison.ratio),
                percent(comparison.least),
                percent(comparison.most)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_if_it_is_more_than_noise() {
        let rounds = |times: &[u64]| -> Vec<Duration> {
            times
                .iter()
                .cycle()
                .take(40)
                .map(|time| Duration::from_micros(*time))
                .collect()
        };
        for (first, second, verdict) in [
            (&[100][..], &[100][..], ComparisonVerdict::Same),
            (&[100], &[90], ComparisonVerdict::Faster),
            (&[100], &[110], ComparisonVerdict::Slower),
            (&[1000], &[1015], ComparisonVerdict::Same),
            (&[1000], &[985], ComparisonVerdict::Same),
            // Noise of a tenth hides a hundredth, but not a fifth.
            (
                &[95, 105, 100, 110, 90],
                &[101, 96, 111, 91, 106],
                ComparisonVerdict::Same,
            ),
            (
                &[95, 105, 100, 110, 90],
                &[120, 125, 119, 130, 118],
                ComparisonVerdict::Slower,
            ),
            // A few disturbed rounds do not matter.
            (&[100], &[90, 90, 90, 90, 500], ComparisonVerdict::Faster),
        ] {
            let comparison = VersionComparison::of(&rounds(first), &rounds(second)).unwrap();
            assert_eq!(
                comparison.verdict, verdict,
                "{first:?} {second:?}: {comparison:?}"
            );
            assert!(comparison.least <= comparison.ratio && comparison.ratio <= comparison.most);
        }
        assert_eq!(VersionComparison::of(&[], &[]), None);
    }

    #[test]
    fn quantiles_are_measured_values() {
        let values: Vec<_> = (0..=100).collect();
        assert_eq!(quantile(&values, 0.5), Some(50));
        assert_eq!(quantile(&values, 0.99), Some(99));
        assert_eq!(quantile::<u8>(&[], 0.5), None);
    }
}
