//! Reads [files](mod@file), and watches the content of files and directories.
//!
//! A [`Watch`] compares content. It reports a path when the bytes that the path leads to have changed, for whatever
//! reason: a file written in place, a temporary file renamed over it, a symbolic link swapped anywhere in the path (as
//! in mounted Secrets and ConfigMaps), or a directory removed and created again. Touching a file is not a change.
//!
//! Notifications of the operating system (inotify) trigger a check. Without them, polling finds changes.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod directory_watches;
pub mod file;
mod file_value;
mod fingerprint;
mod trail;

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use self::{
    directory_watches::{DirectoryWatches, EventSignal},
    fingerprint::DigestCache,
};
pub use self::{
    file_value::FileValue,
    fingerprint::{Extensions, Fingerprint, Stamp, is_selected_file},
};

/// The delays between an event and the check for changes that a [`Watch`] then makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// The time without events before a check. A check waits at most ten times this long. Default: 100 ms.
    pub debounce: Duration,
    /// The delay between an event and a check if the event ended a change: a program has closed a written file, or
    /// renamed a file. This file is complete, so the delay only collects changes of other files. Default: 10 ms.
    pub settle: Duration,
    /// The delay between a write to a file and a check if the file is still open. The file may be incomplete, so each
    /// further write starts the delay again, but a check waits at most ten times this long. Default: 2 s.
    pub hold: Duration,
    /// The interval at which a watch checks for changes if there are no events. Default: 10 s.
    pub poll: Duration,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(100),
            settle: Duration::from_millis(10),
            hold: Duration::from_secs(2),
            poll: Duration::from_secs(10),
        }
    }
}

/// A check is delayed by at most this multiple of [`WatchConfig::debounce`] or [`WatchConfig::hold`].
const MAX_DELAY_FACTOR: u32 = 10;

/// A check that finds a change is repeated until it finds no further change, because a program may still be changing
/// files. The pause between two of these checks is [`WatchConfig::settle`] times this number.
const RECHECK_FACTOR: u32 = 5;

/// Watches files and directories, and reports changes of their content. Dropping this value ends the watching.
#[derive(Debug)]
pub struct Watch {
    config: WatchConfig,
    fingerprint: Fingerprint,
    /// Whether a file may have changed since the last check, so that the next check is due now.
    is_due: bool,
    /// Whether the operating system has reported an event since the last check.
    is_notified: bool,
    next_poll: Instant,
    signal: Arc<EventSignal>,
    /// The state of a check. The check runs on another thread, so this value is shared with the thread. If the future
    /// that waits for the check is dropped, the thread still finishes the check.
    scanner: Arc<Mutex<Scanner>>,
}

#[derive(Debug)]
struct Scanner {
    directory_watches: DirectoryWatches,
    digests: DigestCache,
}

impl Watch {
    /// Watches these files and directories from now on. To miss no change, read them after this call.
    ///
    /// The paths need not exist. The files of a directory are watched, but not its subdirectories.
    pub async fn new(paths: impl IntoIterator<Item = PathBuf>, config: WatchConfig) -> Self {
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        let fingerprint = run_blocking(move || Fingerprint::read(paths)).await;
        Self::from_fingerprint(fingerprint, config)
    }

    /// Watches the paths in a fingerprint, and reports the changes that were made after the fingerprint was taken.
    pub fn from_fingerprint(fingerprint: Fingerprint, config: WatchConfig) -> Self {
        Self::with_opener(fingerprint, config, directory_watches::open_watcher)
    }

    fn with_opener(fingerprint: Fingerprint, config: WatchConfig, open: directory_watches::OpenWatcher) -> Self {
        let signal = Arc::new(EventSignal::default());
        Self {
            config,
            fingerprint,
            is_due: true,
            is_notified: false,
            next_poll: Instant::now() + config.poll,
            scanner: Arc::new(Mutex::new(Scanner {
                directory_watches: DirectoryWatches::new(open, signal.clone(), config.poll),
                digests: DigestCache::default(),
            })),
            signal,
        }
    }

    /// Returns a handle with which to wait until programs no longer write to the watched files.
    pub fn writers(&self) -> FileWriters {
        FileWriters {
            config: self.config,
            signal: self.signal.clone(),
        }
    }

    /// Returns the paths that are watched.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.fingerprint.contents.keys()
    }

    /// Watches the paths in `fingerprint` instead of the current paths. Reports the changes that were made after the
    /// fingerprint was taken.
    pub fn set_fingerprint(&mut self, fingerprint: Fingerprint) {
        self.is_due |= self.fingerprint != fingerprint;
        self.fingerprint = fingerprint;
    }

    /// Waits for a change, and returns the paths whose content has changed since they were last reported. Cancel safe.
    pub async fn changed(&mut self) -> Vec<PathBuf> {
        loop {
            if !self.is_due {
                self.wait_until_due().await;
            }
            let mut current = self.check_files().await;
            if current != self.fingerprint && !self.signal.is_settled() {
                current = self.check_until_quiet(current).await;
            }
            self.is_due = false;
            self.next_poll = Instant::now() + self.config.poll;
            let changed_paths = current.differing_paths(&self.fingerprint);
            self.fingerprint = current;
            if !changed_paths.is_empty() {
                return changed_paths;
            }
        }
    }

    /// Repeats the check until two checks in a row find the same content, but gives up after a while. Returns what the
    /// last check found.
    async fn check_until_quiet(&self, mut previous: Fingerprint) -> Fingerprint {
        let deadline = Instant::now() + self.config.hold * MAX_DELAY_FACTOR;
        loop {
            tokio::time::sleep(self.config.settle * RECHECK_FACTOR).await;
            let current = self.check_files().await;
            if current == previous || Instant::now() >= deadline {
                return current;
            }
            previous = current;
        }
    }

    async fn wait_until_due(&mut self) {
        if !self.is_notified {
            let notified = timeout_at(self.next_poll, self.signal.notify.notified());
            self.is_notified = notified.await.is_ok();
        }
        if self.is_notified {
            let started = Instant::now();
            loop {
                let (pause, patience) = if self.signal.is_written_to(self.config.hold) {
                    (self.config.hold, self.config.hold)
                } else if self.signal.is_settled() {
                    (self.config.settle, self.config.debounce)
                } else {
                    (self.config.debounce, self.config.debounce)
                };
                let quiet_deadline = (Instant::now() + pause).min(started + patience * MAX_DELAY_FACTOR);
                if timeout_at(quiet_deadline, self.signal.notify.notified()).await.is_err() {
                    break;
                }
            }
        }
        self.is_notified = false;
        self.is_due = true;
    }

    async fn check_files(&self) -> Fingerprint {
        let paths: Vec<PathBuf> = self.paths().cloned().collect();
        let extensions = self.fingerprint.extensions;
        let scanner = self.scanner.clone();
        run_blocking(move || {
            let mut scanner = scanner.lock();
            let Scanner {
                directory_watches,
                digests,
            } = &mut *scanner;
            // The notifications are set up before the content is read, so that no change in between is missed.
            directory_watches.watch(&paths, extensions);
            Fingerprint::read_with_digests(paths, extensions, digests)
        })
        .await
    }
}

/// A handle with which a task can wait until no program writes to the watched files any more.
#[derive(Clone, Debug)]
pub struct FileWriters {
    config: WatchConfig,
    signal: Arc<EventSignal>,
}

impl FileWriters {
    /// Waits until no watched file is being written, but at most for `patience`. Returns the files still being written.
    /// A file counts as being written until [`WatchConfig::hold`] after its last write, unless it is closed before.
    pub async fn wait_and_list_unfinished(&self, patience: Duration) -> Vec<PathBuf> {
        let deadline = Instant::now() + patience;
        loop {
            let unfinished_files = self.signal.recently_written_files(self.config.hold);
            if unfinished_files.is_empty() || Instant::now() >= deadline {
                return unfinished_files;
            }
            tokio::time::sleep(self.config.settle).await;
        }
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(output) => output,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down and will drop this future, which therefore never completes.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests;
