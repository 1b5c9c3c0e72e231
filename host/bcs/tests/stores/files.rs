//! Tests of the store of files in a directory.

use std::{fs, path::Path};

use admittance_definitions::FileStore;
use tempfile::TempDir;

use crate::conformance::{StoreFixture, each_rule, tests};

struct FileStoreFixture {
    directory: TempDir,
}

impl FileStoreFixture {
    fn definitions(&self) -> std::path::PathBuf {
        self.directory.path().join("definitions")
    }

    fn away(&self) -> std::path::PathBuf {
        self.directory.path().join("away")
    }
}

impl StoreFixture for FileStoreFixture {
    type Store = FileStore;

    const TAKES_SEVERAL: bool = true;

    async fn new(_is_to_be_lost: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let files = Self { directory };
        fs::create_dir(files.definitions()).unwrap();
        files
    }

    async fn open(&self) -> FileStore {
        FileStore::new(vec![self.definitions()])
    }

    async fn put(&self, path: &Path, text: &str) {
        let beside = self.directory.path().join("new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, path).unwrap();
    }

    async fn remove(&self, path: &Path) {
        fs::remove_file(path).unwrap();
    }

    async fn lose(&mut self) {
        fs::rename(self.definitions(), self.away()).unwrap();
    }

    async fn restore(&mut self) {
        fs::rename(self.away(), self.definitions()).unwrap();
    }
}

each_rule!(tests, FileStoreFixture);
