//! Exports metrics. Limits the number of different values of a label, because users choose many of these values.
//! Forgets the metrics of clusters that are no longer used.

use std::{
    borrow::Cow,
    collections::HashMap,
    time::{Duration, Instant},
};

use admittance::DURATION_BUCKETS;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit, set_global_recorder,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;
use parking_lot::Mutex;

/// Users of a gateway may create any number of clusters, so the values of this label are limited.
const CLUSTER_LABEL: &str = "cluster";
/// The maximum number of different values of each label. Most values are names that users choose.
const VALUE_COUNT_LIMITS: [(&str, usize); 8] = [
    (CLUSTER_LABEL, 512),
    ("chain", 4096),
    ("definition", 4096),
    ("exception", 4096),
    ("kind", 4096),
    ("origin", 4096),
    ("path", 4096),
    ("stage", 4096),
];
const OTHER_VALUE: &str = "other";
/// A metric with a cluster label is forgotten if its value has not changed for this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

#[derive(Clone)]
pub(crate) struct ExportedMetrics([PrometheusHandle; 2]);

impl ExportedMetrics {
    pub(crate) fn install() -> crate::Result<Self> {
        let exporter = Exporter::new(IDLE_TIMEOUT)?;
        let metrics = exporter.handles();
        set_global_recorder(exporter)?;
        Ok(metrics)
    }

    pub(crate) fn render(&self) -> String {
        self.0.iter().map(PrometheusHandle::render).collect()
    }

    /// Sorts histogram samples into buckets. Must be called at intervals, because samples fill the memory until then.
    pub(crate) fn run_upkeep(&self) {
        self.0.iter().for_each(PrometheusHandle::run_upkeep);
    }
}

#[derive(Debug)]
struct Exporter {
    lasting_recorder: PrometheusRecorder,
    cluster_recorder: PrometheusRecorder,
    idle_timeout: Duration,
    /// The values of each label in [`VALUE_COUNT_LIMITS`], each with the time of its last use.
    values: Mutex<HashMap<&'static str, HashMap<String, Instant>>>,
}

impl Exporter {
    fn new(forgotten_after: Duration) -> crate::Result<Self> {
        let builder = || {
            let durations = Matcher::Suffix("duration_seconds".into());
            PrometheusBuilder::new().set_buckets_for_metric(durations, &DURATION_BUCKETS)
        };
        let forgetful = builder()?.idle_timeout(MetricKindMask::ALL, Some(forgotten_after));
        Ok(Self {
            lasting_recorder: builder()?.build_recorder(),
            cluster_recorder: forgetful.build_recorder(),
            idle_timeout: forgotten_after,
            values: Mutex::default(),
        })
    }

    fn handles(&self) -> ExportedMetrics {
        ExportedMetrics([self.lasting_recorder.handle(), self.cluster_recorder.handle()])
    }

    /// Returns the recorder for a metric, and the key under which the metric is recorded. If a label has a new value,
    /// but the label already has as many values as allowed, the key contains `other` instead of the new value.
    fn recorder_and_key<'k>(&self, key: &'k Key) -> (&PrometheusRecorder, Cow<'k, Key>) {
        let is_of_cluster = key.labels().any(|label| label.key() == CLUSTER_LABEL);
        let recorder = if is_of_cluster {
            &self.cluster_recorder
        } else {
            &self.lasting_recorder
        };
        let is_within = |label: &&Label| {
            let limit = VALUE_COUNT_LIMITS.iter().find(|(name, _)| *name == label.key());
            limit.is_none_or(|(name, max_value_count)| self.use_value(name, *max_value_count, label.value()))
        };
        let mut beyond_labels = key.labels().filter(|label| !is_within(label)).peekable();
        if beyond_labels.peek().is_none() {
            return (recorder, Cow::Borrowed(key));
        }
        let beyond: Vec<&Label> = beyond_labels.collect();
        let bounded = |label: &Label| {
            if beyond.contains(&label) {
                Label::new(label.key().to_owned(), OTHER_VALUE)
            } else {
                label.clone()
            }
        };
        let labels: Vec<Label> = key.labels().map(bounded).collect();
        let key = Key::from_parts(key.name().to_owned(), labels);
        (recorder, Cow::Owned(key))
    }

    /// Returns `false` if the value is new, but the label has `max_value_count` values already.
    fn use_value(&self, label: &'static str, max_value_count: usize, value: &str) -> bool {
        let now = Instant::now();
        let mut locked = self.values.lock();
        let values = locked.entry(label).or_default();
        if let Some(last_used) = values.get_mut(value) {
            *last_used = now;
            return true;
        }
        if values.len() >= max_value_count && label == CLUSTER_LABEL {
            values.retain(|_, last_used| now.duration_since(*last_used) < self.idle_timeout);
        }
        if values.len() >= max_value_count {
            return false;
        }
        values.insert(value.to_owned(), now);
        true
    }
}

impl Recorder for Exporter {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.lasting_recorder.describe_counter(key.clone(), unit, text.clone());
        self.cluster_recorder.describe_counter(key, unit, text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.lasting_recorder.describe_gauge(key.clone(), unit, text.clone());
        self.cluster_recorder.describe_gauge(key, unit, text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.lasting_recorder
            .describe_histogram(key.clone(), unit, text.clone());
        self.cluster_recorder.describe_histogram(key, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let (recorder, key) = self.recorder_and_key(key);
        recorder.register_counter(&key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let (recorder, key) = self.recorder_and_key(key);
        recorder.register_gauge(&key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let (recorder, key) = self.recorder_and_key(key);
        recorder.register_histogram(&key, metadata)
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, histogram, with_local_recorder};

    use super::*;

    #[test]
    fn a_metric_label_has_a_bounded_number_of_values() {
        let exporter = Exporter::new(IDLE_TIMEOUT).unwrap();
        with_local_recorder(&exporter, || {
            for number in 0..2000 {
                counter!("requests_total", "cluster" => format!("plain-{number}"), "status" => "2xx").increment(1);
            }
            counter!("requests_total", "cluster" => "plain-0", "status" => "2xx").increment(1);
            counter!("others_total", "result" => "live").increment(1);
        });
        let text = exporter.handles().render();
        let series = text.lines().filter(|line| line.starts_with("requests_total"));
        assert_eq!(series.count(), 513);
        for line in [
            r#"requests_total{cluster="plain-0",status="2xx"} 2"#,
            r#"requests_total{cluster="other",status="2xx"} 1488"#,
            r#"others_total{result="live"} 1"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn series_of_unused_clusters_make_room_for_new_ones() {
        let exporter = Exporter::new(Duration::from_millis(20)).unwrap();
        let metrics = exporter.handles();
        let count = |cluster: String| {
            with_local_recorder(&exporter, || {
                counter!("requests_total", "cluster" => cluster.clone()).increment(1);
                histogram!("duration_seconds", "cluster" => cluster).record(1.0);
                counter!("others_total").increment(1);
            });
        };
        (0..512).for_each(|number| count(format!("old-{number}")));
        assert!(metrics.render().contains("old-511"));
        while metrics.render().contains("old-") {
            std::thread::sleep(Duration::from_millis(5));
        }
        count("new".to_owned());
        let text = metrics.render();
        assert!(
            text.contains(r#"cluster="new""#) && !text.contains("=\"other\""),
            "{text}"
        );
        assert!(text.contains("others_total 513"), "{text}");
    }
}
