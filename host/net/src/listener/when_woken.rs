//! Polls a future only if this future has been woken since it was last polled. This saves time if its task also does
//! other work, and is often woken for that work.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;

/// Polls the inner future only after it was woken, because each poll of a shutdown signal takes locks.
pub(super) struct WhenWoken<F> {
    future: Pin<Box<F>>,
    signal: Arc<WakeSignal>,
    waker: Waker,
    task: Waker,
}

struct WakeSignal {
    is_woken: AtomicBool,
    task: Mutex<Waker>,
}

impl Wake for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.lock().wake_by_ref();
    }
}

impl<F: Future> WhenWoken<F> {
    pub(super) fn new(future: F) -> Self {
        let signal = Arc::new(WakeSignal {
            is_woken: AtomicBool::new(true),
            task: Mutex::new(Waker::noop().clone()),
        });
        Self {
            future: Box::pin(future),
            waker: signal.clone().into(),
            signal,
            task: Waker::noop().clone(),
        }
    }
}

impl<F: Future> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.task.will_wake(cx.waker()) {
            this.task.clone_from(cx.waker());
            this.signal.task.lock().clone_from(cx.waker());
        }
        if !this.signal.is_woken.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // The flag is cleared before the inner future is polled. If the inner future is woken during this poll, the
        // flag is set again, and the inner future is polled once more.
        this.signal.is_woken.store(false, Ordering::Release);
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_is_polled_only_after_it_was_woken() {
        let (token, mut polls) = (CancellationToken::new(), 0);
        let mut cancelled = pin!(token.cancelled());
        let mut rare = WhenWoken::new(std::future::poll_fn(|cx| {
            polls += 1;
            cancelled.as_mut().poll(cx)
        }));
        for _ in 0..3 {
            tokio::select! {
                biased;
                () = &mut rare => unreachable!("it was not cancelled"),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
        let cancelling = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            token.cancel();
        };
        tokio::join!(&mut rare, cancelling);
        drop(rare);
        assert_eq!(polls, 2);
    }
}
