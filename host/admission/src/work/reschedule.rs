//! Lets waiting threads run within a millisecond although long work occupies the processors.
//!
//! When a thread that serves wakes up shortly after it ran, Linux lets the thread that has the processor continue until the next
//! tick of the kernel, up to 4 ms later, even if its priority is lower and another processor is idle. Any thread that wakes up
//! on that processor makes the kernel choose again. So while long work runs, one thread for each processor wakes up every
//! millisecond.

use std::pin::pin;

/// Counts this thread among those that do long work until the guard is dropped.
pub(crate) fn reschedule_often() -> ReschedulingGuard {
    #[cfg(target_os = "linux")]
    RESCHEDULER.enter();
    ReschedulingGuard
}

pub(crate) struct ReschedulingGuard;

impl Drop for ReschedulingGuard {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        RESCHEDULER.leave();
    }
}

/// Polls a future that computes for long on a background thread.
pub async fn long_polls<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _guard = reschedule_often();
        work.as_mut().poll(context)
    })
    .await
}

#[cfg(target_os = "linux")]
use linux::RESCHEDULER;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        sync::{
            LazyLock,
            atomic::{AtomicUsize, Ordering},
        },
        thread::{Builder, Thread, park, sleep},
        time::Duration,
    };

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// The time between two choices of the kernel.
    const PERIOD: Duration = Duration::from_millis(1);

    /// The number of periods without long work after which the threads sleep. Starting them again costs a system call each.
    const IDLE_PERIODS: u32 = 16;

    pub(super) static RESCHEDULER: LazyLock<Rescheduler> = LazyLock::new(Rescheduler::start);

    #[derive(Debug)]
    pub(super) struct Rescheduler {
        threads: Vec<Thread>,
    }

    /// The number of threads that do long work at this moment.
    static WORKING: AtomicUsize = AtomicUsize::new(0);

    impl Rescheduler {
        /// Starts a thread for each processor that this process may use. Without these threads work continues, and others
        /// wait longer for it.
        fn start() -> Self {
            let threads = processors()
                .unwrap_or_else(|error| {
                    tracing::debug!(%error, "the processors of this process are unknown");
                    Vec::new()
                })
                .into_iter()
                .filter_map(|processor| match start_on(processor) {
                    Ok(thread) => Some(thread),
                    Err(error) => {
                        tracing::debug!(%error, processor, "no thread can be started for a processor");
                        None
                    }
                })
                .collect();
            Self { threads }
        }

        pub(super) fn enter(&self) {
            if WORKING.fetch_add(1, Ordering::SeqCst) == 0 {
                for thread in &self.threads {
                    thread.unpark();
                }
            }
        }

        pub(super) fn leave(&self) {
            WORKING.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn processors() -> rustix::io::Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU)
            .filter(|&processor| allowed.is_set(processor))
            .collect())
    }

    #[allow(clippy::disallowed_methods, reason = "each thread stays on one processor")]
    fn start_on(processor: usize) -> std::io::Result<Thread> {
        let started = Builder::new()
            .name(format!("reschedule-{processor}"))
            .stack_size(64 << 10)
            .spawn(move || wake_up_on(processor))?;
        Ok(started.thread().clone())
    }

    fn wake_up_on(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::debug!(%error, processor, "a thread cannot be bound to a processor");
            return;
        }
        let mut idle = 0;
        loop {
            if WORKING.load(Ordering::SeqCst) > 0 {
                idle = 0;
            } else {
                idle += 1;
            }
            if idle > IDLE_PERIODS {
                // `unpark` before this call makes it return at once, so no start of work is missed.
                park();
                idle = 0;
            }
            sleep(PERIOD);
        }
    }

    #[cfg(test)]
    mod tests {
        use std::{
            fs::{read_dir, read_to_string},
            time::Instant,
        };

        use super::*;
        use crate::work::reschedule::reschedule_often;

        /// Returns how often each of these threads gave up its processor by itself, with the processors that it may use.
        fn threads() -> Vec<(String, u64)> {
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
                    (
                        field(&status, "Cpus_allowed_list:").unwrap(),
                        switches.parse().unwrap(),
                    )
                })
                .collect()
        }

        #[test]
        fn one_thread_wakes_up_on_each_processor_while_long_work_runs() {
            let guard = reschedule_often();
            let processors: Vec<_> = processors().unwrap().iter().map(usize::to_string).collect();
            let have_woken = |times| {
                let threads = threads();
                processors.iter().all(|processor| {
                    threads
                        .iter()
                        .any(|(allowed, switches)| allowed == processor && *switches > times)
                })
            };
            wait_until(|| have_woken(100));
            drop(guard);
            // Other tests of this process do long work too, so the threads are asleep only now and then.
            wait_until(|| {
                let before = threads();
                sleep(PERIOD * 10);
                threads() == before
            });
        }

        fn wait_until(condition: impl Fn() -> bool) {
            let begun = Instant::now();
            while !condition() {
                assert!(begun.elapsed() < Duration::from_secs(60), "waited for a minute");
                sleep(PERIOD);
            }
        }
    }
}
