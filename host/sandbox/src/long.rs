//! Calls that compute for long: they continue on threads with a lower priority, so that they delay no other request.

use std::{
    cell::Cell,
    future::poll_fn,
    panic::resume_unwind,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
    thread::yield_now,
};

use admittance_admission::{noted_here, threads_for_long_work};
use tokio::task::{AbortHandle, JoinError};
use tracing::Instrument as _;

/// A guest that has yielded this often has computed for a millisecond at least.
const LONG: u32 = 2;

thread_local! {
    /// Whether the guest that yielded last on this thread computes for long.
    static IS_LONG: Cell<bool> = const { Cell::new(false) };
}

/// A call of a guest.
pub(crate) type LongCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Counts how often the guest of a call yields.
#[derive(Debug, Default)]
pub(crate) struct Yields(u32);

impl Yields {
    /// The guest yields.
    pub(crate) fn add(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 >= LONG {
            IS_LONG.set(true);
        }
    }
}

/// Polls the call once; also tells whether its guest computes for long.
fn poll<T>(call: &mut LongCall<T>, context: &mut Context<'_>) -> (Poll<T>, bool) {
    IS_LONG.set(false);
    let output = call.as_mut().poll(context);
    (output, IS_LONG.get())
}

/// Runs the call on this thread until it turns out that its guest computes for long, and the rest of it on a thread for long
/// work. It begins there if `was_long`, which says after it what is to be expected of the next call.
pub(crate) async fn run<T: Send + 'static>(mut call: LongCall<T>, was_long: &AtomicBool) -> T {
    let begins_here = !was_long.load(Ordering::Relaxed);
    if begins_here {
        let short = poll_fn(|context| match poll(&mut call, context) {
            (Poll::Ready(output), _) => Poll::Ready(Some(output)),
            (Poll::Pending, true) => Poll::Ready(None),
            (Poll::Pending, false) => Poll::Pending,
        });
        if let Some(output) = short.await {
            return output;
        }
        was_long.store(true, Ordering::Relaxed);
    }
    let mut is_long = begins_here;
    let rest = async move {
        let output = poll_fn(|context| {
            let (output, long) = poll(&mut call, context);
            is_long |= long;
            if output.is_pending() {
                // The kernel would let this thread use its time slice first, which is a few milliseconds.
                yield_now();
            }
            output
        });
        (output.await, is_long)
    };
    let task = threads_for_long_work().spawn(noted_here(rest).in_current_span());
    let _abort = Abort(task.abort_handle());
    match task.await {
        Ok((output, is_long)) => {
            was_long.store(is_long, Ordering::Relaxed);
            output
        }
        Err(error) => ended(error).await,
    }
}

/// The task ended without a result: its panic goes on here. Nothing else ends it before the process does.
async fn ended<T>(error: JoinError) -> T {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => std::future::pending().await,
    }
}

/// Ends the task when the call is given up.
struct Abort(AbortHandle);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread::current};

    use tokio::{sync::oneshot, task, time::Duration};

    use super::*;

    /// A call whose guest yields this often; its output is the name of the thread on which it ended.
    fn call(times: u32) -> LongCall<String> {
        Box::pin(async move {
            let mut yields = Yields::default();
            for _ in 0..times {
                yields.add();
                task::yield_now().await;
            }
            current().name().unwrap_or_default().to_owned()
        })
    }

    #[tokio::test]
    async fn a_long_call_ends_on_another_thread_and_the_next_one_begins_there() {
        let here = current().name().unwrap_or_default().to_owned();
        let was_long = AtomicBool::default();
        for (yields, thread) in [
            (0, here.as_str()),
            (1, &here),
            (LONG, "long-work"),
            (LONG, "long-work"),
            // Short, but that turns out only afterwards.
            (0, "long-work"),
            (0, &here),
        ] {
            assert_eq!(run(call(yields), &was_long).await, thread, "{yields}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_that_of_the_call() {
        let was_long = AtomicBool::new(true);
        let panicking = task::spawn(async move {
            run::<()>(Box::pin(async { panic!("of the guest") }), &was_long).await;
        });
        let panic = panicking.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"of the guest"));
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_ends() {
        let (alive, ended) = oneshot::channel::<()>();
        let was_long = Arc::new(AtomicBool::new(true));
        let call: LongCall<()> = Box::pin(async move {
            let _alive = alive;
            std::future::pending().await
        });
        let given_up = tokio::time::timeout(Duration::ZERO, run(call, &was_long)).await;
        assert!(given_up.is_err());
        assert!(ended.await.is_err());
    }
}
