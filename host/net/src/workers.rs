//! The threads that serve connections, one for each core, and one thread that accepts them, so that no computation
//! delays accepting. Each thread has its own runtime.
//!
//! A connection, its plugin calls and its upstream connections stay on one thread. So a request wakes no other thread.

use std::{
    cell::Cell,
    io,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use hyper::rt::Executor;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

thread_local! {
    static INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the index of the current thread among the workers, or `None` if it is not a worker.
pub(crate) fn index() -> Option<usize> {
    INDEX.get()
}

pub(crate) fn count() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The time slice of the threads that serve connections. It is shorter than the default, but enough for most requests.
const TIME_SLICE: Duration = Duration::from_micros(200);

/// The number of tasks between two checks for new data. With tokio's default of 61, large bodies delay other requests.
const TASKS_BETWEEN_EVENTS: u32 = 8;

/// Gives the current thread a short time slice, so that it can preempt other threads when it wakes. Since Linux 6.12, a
/// thread keeps its processor until its time slice ends, unless a thread with a shorter slice wakes. Priorities do not
/// change this. Threads that the current thread starts get the default slice.
pub fn shorten_time_slice() {
    if let Err(error) = set_time_slice(TIME_SLICE) {
        tracing::debug!(%error, "the time slice of this thread cannot be set");
    }
}

#[cfg(not(target_os = "linux"))]
fn set_time_slice(_: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe interface to this system call exists")]
fn set_time_slice(slice: Duration) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        // With this flag, threads that this thread starts get the default time slice. Otherwise, threads for long work
        // would have the short time slice, too.
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel only reads `size` bytes, and does not keep the pointer. The ID 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A thread that serves connections. When this value is dropped, the thread ends, and its tasks are aborted.
#[derive(Debug)]
pub struct ServingThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl ServingThread {
    pub fn start(name: impl Into<String>) -> io::Result<Self> {
        Self::start_with_setup(name, || ())
    }

    #[allow(clippy::disallowed_methods, reason = "these are the threads that serve")]
    fn start_with_setup(name: impl Into<String>, begin: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .event_interval(TASKS_BETWEEN_EVENTS)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name(name.into()).spawn(move || {
            begin();
            shorten_time_slice();
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self {
            runtime: handle,
            _stop: stop,
        })
    }

    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

/// The threads that accept and serve connections. When the last clone is dropped, they end and abort their tasks.
#[derive(Clone, Debug)]
pub struct Workers {
    serving: Arc<[Arc<Worker>]>,
    accepting: Arc<ServingThread>,
}

#[derive(Debug)]
struct Worker {
    index: usize,
    thread: ServingThread,
    connections: AtomicUsize,
    /// The number of requests in flight that this worker handles for HTTP/2 connections.
    streams: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct WorkerSlot(Arc<Worker>);

impl Workers {
    pub fn start() -> io::Result<Self> {
        let workers = (0..count()).map(|index| Worker::start(index).map(Arc::new));
        Ok(Self {
            serving: workers.collect::<io::Result<_>>()?,
            accepting: Arc::new(ServingThread::start("accepting")?),
        })
    }

    pub(crate) fn accept_runtime(&self) -> Handle {
        self.accepting.runtime.clone()
    }

    pub(crate) fn assign(&self) -> Option<WorkerSlot> {
        let worker = self
            .serving
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))?;
        worker.connections.fetch_add(1, Ordering::Relaxed);
        Some(WorkerSlot(worker.clone()))
    }
}

impl Worker {
    fn start(index: usize) -> io::Result<Self> {
        Ok(Self {
            index,
            thread: ServingThread::start_with_setup(format!("connections-{index}"), move || {
                INDEX.set(Some(index));
            })?,
            connections: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
        })
    }
}

impl WorkerSlot {
    pub(crate) fn runtime(&self) -> &Handle {
        self.0.thread.runtime()
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs the requests of one HTTP/2 connection on all workers. Otherwise, one worker would do all the work of a client
/// such as kube-apiserver, which sends very many requests on a connection.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor(pub(crate) Option<Workers>);

impl StreamExecutor {
    fn worker(&self) -> Option<&Arc<Worker>> {
        let Self(Some(workers)) = self else {
            return None;
        };
        let load = |worker: &&Arc<Worker>| (worker.streams.load(Ordering::Relaxed), Some(worker.index) != index());
        workers.serving.iter().min_by_key(load)
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Some(worker) = self.worker().cloned() else {
            tokio::spawn(stream);
            return;
        };
        worker.streams.fetch_add(1, Ordering::Relaxed);
        let runtime = worker.thread.runtime().clone();
        let in_flight = StreamInFlight(worker);
        runtime.spawn(async move {
            let _in_flight = in_flight;
            stream.await
        });
    }
}

struct StreamInFlight(Arc<Worker>);

impl Drop for StreamInFlight {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nice value and the time slice of the current thread. Before Linux 6.12, the time slice is not known.
    #[expect(unsafe_code, reason = "no safe interface to this system call exists")]
    fn scheduling() -> (i32, u64) {
        // SAFETY: zeros are valid, because all fields are integers.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>();
        // SAFETY: the kernel writes at most `size` bytes, which is the size of `attributes`. The argument 0 stands for
        // the calling thread.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        (attributes.sched_nice, attributes.sched_runtime)
    }

    #[test]
    fn a_shorter_time_slice_is_not_inherited_and_does_not_change_the_priority() {
        let before = scheduling();
        let (shortened, started) = thread::spawn(|| {
            set_time_slice(TIME_SLICE).unwrap();
            (scheduling(), thread::spawn(scheduling).join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(shortened.0, before.0);
        let reported = [0, u64::try_from(TIME_SLICE.as_nanos()).unwrap()];
        assert!(reported.contains(&shortened.1), "{shortened:?}");
        assert_eq!(started, before, "threads that it starts");
    }
}
