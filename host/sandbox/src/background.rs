use std::sync::{Arc, OnceLock};

use admittance_admission::lower_priority;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of concurrent compilations while requests are served, so that a long one does not delay the next.
const TURNS: usize = 2;

/// Limits concurrent compilations while requests are served. Lives as long as the sandbox.
pub(crate) struct Background {
    /// The thread that compiles in this process. The cell is set when serving starts.
    begun: OnceLock<Option<Arc<ThreadPool>>>,
    turns: Arc<Semaphore>,
}

pub(crate) struct Turn {
    pool: Option<Arc<ThreadPool>>,
    _permit: OwnedSemaphorePermit,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            begun: OnceLock::new(),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }
}

impl Background {
    /// Starts limiting compilations, with a separate thread if they run in this process.
    pub(crate) fn begin(&self, in_process: bool) {
        self.begun
            .get_or_init(|| in_process.then(pool).flatten().map(Arc::new));
    }

    /// Waits for a permit. `None` before serving starts: compilations are not limited yet.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        let pool = self.begun.get()?.clone();
        let permit = self.turns.clone().acquire_owned().await.ok()?;
        Some(Turn {
            pool,
            _permit: permit,
        })
    }
}

fn pool() -> Option<ThreadPool> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(1)
        .thread_name(|_| "plugin-compiler".to_owned())
        .start_handler(|_| lower_priority())
        .build();
    if let Err(error) = &pool {
        tracing::warn!(%error, "the compiler thread cannot be started; plugins are compiled on all cores");
    }
    pool.ok()
}

impl Turn {
    /// Compiles in this process on the separate thread, and nothing on any other thread.
    pub(crate) fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use rayon::prelude::*;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_compilation_in_the_background_uses_one_thread() {
        let background = Background::default();
        assert!(background.turn().await.is_none());
        background.begin(true);
        background.begin(true);
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
    async fn compilations_in_the_background_are_limited() {
        let background = Background::default();
        background.begin(false);
        let mut first = Vec::new();
        for _ in 0..TURNS {
            first.push(background.turn().await);
        }
        let mut next = std::pin::pin!(background.turn());
        assert!(timeout(Duration::ZERO, next.as_mut()).await.is_err());
        first.pop();
        assert!(next.await.is_some());
    }
}
