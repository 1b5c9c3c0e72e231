//! Moves calls that compute for long to threads with a lower priority, so that they do not delay other requests.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use crate::{
    capabilities::log::share_current_notes,
    scheduling::{
        offload::{MAX_SHORT_WORK_SIZE, resume_panic_or_wait, threads_for_long_work},
        reschedule::poll_with_rescheduling,
    },
};

/// A hook's call is long if it used this much processor time after it first yielded.
const LONG_CALL_TIME: Duration = Duration::from_millis(1);

/// After a long call of a hook, this many further calls of the hook begin on a thread for long work.
const CALLS_AFTER_LONG_CALL: u8 = 16;

/// A call that runs for at least this time before it first yields is suspicious. The hook's next call is then timed
/// from its start, and not only after it first yields.
const SUSPICIOUS_TIME: Duration = Duration::from_millis(4);

/// Predicts from earlier calls of a hook whether its next call is long. Lives as long as the hook.
#[derive(Debug, Default)]
pub struct LongCallPredictor {
    expected_long_calls: AtomicU8,
    is_suspected: AtomicBool,
}

impl LongCallPredictor {
    fn is_long(&self) -> bool {
        self.expected_long_calls.load(Ordering::Relaxed) > 0
    }

    /// Tells the predictor the size of a hook's response, in bytes. Copying a large response takes long, so the hook's
    /// next calls are then expected to be long.
    pub fn learn_answer(&self, bytes: usize) {
        if bytes > MAX_SHORT_WORK_SIZE {
            self.learn(true);
        }
    }

    /// Learns whether a call was long. If two calls end at the same time, one result may be lost, which does no harm.
    fn learn(&self, was_long: bool) {
        let before = self.expected_long_calls.load(Ordering::Relaxed);
        let after = if was_long {
            CALLS_AFTER_LONG_CALL
        } else {
            before.saturating_sub(1)
        };
        // Most calls are short, and leave the number as it is. In this case nothing is stored, because each store slows
        // down all threads that read the number.
        if after != before {
            self.expected_long_calls.store(after, Ordering::Relaxed);
        }
    }
}

/// The call of a hook, as a future that owns all its data.
pub type LongCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Whether the hook call that this thread is polling can move to another thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mobility {
    /// The hook call stays on its thread. It is on a thread for long work already, or it was not started by
    /// [`run_long`].
    Fixed,
    Movable,
    Moving,
}

thread_local! {
    static MOBILITY: Cell<Mobility> = const { Cell::new(Mobility::Fixed) };
}

/// Returns whether the current hook call is on a serving thread, from which [`move_to_long_work_thread`] can move it.
pub fn is_call_movable() -> bool {
    MOBILITY.get() == Mobility::Movable
}

/// Moves the current hook call to a thread for long work. The call does this before work that takes long and cannot
/// yield. Does nothing if the call is on such a thread already, or was not started by [`run_long`].
pub async fn move_to_long_work_thread() {
    if is_call_movable() {
        MOBILITY.set(Mobility::Moving);
        tokio::task::yield_now().await;
    }
}

/// Calls [`move_to_long_work_thread`] before work on this many bytes. Does nothing if there are so few bytes that the
/// work is short.
pub async fn move_if_long(bytes: usize) {
    if bytes > MAX_SHORT_WORK_SIZE {
        move_to_long_work_thread().await;
    }
}

/// Returns the processor time that this thread has used.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The conversion fails only for negative times, which do not occur.
    Duration::try_from(time).unwrap_or_default()
}

/// A hook call, with a measurement of the processor time that it uses. Time that the call spends waiting does not
/// count. Unless the call is suspected to be long, the measurement begins only after the call has waited once.
struct MeasuredCall<T> {
    call: LongCall<T>,
    has_yielded: bool,
    /// Whether the call is suspected to be long, for example because an earlier call of the same hook ran for several
    /// milliseconds before it first waited. The time of a suspected call is measured from its start, and not only after
    /// it first waits.
    is_suspected: bool,
    spent: Duration,
}

impl<T> MeasuredCall<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let start = (self.has_yielded || self.is_suspected).then(thread_time);
        let polled = self.call.as_mut().poll(context);
        if let Some(start_time) = start {
            let elapsed = thread_time().saturating_sub(start_time);
            if self.has_yielded || elapsed >= SUSPICIOUS_TIME {
                self.spent += elapsed;
            }
        }
        self.has_yielded = true;
        polled
    }

    /// Polls the call on a serving thread. Returns `None` if the call must continue on a thread for long work.
    fn begin(&mut self, context: &mut Context<'_>, predictor: &LongCallPredictor) -> Poll<Option<T>> {
        let outer_mobility = MOBILITY.replace(Mobility::Movable);
        let start = (!self.has_yielded).then(Instant::now);
        let polled = self.poll(context);
        if start.is_some_and(|start| start.elapsed() >= SUSPICIOUS_TIME) {
            predictor.is_suspected.store(true, Ordering::Relaxed);
        }
        if MOBILITY.replace(outer_mobility) == Mobility::Moving {
            self.spent = self.spent.max(LONG_CALL_TIME);
        }
        match polled {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_long() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_long(&self) -> bool {
        self.spent >= LONG_CALL_TIME
    }
}

/// Runs the call of a hook. The call begins on this thread. It moves to a thread for long work when it has computed for
/// long, or when it calls [`move_to_long_work_thread`]. If the call is expected to be long, it begins on such a thread.
/// Must be called within a tokio runtime.
pub async fn run_long<T: Send + 'static>(call: LongCall<T>, predictor: &LongCallPredictor) -> T {
    let mut call = MeasuredCall {
        call,
        has_yielded: false,
        is_suspected: predictor.is_suspected.load(Ordering::Relaxed),
        spent: Duration::ZERO,
    };
    if !predictor.is_long() {
        let output = poll_fn(|context| call.begin(context, predictor)).await;
        if call.is_suspected && !call.is_long() {
            predictor.is_suspected.store(false, Ordering::Relaxed);
        }
        // At the end of a call, its response is copied and its memory is freed, which may take long. So the predictor
        // also learns from a call that has finished on this thread, and did not have to move.
        predictor.learn(call.is_long());
        if let Some(output) = output {
            return output;
        }
    }
    call.is_suspected = true;
    let remaining_call = async move {
        (
            poll_with_rescheduling(poll_fn(|context| call.poll(context))).await,
            call.is_long(),
        )
    };
    let task = threads_for_long_work().spawn(share_current_notes(remaining_call).in_current_span());
    let _abort = AbortOnDrop(task.abort_handle());
    match task.await {
        Ok((output, is_long)) => {
            predictor.learn(is_long);
            output
        }
        Err(error) => resume_panic_or_wait(error).await,
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use tokio::{sync::oneshot, task};

    use super::*;

    /// Creates a call that computes for this many ticks. It returns the name of the thread on which it finished.
    fn call(ticks: u32) -> LongCall<String> {
        Box::pin(async move {
            for _ in 0..ticks {
                let start = thread_time();
                while thread_time() < start + LONG_CALL_TIME {}
                task::yield_now().await;
            }
            current().name().unwrap_or_default().to_owned()
        })
    }

    fn long_call_predictor() -> LongCallPredictor {
        let predictor = LongCallPredictor::default();
        predictor.learn(true);
        predictor
    }

    #[tokio::test]
    async fn a_long_call_moves_to_another_thread_and_the_next_calls_begin_there() {
        let test_thread = current().name().unwrap_or_default().to_owned();
        let predictor = LongCallPredictor::default();
        let first = [
            (0, test_thread.as_str()),
            (1, &test_thread),
            (2, "long-work"),
            (3, "long-work"),
        ];
        // The last of the calls in `first` is long. So the next `CALLS_AFTER_LONG_CALL` calls begin on a thread for
        // long work, although these calls are short. After them, calls begin on the test's thread again.
        let short = std::iter::repeat_n((0, "long-work"), usize::from(CALLS_AFTER_LONG_CALL));
        let next = [(0, test_thread.as_str()), (2, "long-work")];
        for (ticks, thread) in first.into_iter().chain(short).chain(next) {
            assert_eq!(run_long(call(ticks), &predictor).await, thread, "{ticks}");
        }
    }

    #[tokio::test]
    async fn a_call_moves_to_another_thread_before_it_computes_for_long() {
        let thread_name = || current().name().unwrap_or_default().to_owned();
        let test_thread = thread_name();
        for (bytes, expected) in [
            (MAX_SHORT_WORK_SIZE, test_thread.as_str()),
            (MAX_SHORT_WORK_SIZE + 1, "long-work"),
        ] {
            let call: LongCall<_> = Box::pin(async move {
                move_if_long(bytes).await;
                // The outer call runs an inner call. Afterwards, the outer call must be able to move to another thread
                // if it was able to do so before the inner call.
                let inner_thread =
                    run_long(Box::pin(async move { thread_name() }), &LongCallPredictor::default()).await;
                move_if_long(bytes).await;
                (thread_name() == inner_thread, inner_thread)
            });
            let output = run_long(call, &LongCallPredictor::default()).await;
            assert_eq!(output, (true, expected.to_owned()), "{bytes}");
        }
        assert!(!is_call_movable());
        move_to_long_work_thread().await;
    }

    #[tokio::test]
    async fn a_call_that_computes_for_long_without_yielding_is_noticed() {
        let test_thread = current().name().unwrap_or_default().to_owned();
        let predictor = LongCallPredictor::default();
        // The first call computes for so long without yielding that it becomes suspicious. So the second call is
        // measured from its beginning, and counts as long. The next calls begin on a thread for long work.
        for thread in [test_thread.as_str(), &test_thread, "long-work", "long-work"] {
            let call: LongCall<_> = Box::pin(async {
                let start = thread_time();
                while thread_time() < start + SUSPICIOUS_TIME {}
                current().name().unwrap_or_default().to_owned()
            });
            assert_eq!(run_long(call, &predictor).await, thread);
        }
    }

    #[tokio::test]
    async fn a_panic_on_another_thread_continues_in_the_caller() {
        let predictor = long_call_predictor();
        let panicking = task::spawn(async move {
            run_long::<()>(Box::pin(async { panic!("of the guest") }), &predictor).await;
        });
        let panic = panicking.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"of the guest"));
    }

    #[tokio::test]
    async fn a_dropped_call_is_aborted() {
        let (alive, end_receiver) = oneshot::channel::<()>();
        let predictor = long_call_predictor();
        let call: LongCall<()> = Box::pin(async move {
            let _alive = alive;
            std::future::pending().await
        });
        let timeout_result = tokio::time::timeout(Duration::ZERO, run_long(call, &predictor)).await;
        assert!(timeout_result.is_err());
        assert!(end_receiver.await.is_err());
    }
}
