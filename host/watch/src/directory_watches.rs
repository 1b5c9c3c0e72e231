use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::{OsStr, OsString},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, CreateKind, ModifyKind},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    fingerprint::{Extensions, is_selected_file},
    trail,
};

pub(crate) type OpenWatcher = fn(EventHandler) -> notify::Result<RecommendedWatcher>;

pub(crate) fn open_watcher(handler: EventHandler) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(handler)
}

/// Wakes a watch when the operating system reports an event.
#[derive(Debug, Default)]
pub(crate) struct EventSignal {
    pub(crate) notify: Notify,
    /// Whether the last event is the end of a change: a file was closed by its writer, or renamed.
    is_settled: AtomicBool,
    /// The watched files that a program is writing, each with the time of its last write.
    last_writes: Mutex<HashMap<PathBuf, Instant>>,
    watched_paths: Mutex<WatchedPaths>,
}

#[derive(Debug, Default)]
struct WatchedPaths {
    /// The watched files, and the directories in which files are watched.
    paths: HashSet<PathBuf>,
    names: HashSet<OsString>,
    extensions: Extensions,
}

impl EventSignal {
    fn signal_event(&self, is_settled: bool) {
        self.is_settled.store(is_settled, Ordering::Release);
        self.notify.notify_one();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    /// Returns whether any watched file is open and was written to within this time.
    pub(crate) fn is_written_to(&self, within: Duration) -> bool {
        !self.recently_written_files(within).is_empty()
    }

    pub(crate) fn recently_written_files(&self, within: Duration) -> Vec<PathBuf> {
        let mut last_writes = self.last_writes.lock();
        last_writes.retain(|_, last| last.elapsed() < within);
        let mut paths: Vec<PathBuf> = last_writes.keys().cloned().collect();
        paths.sort();
        paths
    }

    fn record_opened(&self, mut paths: Vec<PathBuf>) -> bool {
        {
            let watched_paths = self.watched_paths.lock();
            paths.retain(|path| {
                // A program may write to other files in a watched directory all the time, such as log files. Their
                // names show that they are not watched, so the slower check with `canonicalize` is skipped for them.
                if !is_selected_file(path, watched_paths.extensions)
                    && !path.file_name().is_some_and(|name| watched_paths.names.contains(name))
                {
                    return false;
                }
                let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
                let is_watched = |directory: PathBuf| {
                    let file = directory.join(path.file_name().unwrap_or_default());
                    watched_paths.paths.contains(&file)
                        || watched_paths.paths.contains(&directory) && is_selected_file(&file, watched_paths.extensions)
                };
                directory.is_some_and(is_watched)
            });
        }
        let is_any = !paths.is_empty();
        let mut last_writes = self.last_writes.lock();
        last_writes.extend(paths.into_iter().map(|path| (path, Instant::now())));
        is_any
    }

    fn set_watched_paths(&self, paths: &[PathBuf], extensions: Extensions) {
        let mut resolved_paths = HashSet::new();
        for path in paths {
            if let Ok(target) = path.canonicalize() {
                let directories = trail::find_directories(path).into_iter();
                let resolved_directories = directories.filter_map(|directory| directory.canonicalize().ok());
                resolved_paths.extend(resolved_directories.filter(|directory| directory.starts_with(&target)));
                resolved_paths.insert(target);
            } else if let Some(Ok(directory)) = path.parent().map(Path::canonicalize) {
                resolved_paths.insert(directory.join(path.file_name().unwrap_or_default()));
            }
        }
        let names = resolved_paths.iter().filter_map(|path| path.file_name());
        let watched_paths = WatchedPaths {
            names: names.map(OsStr::to_owned).collect(),
            paths: resolved_paths,
            extensions,
        };
        *self.watched_paths.lock() = watched_paths;
    }

    fn record_closed(&self, paths: &[PathBuf]) {
        let mut last_writes = self.last_writes.lock();
        for path in paths {
            last_writes.remove(path);
        }
    }
}

#[derive(Debug)]
pub(crate) struct EventHandler(Arc<EventSignal>);

impl notify::EventHandler for EventHandler {
    fn handle_event(&mut self, event: notify::Result<Event>) {
        let Ok(event) = event else {
            return self.0.signal_event(false);
        };
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                self.0.record_closed(&event.paths);
                self.0.signal_event(true);
            }
            // A file was opened or read. Each check reads files itself, so if reading counted as a change, each check
            // would trigger another one.
            EventKind::Access(_) => {}
            // A program has created a file, and is probably still writing to it. The change is complete when the
            // program closes the file, which causes another event.
            EventKind::Create(CreateKind::File) => {
                self.0
                    .record_opened(event.paths.into_iter().filter(|path| is_new(path)).collect());
                self.0.signal_event(false);
            }
            EventKind::Modify(ModifyKind::Data(_)) => {
                if self.0.record_opened(event.paths) {
                    self.0.signal_event(false);
                }
            }
            EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => {
                self.0.record_closed(&event.paths);
                self.0.signal_event(true);
            }
            _ => self.0.signal_event(false),
        }
    }
}

/// Returns whether the path that was just created is a new regular file. A symbolic link, or a hard link to an existing
/// file, is not new.
fn is_new(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1)
}

/// Registers with the operating system for the events in watched directories.
#[derive(Debug)]
pub(crate) struct DirectoryWatches {
    open: OpenWatcher,
    signal: Arc<EventSignal>,
    watcher: Option<RecommendedWatcher>,
    watched_directories: BTreeSet<PathBuf>,
    poll: Duration,
    has_warned: bool,
}

impl DirectoryWatches {
    /// Creates an empty set of registrations. If notifications are unavailable, a warning says that changes are found
    /// only at the interval `poll`.
    pub(crate) fn new(open: OpenWatcher, signal: Arc<EventSignal>, poll: Duration) -> Self {
        Self {
            open,
            signal,
            watcher: None,
            watched_directories: BTreeSet::new(),
            poll,
            has_warned: false,
        }
    }

    pub(crate) fn watch(&mut self, paths: &[PathBuf], extensions: Extensions) {
        if self.watcher.is_none() {
            match (self.open)(EventHandler(self.signal.clone())) {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(error) => return self.warn(&error),
            }
        }
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        self.signal.set_watched_paths(paths, extensions);
        // If a directory is renamed, its registration moves with it. So all directories are registered again.
        for directory in std::mem::take(&mut self.watched_directories) {
            if let Err(error) = watcher.unwatch(&directory) {
                tracing::trace!(%error, directory = %directory.display(), "it is no longer watched");
            }
        }
        let mut last_error = None;
        for directory in paths.iter().flat_map(|path| trail::find_directories(path)) {
            if self.watched_directories.contains(&directory) {
                continue;
            }
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched_directories.insert(directory);
                }
                // The directory has just been removed.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                Err(error) => last_error = Some(error),
            }
        }
        if let Some(error) = last_error {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                %error,
                interval = ?self.poll,
                "file change notifications are not available; files are polled at an interval \
                 (on Linux, see fs.inotify.max_user_watches and max_user_instances)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use notify::{
        EventHandler as _,
        event::{DataChange, Flag, RemoveKind, RenameMode},
    };

    use super::*;

    #[tokio::test]
    async fn only_events_that_may_change_content_are_signalled() {
        for (kind, expected) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), None),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), None),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), Some(true)),
            (EventKind::Create(CreateKind::File), Some(false)),
            (EventKind::Create(CreateKind::Folder), Some(false)),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), Some(true)),
            (EventKind::Remove(RemoveKind::Folder), Some(true)),
            (EventKind::Other, Some(false)),
        ] {
            let signal = Arc::new(EventSignal::default());
            EventHandler(signal.clone()).handle_event(Ok(Event::new(kind).set_flag(Flag::Rescan)));
            assert_eq!(take_signal(&signal).await, expected, "{kind:?}");
        }
        let signal = Arc::new(EventSignal::default());
        EventHandler(signal.clone()).handle_event(Err(notify::Error::generic("lost")));
        assert_eq!(take_signal(&signal).await, Some(false));
    }

    #[tokio::test]
    async fn writes_to_files_that_are_not_watched_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let watched_paths = [root.join("rules.txt"), root.join("chains")];
        std::fs::create_dir(root.join("chains")).unwrap();
        for (file, expected) in [
            ("rules.txt", Some(false)),
            ("program.log", None),
            ("chains/pods.yaml", Some(false)),
            ("chains/program.log", None),
            ("chains/rules.txt", None),
        ] {
            let signal = Arc::new(EventSignal::default());
            signal.set_watched_paths(&watched_paths, &["yaml"]);
            let kind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
            let event = Event::new(kind).add_path(root.join(file));
            EventHandler(signal.clone()).handle_event(Ok(event));
            assert_eq!(take_signal(&signal).await, expected, "{file}");
        }
    }

    /// Returns whether an event has arrived, and if so, whether it was the end of a change, such as the closing of a
    /// written file. Returns `None` if no event has arrived.
    async fn take_signal(signal: &EventSignal) -> Option<bool> {
        tokio::time::timeout(Duration::ZERO, signal.notify.notified())
            .await
            .ok()
            .map(|()| signal.is_settled())
    }
}
