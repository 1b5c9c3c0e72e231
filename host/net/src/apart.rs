//! A thread for connections whose servers are not limited in what they send before a response.
//!
//! Our own clients [limit informational responses](crate::informational), but reqwest lets nobody wrap its connections. A
//! server that sends informational responses without end keeps this thread busy until the request's timeout, and no other.

use std::{panic::resume_unwind, sync::LazyLock};

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// `None` if the thread could not be started.
static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("apart")
        // Timeouts are noticed after each turn, even when a connection is always ready.
        .event_interval(1)
        .enable_all()
        .build();
    runtime
        .inspect_err(|error| tracing::warn!(%error, "no thread could be started for downloads"))
        .ok()
});

/// Runs this future, and the connections that it opens, on the thread apart. It ends when the result is dropped.
pub async fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let Some(runtime) = RUNTIME.as_ref() else {
        return future.await;
    };
    match AbortOnDropHandle::new(runtime.spawn(future)).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // Never: the runtime is not stopped, and nothing else aborts it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn tasks_of_a_request_are_on_the_thread_apart() {
        let thread_of_task =
            run(async { tokio::spawn(async { thread::current().name().map(str::to_owned) }).await });
        assert_eq!(thread_of_task.await.unwrap().as_deref(), Some("apart"));
    }
}
