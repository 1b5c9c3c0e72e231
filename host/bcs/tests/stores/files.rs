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

    fn moved_directory(&self) -> std::path::PathBuf {
        self.directory.path().join("away")
    }
}

impl StoreFixture for FileStoreFixture {
    type Store = FileStore;

    const TAKES_SEVERAL_CHANGES: bool = true;

    async fn new(_is_to_be_lost: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let files = Self { directory };
        fs::create_dir(files.definitions()).unwrap();
        files
    }

    async fn open_store(&self) -> FileStore {
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

    async fn make_unreachable(&mut self) {
        fs::rename(self.definitions(), self.moved_directory()).unwrap();
    }

    async fn restore(&mut self) {
        fs::rename(self.moved_directory(), self.definitions()).unwrap();
    }
}

each_rule!(tests, FileStoreFixture);
