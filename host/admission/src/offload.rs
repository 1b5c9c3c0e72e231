use std::{
    num::NonZero,
    sync::{Arc, LazyLock},
    thread::available_parallelism,
};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout_at};

use crate::{Deadline, Failure, FailureKind};

/// Work on fewer bytes is fast enough to run on a worker.
const SMALL: usize = 64 << 10;

/// One permit per core: the workers keep at least half of the machine.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new(cores))
});

/// Runs work whose time depends on this many bytes: inline if they are few, otherwise on a blocking thread,
/// so that no other request waits for it. Must be called within a tokio runtime.
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
        spawn_blocking(move || {
            let _place = place;
            // After the deadline, the result is no longer needed.
            (!deadline.has_passed()).then(work)
        })
        .await
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
