use std::{
    hint::black_box,
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    minimum: Duration,
    median: Duration,
    p99: Duration,
}

impl Times {
    pub(crate) fn median(self) -> Duration {
        self.median
    }

    pub(crate) fn ratio(self, other: Self) -> f64 {
        self.median.as_secs_f64() / other.median.as_secs_f64()
    }
}

pub(crate) struct MeasuredTable {
    title: String,
    rows: Vec<(String, Times, Option<f64>)>,
    notes: Vec<String>,
}

impl MeasuredTable {
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Measures `calls` calls after a warm-up, and adds a row with their times to the table. If `base` has the times of
    /// another measurement, the row also has the ratio to these.
    pub(crate) async fn measure<T>(
        &mut self,
        name: &str,
        base: Option<Times>,
        calls: usize,
        mut call: impl AsyncFnMut() -> T,
    ) -> Times {
        for _ in 0..calls / 10 {
            black_box(call().await);
        }
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let started = Instant::now();
            let answer = call().await;
            times.push(started.elapsed());
            black_box(answer);
        }
        self.add(name, base, times)
    }

    pub(crate) fn add(&mut self, name: &str, base: Option<Times>, mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        let percentile = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        let times = Times {
            minimum: percentile(0),
            median: percentile(50),
            p99: percentile(99),
        };
        self.rows
            .push((name.to_owned(), times, base.map(|base| times.ratio(base))));
        times
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(crate) fn print(&self) {
        let width = self.rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        println!("\n{}", self.title);
        println!(
            "{:width$}  {:>10}  {:>10}  {:>10}  {:>7}",
            "", "least", "median", "p99", "ratio"
        );
        for (name, times, ratio) in &self.rows {
            let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}"));
            println!(
                "{name:width$}  {:>10.1?}  {:>10.1?}  {:>10.1?}  {ratio:>7}",
                times.minimum, times.median, times.p99
            );
        }
        for note in &self.notes {
            println!("{note}");
        }
    }
}
