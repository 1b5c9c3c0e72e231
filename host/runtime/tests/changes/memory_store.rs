use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use admittance::{
    admission::async_trait,
    definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, StoreError},
};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

/// A store that keeps definitions in memory. Tests can change them, and make the store unreachable. It normalizes JSON,
/// like a store of resources. Clones share the content.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    state: Mutex<StoreState>,
    /// The number of changes to this store so far.
    version: watch::Sender<u64>,
    last_read_version: AtomicU64,
}

#[derive(Debug, Default)]
struct StoreState {
    texts: BTreeMap<PathBuf, String>,
    is_lost: bool,
    /// Whether the next write to this store fails with a conflict, as if another program had written to the store at
    /// the same time.
    conflicts: bool,
    hold: Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>,
    commits: usize,
}

impl MemoryStore {
    pub(crate) fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            state: Mutex::default(),
            version: watch::Sender::new(1),
            last_read_version: AtomicU64::new(0),
        }))
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        self.change_state(|state| {
            state.texts.insert(path, text.to_owned());
        });
    }

    pub(crate) fn remove(&self, name: &str) {
        let path = self.path(name);
        self.change_state(|state| {
            state.texts.remove(&path);
        });
    }

    pub(crate) fn set_lost(&self, is_lost: bool) {
        self.change_state(|state| state.is_lost = is_lost);
    }

    pub(crate) fn hold_reading(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((reached, has_read), (release, released)) = (oneshot::channel(), oneshot::channel());
        self.0.state.lock().unwrap().hold = Some((reached, released));
        (has_read, release)
    }

    pub(crate) fn conflict_once(&self) {
        self.0.state.lock().unwrap().conflicts = true;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let state = self.0.state.lock().unwrap();
        let name = |path: &PathBuf| path.strip_prefix(self.location()).unwrap().display().to_string();
        state.texts.keys().map(name).collect()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.0.state.lock().unwrap().texts[&self.path(name)].clone()
    }

    pub(crate) fn commit_count(&self) -> usize {
        self.0.state.lock().unwrap().commits
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.location()).join(name)
    }

    fn change_state(&self, change: impl FnOnce(&mut StoreState)) {
        change(&mut self.0.state.lock().unwrap());
        self.0.version.send_modify(|version| *version += 1);
    }

    fn unreachable_error(&self) -> StoreError {
        StoreError::Unreachable {
            store: self.location(),
            reason: "it is away".to_owned(),
        }
    }

    fn files(&self, state: &StoreState) -> Result<Vec<DefinitionFile>, StoreError> {
        if state.is_lost {
            return Err(self.unreachable_error());
        }
        let entry = |(path, text): (&PathBuf, &String)| {
            let id = path.strip_prefix(self.location()).ok().map(|name| DefinitionId {
                kind: "admissionwebhook".to_owned(),
                name: name.display().to_string(),
            });
            DefinitionFile::entry(path, text, id)
        };
        Ok(state.texts.iter().map(entry).collect())
    }
}

#[async_trait]
impl DefinitionStore for MemoryStore {
    fn location(&self) -> String {
        format!("memory:/{}", self.0.name)
    }

    fn owns(&self, path: &Path) -> bool {
        path.starts_with(self.location())
    }

    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        id.kind
            .eq_ignore_ascii_case("admissionwebhook")
            .then(|| self.path(&id.name))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        self.0
            .last_read_version
            .store(*self.0.version.borrow(), Ordering::SeqCst);
        let (files, hold) = {
            let mut state = self.0.state.lock().unwrap();
            (self.files(&state), state.hold.take())
        };
        if let Some((reached, released)) = hold {
            let _ = reached.send(());
            let _ = released.await;
        }
        files
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        let mut state = self.0.state.lock().unwrap();
        if state.is_lost {
            return Err(self.unreachable_error());
        }
        for change in changes {
            assert!(self.owns(&change.path), "{change:?}");
            if std::mem::take(&mut state.conflicts) || state.texts.get(&change.path) != change.before.as_ref() {
                let path = change.path.clone();
                return Err(StoreError::ChangedMeanwhile { path });
            }
        }
        for change in changes {
            match &change.after {
                Some(text) => {
                    let mut value: Value = serde_json::from_str(text).unwrap();
                    value.sort_all_objects();
                    state.texts.insert(change.path.clone(), value.to_string());
                }
                None => {
                    state.texts.remove(&change.path);
                }
            }
        }
        state.commits += 1;
        drop(state);
        self.0.version.send_modify(|version| *version += 1);
        Ok(())
    }

    async fn wait_for_change(&self) {
        let mut version = self.0.version.subscribe();
        let is_new = |version: &u64| *version != self.0.last_read_version.load(Ordering::SeqCst);
        version.wait_for(is_new).await.unwrap();
    }
}
