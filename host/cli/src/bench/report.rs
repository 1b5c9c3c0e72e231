//! Summarizes the measurements of a benchmark, and compares two versions.

use std::time::Duration;

use admittance::sandbox::CallCost;
use bytesize::ByteSize;
use serde::Serialize;

use super::BenchedVersion;
use crate::{
    human,
    output::{BAD, DIM, GOOD},
    table::{TableCell, TextTable},
};

/// Two copies of one module can differ in speed by this ratio, because they lie at different addresses in memory.
const PLACEMENT_NOISE: f64 = 0.02;

/// The measurements of one version. Scripts depend on the JSON form, so fields may only be added.
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
pub(super) struct BenchReport {
    measured: Vec<VersionFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<VersionComparison>,
}

/// The time of the second version divided by the time of the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionComparison {
    ratio: f64,
    /// `ratio` is measured, so it is inexact. With a confidence of 99 %, the true ratio is between `least` and `most`.
    least: f64,
    most: f64,
    verdict: ComparisonVerdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum ComparisonVerdict {
    Faster,
    Slower,
    /// The difference between the versions is within the noise, or within [`PLACEMENT_NOISE`].
    Same,
}

/// Returns the quantile of sorted values; `share` is between 0 and 1.
pub(super) fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let last_index = sorted.len().checked_sub(1)?;
    sorted.get((last_index as f64 * share).round() as usize).copied()
}

impl From<BenchedVersion> for VersionFigures {
    fn from(version: BenchedVersion) -> Self {
        let mut times = version.request_times;
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
                touched_bytes: version.touched_byte_count,
            });
        let quantile_micros = |share| quantile(&times, share).map(micros).unwrap_or_default();
        let total: Duration = times.iter().sum();
        Self {
            hooks: version.hooks,
            requests: times.len(),
            calls_per_second: (times.len() as f64 / total.as_secs_f64()).round(),
            p50_microseconds: quantile_micros(0.5),
            p99_microseconds: quantile_micros(0.99),
            plugins,
        }
    }
}

impl VersionComparison {
    /// Divides the second version's median by the first version's median, for each round. The result is the median of
    /// these ratios, with a 99 % confidence interval from `least` to `most`.
    fn new(first: &[Duration], second: &[Duration]) -> Option<Self> {
        let pairs = first.iter().zip(second);
        let ratios = pairs.map(|(first, second)| second.as_secs_f64() / first.as_secs_f64());
        let mut ratios: Vec<_> = ratios.filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let count = ratios.len() as f64;
        // Each measured ratio is above the true median with a probability of 1/2, like the toss of a coin. So the
        // number of ratios above the median is, in 99 % of cases, within 2.576 standard deviations of `count / 2`.
        let below = (count / 2.0 - 2.576 * count.sqrt() / 2.0).floor();
        let index = below.max(0.0) as usize;
        let least = *ratios.get(index)?;
        let most = *ratios.get(ratios.len().checked_sub(index + 1)?)?;
        Some(Self {
            ratio: quantile(&ratios, 0.5)?,
            least,
            most,
            verdict: match (least, most) {
                (_, most) if most < 1.0 - PLACEMENT_NOISE => ComparisonVerdict::Faster,
                (least, _) if least > 1.0 + PLACEMENT_NOISE => ComparisonVerdict::Slower,
                _ => ComparisonVerdict::Same,
            },
        })
    }
}

impl BenchReport {
    pub(super) fn new(versions: Vec<BenchedVersion>) -> Self {
        let comparison = match versions.as_slice() {
            [first, second] => VersionComparison::new(&first.round_medians, &second.round_medians),
            _ => None,
        };
        Self {
            measured: versions.into_iter().map(VersionFigures::from).collect(),
            comparison,
        }
    }

    pub(super) fn text(&self) -> String {
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
                plugins.and_then(value).map(TableCell::number).unwrap_or_default()
            };
            table.push_row([
                TableCell::text(&measured.hooks),
                TableCell::number(measured.requests),
                TableCell::number(measured.calls_per_second),
                TableCell::number(micros(measured.p50_microseconds)),
                TableCell::number(micros(measured.p99_microseconds)),
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
    fn bench_reports_only_a_difference_beyond_noise() {
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
            (&[100], &[90, 90, 90, 90, 500], ComparisonVerdict::Faster),
        ] {
            let comparison = VersionComparison::new(&rounds(first), &rounds(second)).unwrap();
            assert_eq!(comparison.verdict, verdict, "{first:?} {second:?}: {comparison:?}");
            assert!(comparison.least <= comparison.ratio && comparison.ratio <= comparison.most);
        }
        assert_eq!(VersionComparison::new(&[], &[]), None);
    }

    #[test]
    fn a_quantile_is_always_one_of_the_measured_values() {
        let values: Vec<_> = (0..=100).collect();
        assert_eq!(quantile(&values, 0.5), Some(50));
        assert_eq!(quantile(&values, 0.99), Some(99));
        assert_eq!(quantile::<u8>(&[], 0.5), None);
    }
}
