use std::sync::{Arc, OnceLock};

use admittance_admission::lower_priority;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of concurrent compilations. There are two, so one long compilation does not delay all others.
const MAX_COMPILATIONS: usize = 2;

/// Limits how many compilations run concurrently. The limit applies only after the program has begun to serve requests.
pub(crate) struct CompilationLimit {
    /// The thread pool for compilations in this process. It is set when the program begins to serve requests, and empty
    /// if another process compiles.
    thread_pool: OnceLock<Option<Arc<ThreadPool>>>,
    permits: Arc<Semaphore>,
}

pub(crate) struct CompilationPermit {
    pool: Option<Arc<ThreadPool>>,
    _permit: OwnedSemaphorePermit,
}

impl Default for CompilationLimit {
    fn default() -> Self {
        Self {
            thread_pool: OnceLock::new(),
            permits: Arc::new(Semaphore::new(MAX_COMPILATIONS)),
        }
    }
}

impl CompilationLimit {
    pub(crate) fn enable(&self, in_process: bool) {
        self.thread_pool
            .get_or_init(|| in_process.then(start_pool).flatten().map(Arc::new));
    }

    /// Waits for a permit to compile. Returns `None` at once if the program does not serve requests yet, because
    /// compilations are not limited before that.
    pub(crate) async fn acquire(&self) -> Option<CompilationPermit> {
        let pool = self.thread_pool.get()?.clone();
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        Some(CompilationPermit { pool, _permit: permit })
    }
}

fn start_pool() -> Option<ThreadPool> {
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

impl CompilationPermit {
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
    async fn a_background_compilation_uses_one_thread() {
        let compilation_limit = CompilationLimit::default();
        assert!(compilation_limit.acquire().await.is_none());
        compilation_limit.enable(true);
        compilation_limit.enable(true);
        let permit = compilation_limit.acquire().await.unwrap();
        let names = permit.run(|| {
            let name = |_| thread::current().name().unwrap_or_default().to_owned();
            (0..64)
                .into_par_iter()
                .map(name)
                .collect::<std::collections::HashSet<_>>()
        });
        assert_eq!(names, ["plugin-compiler".to_owned()].into());
    }

    #[tokio::test]
    async fn the_number_of_background_compilations_is_limited() {
        let compilation_limit = CompilationLimit::default();
        compilation_limit.enable(false);
        let mut permits = Vec::new();
        for _ in 0..MAX_COMPILATIONS {
            permits.push(compilation_limit.acquire().await);
        }
        let mut next = std::pin::pin!(compilation_limit.acquire());
        assert!(timeout(Duration::ZERO, next.as_mut()).await.is_err());
        permits.pop();
        assert!(next.await.is_some());
    }
}
