//! Calls that compute for long: they continue on threads with a lower priority, so that they delay no other request.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicU8, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use admittance_admission::{ended, noted_here, threads_for_long_work};
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use crate::{engine::TICK, store::thread_time};

/// A call that uses this much processor time after it has yielded once, at a tick or to wait, computes for long.
const LONG: Duration = TICK;

/// A call with a larger answer, in bytes, is not short.
pub(crate) const LARGE_ANSWER: usize = 32 << 10;

/// How many short calls of a plugin after a long one begin where long ones do: one that computes for long only now and then
/// seldom does so on a thread that serves.
const WARY: u8 = 16;

/// What is to be expected of the next call of a plugin, from those before it. Lives as long as the plugin.
#[derive(Debug, Default)]
pub(crate) struct Expectation(AtomicU8);

impl Expectation {
    pub(crate) fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Concurrent calls may overwrite what others have learned: the next one learns it again.
    pub(crate) fn learn(&self, was_long: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = if was_long { WARY } else { before.saturating_sub(1) };
        // Most calls are short, and write nothing that other threads read.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }
}

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
/// begins there if that is to be expected.
pub(crate) async fn run<T: Send + 'static>(call: LongCall<T>, expectation: &Expectation) -> T {
    let mut call = Measured {
        call,
        has_yielded: false,
        spent: Duration::ZERO,
    };
    if !expectation.is_long() {
        let beginning = poll_fn(|context| match call.poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if call.is_long() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let output = beginning.await;
        // What takes long may also be the end: an answer that is copied out of the guest, or memory that is returned.
        expectation.learn(call.is_long());
        if let Some(output) = output {
            return output;
        }
    }
    let rest = async move { (poll_fn(|context| call.poll(context)).await, call.is_long()) };
    let task = threads_for_long_work().spawn(noted_here(rest).in_current_span());
    let _abort = Abort(task.abort_handle());
    match task.await {
        Ok((output, is_long)) => {
            expectation.learn(is_long);
            output
        }
        Err(error) => ended(error).await,
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
    use std::thread::current;

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

    fn long() -> Expectation {
        let expectation = Expectation::default();
        expectation.learn(true);
        expectation
    }

    #[tokio::test]
    async fn a_long_call_ends_on_another_thread_and_the_next_ones_begin_there() {
        let here = current().name().unwrap_or_default().to_owned();
        let expectation = Expectation::default();
        let first = [(0, here.as_str()), (1, &here), (2, "long-work"), (3, "long-work")];
        // A plugin of which one call in some computes for long.
        let short = std::iter::repeat_n((0, "long-work"), usize::from(WARY));
        let next = [(0, here.as_str()), (2, "long-work")];
        for (ticks, thread) in first.into_iter().chain(short).chain(next) {
            assert_eq!(run(call(ticks), &expectation).await, thread, "{ticks}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_that_of_the_call() {
        let expectation = long();
        let panicking = task::spawn(async move {
            run::<()>(Box::pin(async { panic!("of the guest") }), &expectation).await;
        });
        let panic = panicking.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"of the guest"));
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_ends() {
        let (alive, ended) = oneshot::channel::<()>();
        let expectation = long();
        let call: LongCall<()> = Box::pin(async move {
            let _alive = alive;
            std::future::pending().await
        });
        let given_up = tokio::time::timeout(Duration::ZERO, run(call, &expectation)).await;
        assert!(given_up.is_err());
        assert!(ended.await.is_err());
    }
}
