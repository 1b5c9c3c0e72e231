use std::sync::{Arc, OnceLock};

use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Lets one preparation at a time run, on one core, while requests are served. Lives as long as the
/// sandbox.
pub(crate) struct Background {
    /// Set when it has begun; without a pool when the thread did not start.
    pool: OnceLock<Option<Arc<ThreadPool>>>,
    turns: Arc<Semaphore>,
}

/// The right to prepare. Lives for one preparation.
pub(crate) struct Turn {
    pool: Arc<ThreadPool>,
    _permit: OwnedSemaphorePermit,
}

/// How far compiling stands back behind what serves, as `nice` counts.
const NICE: i32 = 5;

impl Default for Background {
    fn default() -> Self {
        Self {
            pool: OnceLock::new(),
            turns: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Background {
    /// From now on.
    pub(crate) fn begin(&self) {
        self.pool.get_or_init(|| {
            let pool = ThreadPoolBuilder::new()
                .num_threads(1)
                .thread_name(|_| "plugin-compiler".to_owned())
                .start_handler(|_| {
                    // Of this thread alone, as Linux has it.
                    let _ = rustix::process::nice(NICE);
                })
                .build();
            if let Err(error) = &pool {
                tracing::warn!(%error, "the thread for compiling does not start; plugins are compiled on all cores");
            }
            pool.ok().map(Arc::new)
        });
    }

    /// Wait until it is one's turn. None: it has not begun, and nobody has to wait.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        let pool = self.pool.get()?.clone()?;
        let permit = self.turns.clone().acquire_owned().await.ok()?;
        Some(Turn {
            pool,
            _permit: permit,
        })
    }
}

impl Turn {
    /// Do the work on the one thread, and everything in it that would use several.
    pub(crate) fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rayon::prelude::*;

    use super::*;

    #[tokio::test]
    async fn work_that_would_use_several_threads_uses_one() {
        let background = Background::default();
        assert!(background.turn().await.is_none());
        background.begin();
        background.begin();
        let turn = background.turn().await.unwrap();
        let names = turn.run(|| {
            let name = |_| thread::current().name().unwrap_or_default().to_owned();
            (0..64)
                .into_par_iter()
                .map(name)
                .collect::<std::collections::HashSet<_>>()
        });
        assert_eq!(names, ["plugin-compiler".to_owned()].into());
    }

    #[tokio::test]
    async fn one_turn_at_a_time() {
        let background = Background::default();
        background.begin();
        let first = background.turn().await;
        let mut second = std::pin::pin!(background.turn());
        assert!(futures_poll(second.as_mut()).await.is_none());
        drop(first);
        assert!(second.await.is_some());
    }

    /// What the future has now, if it is ready.
    async fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut future = Some(future);
        std::future::poll_fn(|context| {
            let poll = future.take().map(|future| future.poll(context));
            std::task::Poll::Ready(match poll {
                Some(std::task::Poll::Ready(output)) => Some(output),
                _ => None,
            })
        })
        .await
    }
}
