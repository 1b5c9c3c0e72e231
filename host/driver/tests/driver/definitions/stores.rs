use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use admittance::{
    Host,
    admission::async_trait,
    definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, FileStore, StoreError},
};
use admittance_driver::{DefinitionFiles, DefinitionLocation};
use tempfile::TempDir;

use super::{ROUTE, SUCCESS_REPLY, definition_json, parse_refusal};
use crate::harness::{RunningDriver, Setup, echo_upstream};

/// A change that another program makes to a file right before the driver commits its own: the path of the file, and its
/// new text. `None` removes the file.
type RivalWrite = (PathBuf, Option<String>);

/// A file store in which other programs change files right before commits. It can become unavailable.
#[derive(Clone, Debug)]
struct ContestedStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: FileStore,
    rival_writes: Mutex<Vec<RivalWrite>>,
    is_unreachable: AtomicBool,
}

impl ContestedStore {
    fn new(directory: &Path) -> Self {
        let chains = directory.join("chains");
        fs::create_dir(&chains).unwrap();
        Self(Arc::new(Inner {
            files: FileStore::new(vec![chains]),
            rival_writes: Mutex::default(),
            is_unreachable: AtomicBool::new(false),
        }))
    }

    fn set_rival_writes(&self, mut rivals: Vec<RivalWrite>) {
        rivals.reverse();
        *self.0.rival_writes.lock().unwrap() = rivals;
    }

    fn check_reachable(&self) -> Result<(), StoreError> {
        if !self.0.is_unreachable.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(StoreError::Unreachable {
            store: self.location(),
            reason: "nobody is there".to_owned(),
        })
    }

    async fn start_driver(&self) -> RunningDriver {
        let host = Host::builder().definition_store(self.clone()).build().await.unwrap();
        Setup::new(&[echo_upstream().await]).start_with(host).await
    }
}

#[async_trait]
impl DefinitionStore for ContestedStore {
    fn location(&self) -> String {
        "contested".to_owned()
    }

    fn owns(&self, path: &Path) -> bool {
        self.0.files.owns(path)
    }

    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        self.0.files.path_for(id)
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        self.check_reachable()?;
        let files = self.0.files.read().await?.into_iter();
        let entry = |file: DefinitionFile| DefinitionFile::entry(file.path, file.text, None);
        Ok(files.map(entry).collect())
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        self.check_reachable()?;
        let rival = self.0.rival_writes.lock().unwrap().pop();
        match rival {
            Some((path, Some(text))) => fs::write(path, text).unwrap(),
            Some((path, None)) => fs::remove_file(path).unwrap(),
            None => {}
        }
        self.0.files.commit(changes).await
    }

    async fn wait_for_change(&self) {
        self.0.files.wait_for_change().await;
    }
}

#[tokio::test]
async fn a_concurrent_write_to_the_store_is_refused() {
    let directory = TempDir::new().unwrap();
    let store = ContestedStore::new(directory.path());
    let driver = store.start_driver().await;
    let definition_path = format!("{ROUTE}/w");
    let definition_at = |url: &str| definition_json("w", url).to_string();
    let url = async || {
        let stored_definition = driver.reply_data("GET", &definition_path).await;
        stored_definition["admissionWebhooks"][0]["clientConfig"]["url"].clone()
    };
    let id = DefinitionId {
        kind: "admissionwebhook".to_owned(),
        name: "defaultGroup/w".to_owned(),
    };
    let file = store.path_for(&id).unwrap();
    store.set_rival_writes(vec![(file.clone(), Some(definition_at("https://theirs.example")))]);
    let (_, answer) = driver
        .send_definition("POST", ROUTE, definition_at("https://ours.example"))
        .await;
    assert_eq!(parse_refusal(&answer).0, 1_405_201);
    assert_eq!(url().await, "https://theirs.example");

    let labelled =
        definition_at("https://theirs.example").replace("\"name\":\"w\"", "\"name\":\"w\",\"labels\":{\"a\":\"b\"}");
    assert!(labelled.contains("labels"));
    store.set_rival_writes(vec![(file.clone(), Some(labelled))]);
    assert_eq!(
        driver
            .send_definition("PUT", ROUTE, definition_at("https://ours.example"))
            .await
            .1,
        SUCCESS_REPLY
    );
    assert_eq!(url().await, "https://ours.example");
    assert_eq!(
        driver.reply_data("GET", &definition_path).await["metadata"]["labels"]["a"],
        "b"
    );

    let before = fs::read_to_string(&file).unwrap();
    store.set_rival_writes(vec![(file.clone(), None)]);
    let (_, answer) = driver
        .send_definition("PUT", ROUTE, definition_at("https://ours.example/more"))
        .await;
    assert_eq!(parse_refusal(&answer).0, 1_405_202);
    fs::write(&file, before).unwrap();
    store.set_rival_writes(vec![(file.clone(), None)]);
    let (_, answer) = driver.send_definition("DELETE", &definition_path, "").await;
    assert_eq!(parse_refusal(&answer).0, 1_405_202);

    fs::write(&file, definition_at("https://theirs.example")).unwrap();
    let their_change = |number: usize| {
        (
            file.clone(),
            Some(definition_at(&format!("https://theirs.example/{number}"))),
        )
    };
    store.set_rival_writes((0..5).map(their_change).collect());
    let (_, answer) = driver
        .send_definition("PUT", ROUTE, definition_at("https://ours.example"))
        .await;
    let (code, message) = parse_refusal(&answer);
    assert_eq!(code, 1_405_200);
    assert!(message.contains("was changed by someone else meanwhile"), "{message}");
    store.set_rival_writes((5..9).map(their_change).collect());
    assert_eq!(
        driver
            .send_definition("PUT", ROUTE, definition_at("https://ours.example"))
            .await
            .1,
        SUCCESS_REPLY
    );
    assert_eq!(url().await, "https://ours.example");
}

#[tokio::test]
async fn changes_are_refused_while_the_store_is_unavailable() {
    let directory = TempDir::new().unwrap();
    let store = ContestedStore::new(directory.path());
    let driver = store.start_driver().await;
    let body = || definition_json("w", "https://h.example").to_string();
    let definition_path = format!("{ROUTE}/w");
    assert_eq!(driver.send_definition("POST", ROUTE, body()).await.1, SUCCESS_REPLY);
    store.0.is_unreachable.store(true, Ordering::Relaxed);
    for (method, path, body) in [
        ("POST", ROUTE, body()),
        ("PUT", ROUTE, body()),
        ("DELETE", definition_path.as_str(), String::new()),
        ("GET", &definition_path, String::new()),
        ("GET", "/admissionwebhooks", String::new()),
    ] {
        let (status, answer) = driver.send_definition(method, path, body).await;
        let expected = "(bcs-mesos-driver):contested cannot be reached: nobody is there".to_owned();
        assert_eq!(
            (status, parse_refusal(&answer)),
            (200, (1_405_200, expected)),
            "{method} {path}"
        );
    }
    assert_eq!(driver.live_chains().await, ["defaultGroup/w"]);
    store.0.is_unreachable.store(false, Ordering::Relaxed);
    assert_eq!(driver.send_definition("PUT", ROUTE, body()).await.1, SUCCESS_REPLY);
    assert_eq!(
        driver.send_definition("DELETE", &definition_path, "").await.1,
        SUCCESS_REPLY
    );
}

#[tokio::test]
async fn a_missing_directory_does_not_remove_its_definitions() {
    let directory = TempDir::new().unwrap();
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .start()
        .await;
    let body = || definition_json("w", "https://h.example").to_string();
    let (chains, away) = (directory.path().join("chains"), directory.path().join("away"));
    fs::rename(&chains, &away).unwrap();
    for (method, path) in [("POST", ROUTE), ("GET", "/admissionwebhooks")] {
        let (_, answer) = driver.send_definition(method, path, body()).await;
        let (code, message) = parse_refusal(&answer);
        assert_eq!(code, 1_405_200, "{method}");
        assert!(message.contains(chains.to_str().unwrap()), "{message}");
    }
    fs::rename(&away, &chains).unwrap();
    assert_eq!(driver.send_definition("POST", ROUTE, body()).await.1, SUCCESS_REPLY);
}

#[tokio::test]
async fn a_change_is_refused_without_a_writable_store() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("one.json");
    let existing_definition = definition_json("there", "https://h.example").to_string();
    fs::write(&file, existing_definition).unwrap();
    let file = || -> Vec<Arc<dyn DefinitionLocation>> { vec![Arc::new(DefinitionFiles(file.clone()))] };
    let history = |name: &str| Some(directory.path().join(name));
    for (places, history, expected) in [
        (file(), None, "name a history directory that can be written"),
        (file(), history("one"), "add a directory to `definitions`"),
        (Vec::new(), history("none"), "add a directory to `definitions`"),
    ] {
        let count = places.len();
        let mut setup = Setup::new(&[echo_upstream().await]);
        setup.config.definitions = places;
        setup.config.history.directory = history;
        let driver = setup.start().await;
        let mut new = definition_json("new", "https://h.example");
        new["resourcesRef"]["operation"] = "Update".into();
        let (_, answer) = driver.send_definition("POST", ROUTE, new.to_string()).await;
        let (code, message) = parse_refusal(&answer);
        assert_eq!(code, 1_405_200);
        assert!(message.contains(expected), "{message}");
        let all_definitions = driver.reply_data("GET", "/admissionwebhooks").await;
        assert_eq!(all_definitions.as_array().unwrap().len(), count);
    }
}
