use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, CreateKind, ModifyKind},
};
use tokio::sync::Notify;

use crate::trail;

/// How to have the system's notices; the handler is called for each.
pub(crate) type Open = fn(Handler) -> notify::Result<RecommendedWatcher>;

pub(crate) fn open(handler: Handler) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(handler)
}

/// Rings when something has happened. Shared by a watch and the system's notices.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    pub(crate) notify: Notify,
    /// Whether what happened last is the end of something: a file was closed by its writer, or renamed.
    is_settled: AtomicBool,
}

impl Bell {
    fn ring(&self, is_settled: bool) {
        self.is_settled.store(is_settled, Ordering::Release);
        self.notify.notify_one();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }
}

/// Passes on that something has happened.
#[derive(Debug)]
pub(crate) struct Handler(Arc<Bell>);

impl notify::EventHandler for Handler {
    fn handle_event(&mut self, event: notify::Result<Event>) {
        match event.map(|event| event.kind) {
            Ok(EventKind::Access(AccessKind::Close(AccessMode::Write))) => self.0.ring(true),
            // A look opens files: it must not be a reason for another.
            Ok(EventKind::Access(_)) => {}
            // More is to come: whoever writes a file closes it.
            Ok(EventKind::Create(CreateKind::File) | EventKind::Modify(ModifyKind::Data(_))) => {
                self.0.ring(false);
            }
            Ok(EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_)) => self.0.ring(true),
            Ok(_) | Err(_) => self.0.ring(false),
        }
    }
}

/// The system's notices of what happens in some directories.
#[derive(Debug)]
pub(crate) struct Notices {
    open: Open,
    bell: Arc<Bell>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    poll: Duration,
    has_warned: bool,
}

impl Notices {
    /// `poll` is what the warning says when there are none.
    pub(crate) fn new(open: Open, bell: Arc<Bell>, poll: Duration) -> Self {
        Self {
            open,
            bell,
            watcher: None,
            watched: BTreeSet::new(),
            poll,
            has_warned: false,
        }
    }

    /// Have notices of whatever may change where these paths lead.
    pub(crate) fn watch(&mut self, paths: &[PathBuf]) {
        if self.watcher.is_none() {
            match (self.open)(Handler(self.bell.clone())) {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(error) => return self.warn(&error),
            }
        }
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        // All anew, each time: a watch stays with a directory that was moved away or removed, and is of no
        // use for the one that has taken its place.
        for directory in std::mem::take(&mut self.watched) {
            if let Err(error) = watcher.unwatch(&directory) {
                tracing::trace!(%error, directory = %directory.display(), "it was watched no more");
            }
        }
        let mut failed = None;
        for directory in paths.iter().flat_map(|path| trail::directories(path)) {
            if self.watched.contains(&directory) {
                continue;
            }
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(directory);
                }
                // It went meanwhile, of which its parent gives notice.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                %error,
                interval = ?self.poll,
                "the system gives no notice of changed files; they are looked at at an interval \
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
    async fn reading_is_no_reason_to_look() {
        for (kind, expected) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), None),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), None),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Write)),
                Some(true),
            ),
            (EventKind::Create(CreateKind::File), Some(false)),
            (EventKind::Create(CreateKind::Folder), Some(false)),
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), Some(false)),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), Some(true)),
            (EventKind::Remove(RemoveKind::Folder), Some(true)),
            (EventKind::Other, Some(false)),
        ] {
            let bell = Arc::new(Bell::default());
            Handler(bell.clone()).handle_event(Ok(Event::new(kind).set_flag(Flag::Rescan)));
            assert_eq!(was_told(&bell).await, expected, "{kind:?}");
        }
        let bell = Arc::new(Bell::default());
        Handler(bell.clone()).handle_event(Err(notify::Error::generic("lost")));
        assert_eq!(was_told(&bell).await, Some(false));
    }

    /// Whether the bell rang, and whether something had settled.
    async fn was_told(bell: &Bell) -> Option<bool> {
        tokio::time::timeout(Duration::ZERO, bell.notify.notified())
            .await
            .ok()
            .map(|()| bell.is_settled())
    }
}
