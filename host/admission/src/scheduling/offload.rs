//! Runs long work on threads with a lower priority than serving threads.

use std::{
    num::NonZero,
    panic::resume_unwind,
    sync::LazyLock,
    thread::{available_parallelism, yield_now},
};

use rustix::process::{getpriority_process, setpriority_process};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
    task::{JoinError, JoinHandle},
    time::timeout_at,
};

use crate::{Deadline, Failure, FailureKind, scheduling::reschedule::reschedule_often};

/// Work on at most this many bytes is short enough for a serving thread.
pub(crate) const MAX_SHORT_WORK_SIZE: usize = 32 << 10;

/// The nice value (the priority in Linux) of threads for long work. When such a thread shares a processor with a thread
/// of normal priority, it gets about a quarter of the time. With a much smaller share, long calls would miss their
/// deadlines on a machine with other busy programs.
const LONG_WORK_NICE_VALUE: i32 = 5;

static PERMITS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(thread_count()));

static THREADS: LazyLock<Option<Runtime>> = LazyLock::new(|| background_threads("long-work", thread_count()));

/// Starts a runtime of this many threads with a lower priority than serving threads; `None` if starting fails.
pub fn background_threads(name: &str, count: usize) -> Option<Runtime> {
    let threads = Builder::new_multi_thread()
        .worker_threads(count)
        .thread_name(name)
        .enable_all()
        .on_thread_start(lower_priority)
        .build();
    if let Err(error) = &threads {
        tracing::warn!(%error, name, "threads cannot be started; their work delays other requests");
    }
    threads.ok()
}

/// Gives the calling thread a lower priority than serving threads. Does nothing if the thread has a low priority
/// already. For example, a thread for long work may start a compiler, whose own threads inherit the low priority.
pub fn lower_priority() {
    let lowered = getpriority_process(None).and_then(|nice| {
        if nice < LONG_WORK_NICE_VALUE {
            setpriority_process(None, LONG_WORK_NICE_VALUE)
        } else {
            Ok(())
        }
    });
    if let Err(error) = lowered {
        tracing::debug!(%error, "the priority of this thread cannot be lowered");
    }
}

/// Returns the number of threads for long work. It leaves one core to serving threads. If long work ran on all cores,
/// serving threads might wait 1 ms for one of them.
fn thread_count() -> usize {
    let cores = available_parallelism().map_or(1, NonZero::get);
    cores.saturating_sub(1).max(1)
}

/// Lets other threads run each time that as many items of long work are done as `every` says. `item` is the index of
/// the item that was done last. A pause may cost a time slice, so `every` should be large.
pub fn pause_between_items(item: usize, every: usize) {
    if (item + 1).is_multiple_of(every) {
        yield_now();
    }
}

/// Returns the runtime of the threads for long work. Must be called within a tokio runtime.
pub(crate) fn threads_for_long_work() -> Handle {
    THREADS
        .as_ref()
        .map_or_else(Handle::current, |threads| threads.handle().clone())
}

/// Runs work like [`offload`], but without a deadline. If `bytes` is large, the work takes long, so it runs on a thread
/// for long work. Must be called within a tokio runtime.
pub async fn offload_without_deadline<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= MAX_SHORT_WORK_SIZE {
        return work();
    }
    match run_in_turn(work).await {
        Ok(output) => output,
        Err(error) => resume_panic_or_wait(error).await,
    }
}

async fn run_in_turn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    // Acquiring fails only if the semaphore is closed, which it never is.
    let permit = PERMITS.acquire().await.ok();
    let work = move || {
        let _permit = permit;
        work()
    };
    on_thread_for_long_work(work).await
}

/// Starts work on a thread for long work. The work may compute for long, or block. Must be called in a tokio runtime.
pub fn on_thread_for_long_work<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads_for_long_work().spawn_blocking(move || {
        let _guard = reschedule_often();
        work()
    })
}

/// Continues the panic of a task that panicked. A task that did not panic was aborted because the process is ending, so
/// this function then waits forever.
pub async fn resume_panic_or_wait<T>(error: JoinError) -> T {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => std::future::pending().await,
    }
}

/// Drops a value of this many bytes. A large value is dropped on a thread for long work, because freeing it takes time.
pub(crate) fn drop_on_long_work_thread<T: Send + 'static>(value: T, bytes: usize) {
    if bytes > MAX_SHORT_WORK_SIZE
        && let Some(threads) = THREADS.as_ref()
    {
        threads.spawn(run_in_turn(move || drop(value)));
    }
}

/// Runs work whose time depends on this many bytes. If they are many, the work runs on a [thread for long
/// work](on_thread_for_long_work), so that it does not delay other requests. Must be called within a tokio runtime.
///
/// # Errors
///
/// Returns [`FailureKind::Timeout`] when the deadline passes first; the work then continues until it checks the
/// deadline or is done. Returns [`FailureKind::Error`] when the work panics.
pub async fn offload<T: Send + 'static>(
    bytes: usize,
    deadline: Deadline,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if bytes <= MAX_SHORT_WORK_SIZE {
        return Ok(work());
    }
    // If too much other work is waiting, this work gets its turn only after the deadline. It is then not started,
    // because its result is no longer needed.
    let queued_work = run_in_turn(move || (!deadline.has_passed()).then(work));
    let too_late = || {
        Failure::new(
            FailureKind::Timeout,
            "an object, or an answer with its object, was not processed in time",
        )
    };
    match timeout_at(deadline.instant(), queued_work).await {
        Ok(Ok(output)) => output.ok_or_else(too_late),
        Ok(Err(error)) => Err(Failure::new(FailureKind::Error, error.to_string())),
        Err(_) => Err(too_late()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_priority_is_lowered_only_once_and_only_for_the_calling_thread() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        let lowered = thread::spawn(move || {
            lower_priority();
            lower_priority();
            nice()
        });
        assert_eq!(lowered.join().unwrap(), before.max(LONG_WORK_NICE_VALUE));
        assert_eq!(nice(), before);
    }
}
