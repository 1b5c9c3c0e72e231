//! Tickers. The threads of a ticker run a task every millisecond while a [`TickerGuard`] exists, and sleep otherwise.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The task that a thread of a ticker runs at each tick. The thread ends when the task returns `false`.
pub type Tick = Box<dyn FnMut() -> bool + Send>;

/// Owns threads that run a task at every tick while a [`TickerGuard`] exists. When it is dropped, its threads end.
#[derive(Debug)]
pub struct Ticker {
    state: Arc<TickerState>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct TickerState {
    guards: AtomicUsize,
    asleep: AtomicUsize,
    stop: AtomicBool,
}

/// Keeps the threads of a ticker awake until the guard is dropped.
#[derive(Debug)]
pub struct TickerGuard(Arc<TickerState>);

impl Ticker {
    /// Starts one thread for each pair of a name and a task. The thread runs the task at every tick. The threads sleep
    /// when no [`TickerGuard`] has existed for `idle_ticks` ticks.
    ///
    /// # Errors
    ///
    /// Fails when a thread cannot be started.
    #[allow(clippy::disallowed_methods, reason = "they tick however busy other threads are")]
    pub fn start(idle_ticks: u32, threads: impl IntoIterator<Item = (String, Tick)>) -> io::Result<Self> {
        let mut ticker = Self {
            state: Arc::default(),
            threads: Vec::new(),
        };
        for (name, tick) in threads {
            let state = Arc::clone(&ticker.state);
            let builder = thread::Builder::new().name(name);
            ticker.threads.push(builder.spawn(move || state.run(idle_ticks, tick))?);
        }
        Ok(ticker)
    }

    /// Keeps the ticker's threads awake until the returned guard is dropped.
    pub fn enter(&self) -> TickerGuard {
        self.state.guards.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
        TickerGuard(Arc::clone(&self.state))
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }
}

impl TickerState {
    fn run(&self, idle_ticks: u32, mut tick: Tick) {
        let mut idle = 0;
        while !self.stop.load(Ordering::SeqCst) {
            if self.guards.load(Ordering::SeqCst) > 0 {
                idle = 0;
            } else {
                idle += 1;
            }
            if idle > idle_ticks {
                self.asleep.fetch_add(1, Ordering::SeqCst);
                // Another thread may create a guard at this moment. It increments `guards` before it reads `asleep`.
                // This thread has incremented `asleep` before it reads `guards`. So at least one of two things happens:
                // this thread sees the guard and stays awake, or the other thread sees a sleeping thread and wakes it.
                if self.guards.load(Ordering::SeqCst) == 0 && !self.stop.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.asleep.fetch_sub(1, Ordering::SeqCst);
                idle = 0;
            }
            thread::sleep(TICK);
            if !tick() {
                break;
            }
        }
    }
}

impl Drop for TickerGuard {
    fn drop(&mut self) {
        self.0.guards.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.wake();
        for thread in self.threads.drain(..) {
            // Joining fails only if the thread panicked. The panic has been reported already, so the error is ignored.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticker_sleeps_while_there_is_no_guard() {
        let tick = || -> Tick { Box::new(|| true) };
        let threads = [("first".to_owned(), tick()), ("second".to_owned(), tick())];
        let ticker = Ticker::start(10, threads).unwrap();
        let wait_until_asleep = |expected: usize| {
            while ticker.state.asleep.load(Ordering::SeqCst) != expected {
                thread::yield_now();
            }
        };
        for _ in 0..2 {
            wait_until_asleep(2);
            let running = ticker.enter();
            wait_until_asleep(0);
            drop(running);
        }
        drop(ticker);
    }
}
