use std::{fmt, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Fingerprint, Watch, WatchConfig, run_blocking};

/// A value that is loaded from files, and loaded again when they change. If that fails, the last valid value stays in
/// use. Clones share the value.
#[derive(derive_more::Debug)]
// The debug text omits the value, which may be secret.
#[debug("FileValue {{ .. }}")]
pub struct FileValue<T>(Arc<FileValueState<T>>);

struct FileValueState<T> {
    current: watch::Sender<Arc<T>>,
    /// The files from which the value is loaded; `None` for a value that never changes.
    source: Option<ValueFile<T>>,
}

struct ValueFile<T> {
    load: Arc<dyn Fn() -> Result<T, String> + Send + Sync>,
    fingerprint: Fingerprint,
    problem: Mutex<Option<String>>,
}

impl<T> FileValue<T> {
    /// Creates a value that does not come from files, and never changes.
    pub fn fixed(value: T) -> Self {
        Self::new(value, None)
    }

    fn new(value: T, source: Option<ValueFile<T>>) -> Self {
        let current = watch::Sender::new(Arc::new(value));
        Self(Arc::new(FileValueState { current, source }))
    }

    /// Loads a value from these files with `load`, which may block.
    ///
    /// # Errors
    ///
    /// Returns the error of `load`.
    pub fn load<E: fmt::Display>(
        files: impl IntoIterator<Item = PathBuf>,
        load: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // The fingerprint is taken before the files are read, so that no change is missed.
        let fingerprint = Fingerprint::read(files);
        let value = load()?;
        let source = ValueFile {
            load: Arc::new(move || load().map_err(|error| error.to_string())),
            fingerprint,
            problem: Mutex::new(None),
        };
        Ok(Self::new(value, Some(source)))
    }

    /// Returns the last value that was loaded.
    pub fn current(&self) -> Arc<T> {
        self.0.current.borrow().clone()
    }

    /// Returns a receiver for the values that are loaded from now on.
    pub fn subscribe(&self) -> watch::Receiver<Arc<T>> {
        self.0.current.subscribe()
    }

    /// Returns the error if the current content of the files cannot be loaded; otherwise `None`.
    pub fn problem(&self) -> Option<String> {
        let problem = self.0.source.as_ref()?.problem.lock();
        problem.clone()
    }
}

impl<T: Send + Sync + 'static> FileValue<T> {
    /// Loads the value again whenever the files change, and reports the new value or the error. Never completes.
    pub async fn follow(&self, mut report: impl FnMut(Result<&T, &str>)) {
        let Some(source) = &self.0.source else {
            return std::future::pending().await;
        };
        let mut watch = Watch::from_fingerprint(source.fingerprint.clone(), WatchConfig::default());
        loop {
            watch.changed().await;
            self.load_from(source, &mut report).await;
        }
    }

    /// Loads the value again at once, and reports the value or the error. Call this when the value may change although
    /// its files do not, because it depends on something else as well.
    pub async fn reload(&self, mut report: impl FnMut(Result<&T, &str>)) {
        if let Some(source) = &self.0.source {
            self.load_from(source, &mut report).await;
        }
    }

    async fn load_from(&self, source: &ValueFile<T>, report: &mut impl FnMut(Result<&T, &str>)) {
        let load = source.load.clone();
        let problem = match run_blocking(move || load()).await {
            Ok(value) => {
                let value = Arc::new(value);
                self.0.current.send_replace(value.clone());
                report(Ok(&value));
                None
            }
            Err(problem) => {
                report(Err(&problem));
                Some(problem)
            }
        };
        *source.problem.lock() = problem;
    }
}

impl<T> Clone for FileValue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn an_invalid_file_does_not_replace_the_last_valid_value() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        fs::write(&path, "1").unwrap();
        let load = {
            let path = path.clone();
            move || fs::read_to_string(&path).unwrap().parse::<u8>()
        };
        let number = FileValue::load([path.clone()], load).unwrap();
        fs::write(&path, "2").unwrap();
        let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let follow = number.follow(|loaded| reports.send(loaded.copied().map_err(str::to_owned)).unwrap());
        let steps = async {
            assert_eq!(reported.recv().await.unwrap(), Ok(2));
            assert_eq!((*number.current(), number.problem()), (2, None));
            fs::write(&path, "x").unwrap();
            let problem = reported.recv().await.unwrap().unwrap_err();
            fs::write(&path, "3").unwrap();
            assert_eq!(reported.recv().await.unwrap(), Ok(3));
            assert_eq!(*number.current(), 3);
            problem
        };
        let steps = tokio::time::timeout(std::time::Duration::from_secs(60), steps);
        let problem = tokio::select! {
            problem = steps => problem.unwrap(),
            () = follow => unreachable!("it never completes"),
        };
        assert!(problem.contains("invalid digit"), "{problem}");
    }
}
