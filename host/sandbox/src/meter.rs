use std::{
    fs,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Measures the cost of calls of plugins, for benchmarks. Lives as long as the sandboxes that use it.
#[derive(Debug, Default)]
pub struct Meter {
    of_memory: bool,
    costs: Mutex<Option<CallCost>>,
}

/// The cost of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallCost {
    /// The time to create the instance, and to return its memory.
    pub instance: Duration,
    /// The time of the guest, including the functions of the host that it called.
    pub guest: Duration,
    /// The bytes in pages that were written, of the guest's memories and tables and of the host's data for the
    /// instance. `None` unless the meter measures memory.
    pub touched: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Measured<'a> {
    meter: &'a Meter,
    started: Instant,
    memory: Option<u64>,
}

impl Meter {
    /// Creates a meter that also measures the memory that a call touches. Calls take longer, because nothing of an
    /// instance is kept for the next one. Other threads should not allocate at the same time.
    pub fn of_memory() -> Self {
        Self {
            of_memory: true,
            ..Self::default()
        }
    }

    /// Returns the sum of the calls since this function was called last; `None` without calls.
    pub fn take(&self) -> Option<CallCost> {
        self.costs.lock().take()
    }

    pub(crate) fn is_of_memory(&self) -> bool {
        self.of_memory
    }

    pub(crate) fn begin(&self) -> Measured<'_> {
        Measured {
            meter: self,
            memory: self.of_memory.then(written).flatten(),
            started: Instant::now(),
        }
    }
}

impl Measured<'_> {
    /// Ends a call, and runs `return_memory`, which returns the memory of its instance. The guest ran between the two
    /// moments, if it ran.
    pub(crate) fn end(self, guest: Option<(Instant, Instant)>, return_memory: impl FnOnce()) {
        let before = self.memory;
        let after = self.meter.of_memory.then(written).flatten();
        let touched = before.zip(after);
        let answered = Instant::now();
        return_memory();
        let returned = answered.elapsed();
        let Some((instantiated, answered)) = guest else {
            return;
        };
        let mut costs = self.meter.costs.lock();
        let sum = costs.get_or_insert_default();
        sum.instance += instantiated.duration_since(self.started) + returned;
        sum.guest += answered.duration_since(instantiated);
        if let Some((before, after)) = touched {
            *sum.touched.get_or_insert_default() += after.saturating_sub(before);
        }
    }
}

/// Returns the bytes in pages that this process wrote; `None` if the kernel does not report them.
#[allow(clippy::disallowed_methods, reason = "it is a file of the kernel")]
fn written() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
