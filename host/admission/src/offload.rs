//! Work that takes long, on threads with a lower priority than those that serve.

use std::{
    num::NonZero,
    sync::{Arc, LazyLock},
    thread::available_parallelism,
};

use rustix::process::nice;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
    time::timeout_at,
};

use crate::{Deadline, Failure, FailureKind};

/// Work on fewer bytes is fast enough to run on a worker.
const SMALL: usize = 64 << 10;

/// One permit per core: the workers keep at least half of the machine.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(cores())));

/// Started with the first work that takes long.
static THREADS: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let threads = Builder::new_multi_thread()
        .worker_threads(cores())
        .thread_name("long-work")
        .enable_all()
        .on_thread_start(lower_priority)
        .build();
    if let Err(error) = &threads {
        tracing::warn!(%error, "the threads for work that takes long cannot be started; it delays other requests");
    }
    threads.ok()
});

/// Lets threads that serve interrupt this one. On Linux it applies to the calling thread only.
pub fn lower_priority() {
    // Without it, the thread works as well.
    let _ = nice(5);
}

fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// The runtime for work that takes long. Its threads, one per core, have a lower priority than others, so that such work
/// uses what other requests leave. Must be called within a tokio runtime.
pub fn threads_for_long_work() -> Handle {
    THREADS
        .as_ref()
        .map_or_else(Handle::current, |threads| threads.handle().clone())
}

/// Runs work whose time depends on this many bytes: inline if they are few, otherwise on a [thread for long
/// work](threads_for_long_work), so that no other request waits for it. Must be called within a tokio runtime.
///
/// # Errors
///
/// [`FailureKind::Timeout`] when the deadline passes first; the work then continues until it checks the
/// deadline itself or is done. [`FailureKind::Error`] when it panics.
pub async fn offload<T: Send + 'static>(
    bytes: usize,
    deadline: Deadline,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if bytes <= SMALL {
        return Ok(work());
    }
    let beside = async {
        // The semaphore is never closed.
        let place = PLACES.clone().acquire_owned().await.ok();
        let threads = threads_for_long_work();
        let work = threads.spawn_blocking(move || {
            let _place = place;
            // After the deadline, the result is no longer needed.
            (!deadline.has_passed()).then(work)
        });
        work.await
    };
    let too_late = || {
        Failure::new(
            FailureKind::Timeout,
            format!("an answer with {bytes} bytes, including its object, was not processed in time"),
        )
    };
    match timeout_at(deadline.instant(), beside).await {
        Ok(Ok(done)) => done.ok_or_else(too_late),
        Ok(Err(error)) => Err(Failure::new(FailureKind::Error, error.to_string())),
        Err(_) => Err(too_late()),
    }
}
