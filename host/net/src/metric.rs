use metrics::{Unit, with_recorder};

/// A metric that [`metric_table`](crate::metric_table) declares. A test compares these metrics with the documentation.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Option<Unit>,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl Metric {
    /// Describes the metric to the exporter. The exporter must have been installed before.
    pub fn describe(&self) {
        let (name, unit, help) = (self.name.into(), self.unit, self.help.into());
        with_recorder(|recorder| match self.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }
}

/// Declares the metrics of a crate: a constant with the name of each metric, and the list `METRICS` of all.
#[macro_export]
macro_rules! metric_table {
    ($($visibility:vis $constant:ident = $kind:ident $($unit:ident)? $name:literal [$($label:ident),*] $help:literal;)*) => {
        $($visibility const $constant: &str = $name;)*

        /// All metrics of the crate.
        pub const METRICS: &[$crate::Metric] = &[$($crate::Metric {
            name: $name,
            kind: $crate::MetricKind::$kind,
            unit: $crate::metric_table!(@unit $($unit)?),
            labels: &[$(stringify!($label)),*],
            help: $help,
        }),*];
    };
    (@unit) => { ::std::option::Option::None };
    (@unit $unit:ident) => { ::std::option::Option::Some(::metrics::Unit::$unit) };
}
