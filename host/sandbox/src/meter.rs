use std::{
    fs,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Measures the cost of plugin calls, for benchmarks.
#[derive(Debug, Default)]
pub struct CallMeter {
    pub(crate) measures_memory: bool,
    costs: Mutex<Option<CallCost>>,
}

/// The cost of one or several calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallCost {
    /// The time that the sandbox took to create the instances of the calls, and to return their memory to the pool.
    pub instance: Duration,
    /// The time that the guests took, including the host functions that they called.
    pub guest: Duration,
    /// The size of all memory pages that the calls wrote, in bytes. This includes the memories and tables of the
    /// guests, and the data that the host keeps for their instances. `None` if the meter does not measure memory.
    pub touched: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct CallMeasurement<'a> {
    meter: &'a CallMeter,
    started: Instant,
    memory: Option<u64>,
}

impl CallMeter {
    /// Creates a meter that also measures the memory that a call writes. For this, the pool keeps no memory pages from
    /// one call to the next, so calls take longer. Other threads should not allocate memory during a measured call.
    pub fn with_memory_measurement() -> Self {
        Self {
            measures_memory: true,
            ..Self::default()
        }
    }

    /// Returns the total cost of the calls since the last `take`; `None` without calls.
    pub fn take(&self) -> Option<CallCost> {
        self.costs.lock().take()
    }

    pub(crate) fn begin_call(&self) -> CallMeasurement<'_> {
        CallMeasurement {
            meter: self,
            memory: self.measures_memory.then(written_size).flatten(),
            started: Instant::now(),
        }
    }
}

impl CallMeasurement<'_> {
    /// Adds the cost of a finished call to the meter. `return_memory` must give the memory of the call's instance back.
    /// This function calls it, in order to measure the time that it takes.
    pub(crate) fn end_call(self, guest: Option<(Instant, Instant)>, return_memory: impl FnOnce()) {
        let before = self.memory;
        let after = self.meter.measures_memory.then(written_size).flatten();
        let touched = before.zip(after);
        let return_started = Instant::now();
        return_memory();
        let return_time = return_started.elapsed();
        let Some((instantiated, answered)) = guest else {
            return;
        };
        let mut costs = self.meter.costs.lock();
        let sum = costs.get_or_insert_default();
        sum.instance += instantiated.duration_since(self.started) + return_time;
        sum.guest += answered.duration_since(instantiated);
        if let Some((before, after)) = touched {
            *sum.touched.get_or_insert_default() += after.saturating_sub(before);
        }
    }
}

/// Returns the size of the pages that this process has written, in bytes; `None` if the kernel does not report it.
#[allow(clippy::disallowed_methods, reason = "it is a file of the kernel")]
fn written_size() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
