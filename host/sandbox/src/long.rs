//! Calls that compute for long: they continue on threads with a lower priority, so that they delay no other request.

use std::{
    future::poll_fn,
    panic::resume_unwind,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
    thread::yield_now,
    time::Duration,
};

use admittance_admission::{noted_here, threads_for_long_work};
use tokio::task::{AbortHandle, JoinError};
use tracing::Instrument as _;

use crate::{engine::TICK, store::thread_time};

/// A call that uses this much processor time after it has yielded once, at a tick or to wait, computes for long.
const LONG: Duration = TICK;

/// A call of a guest.
pub(crate) type LongCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A call, and how much processor time it has used after it yielded first. Most calls never yield, so this costs them nothing.
/// The time on the clock does not count: a thread may have to wait for a processor.
struct Measured<T> {
    call: LongCall<T>,
    has_yielded: bool,
    spent: Duration,
}

impl<T> Measured<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let begun = self.has_yielded.then(thread_time);
        let output = self.call.as_mut().poll(context);
        self.has_yielded = true;
        if let Some(begun) = begun {
            self.spent += thread_time().saturating_sub(begun);
        }
        output
    }

    fn is_long(&self) -> bool {
        self.spent >= LONG
    }
}

/// Runs the call on this thread until it turns out that it computes for long, and the rest of it on a thread for long work. It
/// begins there if `was_long`, which says after it what is to be expected of the next call.
pub(crate) async fn run<T: Send + 'static>(call: LongCall<T>, was_long: &AtomicBool) -> T {
    let mut call = Measured {
        call,
        has_yielded: false,
        spent: Duration::ZERO,
    };
    if !was_long.load(Ordering::Relaxed) {
        let beginning = poll_fn(|context| match call.poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if call.is_long() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let output = beginning.await;
        // What takes long may also be the end: an answer that is copied out of the guest, or memory that is returned.
        was_long.store(call.is_long(), Ordering::Relaxed);
        if let Some(output) = output {
            return output;
        }
    }
    let rest = async move {
        let output = poll_fn(|context| {
            let output = call.poll(context);
            if output.is_pending() {
                // The kernel would let this thread use its time slice first, which is a few milliseconds.
                yield_now();
            }
            output
        });
        (output.await, call.is_long())
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

    use tokio::{sync::oneshot, task};

    use super::*;

    /// A call that computes for so many ticks; its output is the name of the thread on which it ended.
    fn call(ticks: u32) -> LongCall<String> {
        Box::pin(async move {
            for _ in 0..ticks {
                let begun = thread_time();
                while thread_time() < begun + TICK {}
                task::yield_now().await;
            }
            current().name().unwrap_or_default().to_owned()
        })
    }

    #[tokio::test]
    async fn a_long_call_ends_on_another_thread_and_the_next_one_begins_there() {
        let here = current().name().unwrap_or_default().to_owned();
        let was_long = AtomicBool::default();
        for (ticks, thread) in [
            (0, here.as_str()),
            (1, &here),
            (2, "long-work"),
            (3, "long-work"),
            // Short, but that turns out only afterwards.
            (0, "long-work"),
            (0, &here),
        ] {
            assert_eq!(run(call(ticks), &was_long).await, thread, "{ticks}");
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
