use std::{
    num::NonZero,
    sync::{Arc, LazyLock},
    thread::available_parallelism,
};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout_at};

use crate::{Deadline, Failure, FailureKind};

/// What is about fewer bytes takes so little time that it may hold a worker.
const SMALL: usize = 64 << 10;

/// As many at once as there are cores: the workers beside them keep at least half of the machine.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new(cores))
});

/// Do work whose time grows with so many bytes: here when they are few, and otherwise on a thread beside the
/// workers, so that no other request waits for it. It must be called on a tokio runtime.
///
/// # Errors
///
/// [`FailureKind::Timeout`] when the deadline passes first; the work then goes on until it sees the deadline
/// itself or is done. [`FailureKind::Error`] when it panics.
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
            // Who waited for a place until the deadline asks no more.
            (!deadline.has_passed()).then(work)
        })
        .await
    };
    let too_late = || {
        Failure::new(
            FailureKind::Timeout,
            format!(
                "an answer with {bytes} bytes, including its object, was not processed in time"
            ),
        )
    };
    match timeout_at(deadline.instant(), beside).await {
        Ok(Ok(done)) => done.ok_or_else(too_late),
        Ok(Err(error)) => Err(Failure::new(FailureKind::Error, error.to_string())),
        Err(_) => Err(too_late()),
    }
}
