use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

use crate::trail;

/// How to have the system's notices; the handler is called for each.
pub(crate) type Open = fn(Handler) -> notify::Result<RecommendedWatcher>;

pub(crate) fn open(handler: Handler) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(handler)
}

/// Passes on that something has happened.
#[derive(Debug)]
pub(crate) struct Handler(Arc<Notify>);

impl notify::EventHandler for Handler {
    fn handle_event(&mut self, event: notify::Result<Event>) {
        // A look opens files: it must not be a reason for another.
        let is_reading = event.is_ok_and(|event| {
            matches!(event.kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
        });
        if !is_reading {
            self.0.notify_one();
        }
    }
}

/// The system's notices of what happens in some directories.
#[derive(Debug)]
pub(crate) struct Notices {
    open: Open,
    notify: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    poll: Duration,
    has_warned: bool,
}

impl Notices {
    /// `poll` is what the warning says when there are none.
    pub(crate) fn new(open: Open, notify: Arc<Notify>, poll: Duration) -> Self {
        Self {
            open,
            notify,
            watcher: None,
            watched: BTreeSet::new(),
            poll,
            has_warned: false,
        }
    }

    /// Have notices of whatever may change where these paths lead.
    pub(crate) fn watch(&mut self, paths: &[PathBuf]) {
        if self.watcher.is_none() {
            match (self.open)(Handler(self.notify.clone())) {
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
        event::{CreateKind, Flag, ModifyKind, RemoveKind, RenameMode},
    };

    use super::*;

    #[tokio::test]
    async fn reading_is_no_reason_to_look() {
        for (kind, expected) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), true),
            (EventKind::Create(CreateKind::File), true),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), true),
            (EventKind::Remove(RemoveKind::Folder), true),
            (EventKind::Other, true),
        ] {
            let notify = Arc::new(Notify::new());
            Handler(notify.clone()).handle_event(Ok(Event::new(kind).set_flag(Flag::Rescan)));
            let was_told = tokio::time::timeout(Duration::ZERO, notify.notified())
                .await
                .is_ok();
            assert_eq!(was_told, expected, "{kind:?}");
        }
        let notify = Arc::new(Notify::new());
        Handler(notify.clone()).handle_event(Err(notify::Error::generic("lost")));
        assert!(
            tokio::time::timeout(Duration::ZERO, notify.notified())
                .await
                .is_ok()
        );
    }
}
