//! Reads [files](mod@file), and tells when what files and directories hold has changed.
//!
//! A [`Watch`] goes by content: it reports a path when the bytes that the path leads to are others than
//! before, however they got there. A file written in place, a temporary file that is renamed over it, a
//! symbolic link anywhere on the way that is swapped (Kubernetes mounts Secrets and ConfigMaps so), a
//! directory that goes and comes back: all the same. Being touched is no change.
//!
//! The system's notices (inotify) say when to look. Should they be missing, a look at an interval finds
//! the change all the same.

pub mod file;
mod fingerprint;
mod notices;
mod trail;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

pub use self::fingerprint::{Fingerprint, Stamp};
use self::{
    fingerprint::Digests,
    notices::{Notices, Notifier},
};

/// When a [`Watch`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// How long nothing must happen before it looks. While things go on happening, it looks every ten times as
    /// long. Default: 100 ms.
    pub debounce: Duration,
    /// The same after a file was closed by its writer or renamed, which leaves it whole: only other files
    /// may follow. Default: 10 ms.
    pub settle: Duration,
    /// The same while a file is open that was written to: it may be half of what it will be. A file that is
    /// written to for more than ten times as long is looked at all the same. Default: 2 s.
    pub hold: Duration,
    /// How often it looks without having been told to. Default: 10 s.
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

/// How many times the debounce, or the hold, a look is put off at most.
const PATIENCE: u32 = 10;

/// After so many times the settle time a change that was not announced as complete is looked at again; it
/// counts when it is the same.
const SECOND_LOOK: u32 = 5;

/// Files and directories that are looked at again when they change. It lives as long as somebody is
/// interested: dropped, it stops looking.
#[derive(Debug)]
pub struct Watch {
    config: WatchConfig,
    seen: Fingerprint,
    /// Whether something may have changed since the last look.
    is_due: bool,
    /// Whether something has happened since, of which the end is waited for.
    was_told: bool,
    next_poll: Instant,
    notifier: Arc<Notifier>,
    /// Shared with a look that goes on when nobody waits for it any more.
    scanner: Arc<Mutex<Scanner>>,
}

/// What a look needs.
#[derive(Debug)]
struct Scanner {
    notices: Notices,
    digests: Digests,
}

impl Watch {
    /// Watch these files and directories from now on. Read what they hold after this, not before: then no
    /// change is missed.
    ///
    /// None of them need be there. Of a directory, the files in it count, and not those in directories
    /// below.
    pub async fn new(paths: impl IntoIterator<Item = PathBuf>, config: WatchConfig) -> Self {
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        let seen = blocking(move || Fingerprint::of(paths)).await;
        Self::since(seen, config)
    }

    /// Watch the paths of this fingerprint, and report what has changed since it was taken.
    pub fn since(seen: Fingerprint, config: WatchConfig) -> Self {
        Self::with_opener(seen, config, notices::open)
    }

    fn with_opener(seen: Fingerprint, config: WatchConfig, open: notices::Open) -> Self {
        let notifier = Arc::new(Notifier::default());
        Self {
            config,
            seen,
            is_due: true,
            was_told: false,
            next_poll: Instant::now() + config.poll,
            scanner: Arc::new(Mutex::new(Scanner {
                notices: Notices::new(open, notifier.clone(), config.poll),
                digests: Digests::default(),
            })),
            notifier,
        }
    }

    /// The paths that are watched.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.seen.0.keys()
    }

    /// Watch the paths of this fingerprint in place of those before, and report what has changed since it
    /// was taken.
    pub fn expect(&mut self, seen: Fingerprint) {
        // New paths want notices, and what changed before those are there wants a look.
        self.is_due |= self.seen != seen;
        self.seen = seen;
    }

    /// Wait until something has changed, and say which of the paths lead to other content than when they
    /// were last reported. Nothing is lost when the future is dropped before that.
    pub async fn changed(&mut self) -> Vec<PathBuf> {
        loop {
            if !self.is_due {
                self.wait().await;
            }
            let mut found = self.look().await;
            if found != self.seen && !self.notifier.is_settled() {
                found = self.until_quiet(found).await;
            }
            self.is_due = false;
            self.next_poll = Instant::now() + self.config.poll;
            let changed = found.differs_from(&self.seen);
            self.seen = found;
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// What the paths hold when two looks in a row find the same, or when they go on changing for too long.
    async fn until_quiet(&self, mut found: Fingerprint) -> Fingerprint {
        let latest = Instant::now() + self.config.hold * PATIENCE;
        loop {
            tokio::time::sleep(self.config.settle * SECOND_LOOK).await;
            let again = self.look().await;
            if again == found || Instant::now() >= latest {
                return again;
            }
            found = again;
        }
    }

    /// Until there is a reason to look.
    async fn wait(&mut self) {
        if !self.was_told {
            let told = timeout_at(self.next_poll, self.notifier.notify.notified());
            self.was_told = told.await.is_ok();
        }
        if self.was_told {
            let started = Instant::now();
            loop {
                let (pause, patience) = if self.notifier.is_written_to(self.config.hold) {
                    (self.config.hold, self.config.hold)
                } else if self.notifier.is_settled() {
                    (self.config.settle, self.config.debounce)
                } else {
                    (self.config.debounce, self.config.debounce)
                };
                let quiet = (Instant::now() + pause).min(started + patience * PATIENCE);
                if timeout_at(quiet, self.notifier.notify.notified()).await.is_err() {
                    break;
                }
            }
        }
        self.was_told = false;
        self.is_due = true;
    }

    async fn look(&self) -> Fingerprint {
        let paths: Vec<PathBuf> = self.paths().cloned().collect();
        let scanner = self.scanner.clone();
        blocking(move || {
            let mut scanner = scanner.lock().unwrap_or_else(PoisonError::into_inner);
            let Scanner { notices, digests } = &mut *scanner;
            // First the notices, then the content: what changes between the two is noticed.
            notices.watch(&paths);
            Fingerprint::with(paths, digests)
        })
        .await
    }
}

/// Files may be slow, and are no work for the threads that serve.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is stopping, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests;
