//! Lets serving threads run within a millisecond, although long work occupies the processors.
//!
//! A serving thread may wake on a processor busy with long work. If the serving thread ran shortly before, Linux may
//! let the long work continue until the kernel's next tick, which takes up to 4 ms. A lower priority of the long work
//! does not prevent this, nor does another processor that is idle. But the kernel chooses again as soon as a third
//! thread wakes on the processor. So this module wakes a thread on each processor every millisecond during long work.

use std::{pin::pin, sync::LazyLock};

use crate::scheduling::ticker::{Ticker, TickerGuard};

/// The threads that wake every millisecond during long work. Each time that one of them wakes, the kernel chooses again
/// which thread runs on the processor. Without these threads, a serving thread may have to wait several milliseconds
/// while long work uses the processor.
static RESCHEDULER: LazyLock<Option<Ticker>> = LazyLock::new(|| {
    rescheduler()
        .inspect_err(|error| tracing::debug!(%error, "no threads for rescheduling can be started"))
        .ok()
});

pub(crate) fn reschedule_often() -> Option<TickerGuard> {
    RESCHEDULER.as_ref().map(Ticker::enter)
}

/// Polls a future that computes for long. During each poll, serving threads get a chance to run every millisecond.
pub async fn poll_with_rescheduling<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _guard = reschedule_often();
        work.as_mut().poll(context)
    })
    .await
}

#[cfg(not(target_os = "linux"))]
fn rescheduler() -> std::io::Result<Ticker> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
use linux::rescheduler;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use crate::scheduling::ticker::{Tick, Ticker};

    /// The threads sleep after this many ticks without long work. They do not sleep at once, because waking a thread
    /// from this sleep costs a system call.
    const IDLE_TICKS: u32 = 16;

    /// Starts the threads that wake every millisecond: one for each processor that this process may use.
    pub(super) fn rescheduler() -> io::Result<Ticker> {
        let threads = processors()?.into_iter().map(|processor| {
            let mut is_bound = false;
            let tick: Tick = Box::new(move || {
                is_bound = is_bound || bind_to(processor);
                is_bound
            });
            (format!("reschedule-{processor}"), tick)
        });
        Ticker::start(IDLE_TICKS, threads)
    }

    pub(super) fn processors() -> io::Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU)
            .filter(|&processor| allowed.is_set(processor))
            .collect())
    }

    fn bind_to(processor: usize) -> bool {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set)
            .inspect_err(|error| tracing::debug!(%error, processor, "a thread cannot be bound to a processor"))
            .is_ok()
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::{
        fs::{read_dir, read_to_string},
        thread::sleep,
        time::{Duration, Instant},
    };

    use super::{linux::processors, *};
    use crate::scheduling::ticker::TICK;

    /// Returns two values for each thread `reschedule-*`: the processors on which it may run, and the number of times
    /// that it has given up its processor voluntarily.
    fn reschedule_threads() -> Vec<(String, u64)> {
        let field = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| read_to_string(task.unwrap().path().join("status")).ok())
            .filter(|status| field(status, "Name:").is_some_and(|name| name.starts_with("reschedule-")))
            .map(|status| {
                let switches = field(&status, "voluntary_ctxt_switches:").unwrap();
                (field(&status, "Cpus_allowed_list:").unwrap(), switches.parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn one_thread_wakes_up_on_each_processor_while_long_work_runs() {
        let guard = reschedule_often();
        let processors: Vec<_> = processors().unwrap().iter().map(usize::to_string).collect();
        let have_woken = |times| {
            let threads = reschedule_threads();
            processors.iter().all(|processor| {
                threads
                    .iter()
                    .any(|(allowed, switches)| allowed == processor && *switches > times)
            })
        };
        wait_until(|| have_woken(100));
        drop(guard);
        // Without the guard, the threads sleep soon. Other tests may wake them at any time, so this test waits for a
        // moment at which all of them sleep.
        wait_until(|| {
            let before = reschedule_threads();
            sleep(TICK * 10);
            reschedule_threads() == before
        });
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(60), "waited for a minute");
            sleep(TICK);
        }
    }
}
