//! Tests of the store of nodes, with a real ZooKeeper.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use admittance_bcs::stores::ZooKeeperStore;
use admittance_bcs::zookeeper::{EnsembleConfig, ZooKeeper, ZooKeeperDigest};
use admittance_definitions::{DefinitionId, DefinitionStore, StoreError};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use crate::{
    conformance::{StoreFixture, each_rule, each_rule_of_shared, tests},
    documents::{
        assert_files, creation, definition_id, definition_ids, deletion, document, replacement, wait_until_hook,
        with_test_timeout,
    },
    ensemble::{self, TestZooKeeper},
    old_server::OldServer,
};

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

struct TestNodes {
    /// The test's own server; `None` if the test uses the server that all tests share.
    server: Option<TestZooKeeper>,
    address: String,
    root: String,
}

fn node_path(path: &Path) -> &str {
    path.to_str().unwrap().strip_prefix("zookeeper:").unwrap()
}

impl TestNodes {
    fn config(&self) -> EnsembleConfig {
        EnsembleConfig::new(self.address.parse().unwrap())
    }

    fn store_with_config(&self, config: EnsembleConfig) -> ZooKeeperStore {
        ZooKeeperStore::new(ZooKeeper::open(config), self.root.as_str()).unwrap()
    }

    /// Opens a session that does not belong to the store.
    async fn client(&self) -> Client {
        with_test_timeout("a session", Client::connect(&self.address))
            .await
            .unwrap()
    }

    /// Writes data to a node below the root. Returns its whole path.
    async fn write(&self, below: &str, data: &[u8]) -> String {
        let (client, path) = (self.client().await, format!("{}/{below}", self.root));
        let (parent, _) = path.rsplit_once('/').unwrap();
        client.mkdir(parent, &PERSISTENT).await.unwrap();
        match client.create(&path, data, &PERSISTENT).await {
            Ok(_) => {}
            Err(Error::NodeExists) => {
                client.set_data(&path, data, None).await.unwrap();
            }
            Err(error) => panic!("{path}: {error}"),
        }
        path
    }
}

impl StoreFixture for TestNodes {
    type Store = ZooKeeperStore;

    const TAKES_SEVERAL_CHANGES: bool = true;

    async fn new(is_to_be_lost: bool) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let server = is_to_be_lost.then(TestZooKeeper::start);
        let address = match &server {
            Some(server) => server.address(),
            None => ensemble::shared_server_address(),
        };
        Self {
            address: address.to_owned(),
            server,
            root: format!("/test-{}/hooks", NUMBER.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn open_store(&self) -> ZooKeeperStore {
        self.store_with_config(self.config())
    }

    async fn put(&self, path: &Path, text: &str) {
        let below = node_path(path).strip_prefix(&self.root).unwrap();
        self.write(&below[1..], text.as_bytes()).await;
    }

    async fn remove(&self, path: &Path) {
        self.client().await.delete(node_path(path), None).await.unwrap();
    }

    async fn make_unreachable(&mut self) {
        self.server.as_mut().unwrap().stop();
    }

    async fn restore(&mut self) {
        // Starting the server blocks the thread, so it is done on a thread for blocking work.
        let mut server = self.server.take().unwrap();
        let start = move || {
            server.start_again();
            server
        };
        self.server = Some(tokio::task::spawn_blocking(start).await.unwrap());
    }
}

each_rule!(tests, TestNodes);
each_rule_of_shared!(tests, TestNodes);

#[tokio::test]
async fn each_definition_has_the_node_that_bcs_gives_it() {
    let nodes = TestNodes::new(false).await;
    let zookeeper = ZooKeeper::open(nodes.config());
    for (root, expected) in [
        ("blueking", "begin with `/`"),
        ("/blueking/", "must not end with `/`"),
        ("/", "not the root"),
    ] {
        let error = ZooKeeperStore::new(zookeeper.clone(), root).unwrap_err();
        assert!(error.contains(expected), "{root}: {error}");
    }
    let store = ZooKeeperStore::new(zookeeper, ZooKeeperStore::DEFAULT_ROOT).unwrap();
    // (kind, name, expected path of the node)
    for (kind, name, expected) in [
        ("admissionwebhook", "a/b", Some("/blueking/admissionwebhook/a/b")),
        ("AdmissionWebhook", "a/b", Some("/blueking/admissionwebhook/a/b")),
        ("admissionwebhook", "a/b/c", None),
        ("admissionwebhook", "a/..", None),
        ("admissionwebhook", "./a", None),
        ("AdmissionChain", "a/b", None),
    ] {
        let id = DefinitionId {
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        assert_eq!(store.path_for(&id).as_deref().map(node_path), expected, "{kind} {name}");
    }
    for (path, expected) in [
        ("zookeeper:/blueking/admissionwebhook/a/b", true),
        ("zookeeper:/blueking/admissionwebhook/a", false),
        ("zookeeper:/blueking/admissionwebhook/a/b/c", false),
        ("zookeeper:/blueking/admissionwebhooks/a/b", false),
        ("/blueking/admissionwebhook/a/b", false),
        ("customresources:a/b", false),
    ] {
        assert_eq!(store.owns(Path::new(path)), expected, "{path}");
    }
}

#[tokio::test]
async fn nodes_with_unusual_content_are_read() {
    let nodes = TestNodes::new(false).await;
    let store = nodes.open_store().await;
    let path = store.path_for(&definition_id("n", "a")).unwrap();
    let text = document("n", "a", "first");
    wait_until_hook(&store, None).await;
    nodes.write("empty", b"").await;
    nodes.write("data", b"whatever").await;
    nodes.write("n/b", document("n", "b", "b").as_bytes()).await;
    nodes.write("n/b/deeper", b"whatever").await;
    wait_until_hook(&store, Some("b")).await;
    let files = store.read().await.unwrap();
    let refused = store.commit(&[deletion(&files[0].path, &files[0].text)]).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("has nodes below it"), "{error}");
    let client = nodes.client().await;
    for below in ["n/b/deeper", "n/b"] {
        client.delete(&format!("{}/{below}", nodes.root), None).await.unwrap();
    }
    wait_until_hook(&store, None).await;

    // A node without data is not a definition, so the store does not return it. But a definition can be created there.
    nodes.write("n/a", b"").await;
    assert_files(&store.read().await.unwrap(), &[]);
    store.commit(&[creation(&path, &text)]).await.unwrap();
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);

    // Invalid UTF-8 is replaced, as in Go.
    nodes.write("n/c", b"\xff\xfe").await;
    let files_with_invalid = store.read().await.unwrap();
    let texts: Vec<_> = files_with_invalid.iter().map(|file| file.text.as_str()).collect();
    assert_eq!(texts, [text.as_str(), "\u{fffd}\u{fffd}"]);
    let c = store.path_for(&definition_id("n", "c")).unwrap();
    store.commit(&[deletion(&c, texts[1])]).await.unwrap();
    wait_until_hook(&store, Some("first")).await;

    store.commit(&[deletion(&path, &text)]).await.unwrap();
    let nameless = text.replace(r#""metadata":{"name":"a","namespace":"n"},"#, "");
    assert_ne!(nameless, text);
    nodes.write("n/a", nameless.as_bytes()).await;
    let nameless_files = store.read().await.unwrap();
    assert_eq!(definition_ids(&nameless_files), [definition_id("n", "a")]);
    nodes.write("n/a", b"{").await;
    let truncated_files = store.read().await.unwrap();
    assert_eq!(truncated_files[0].text, "{");
    let change = replacement(&path, "{", &text);
    store.commit(&[change]).await.unwrap();
    for text in ["kind: admissionwebhook", r#"{"kind":"AdmissionChain"}"#] {
        let path = store.path_for(&definition_id("a", "b")).unwrap();
        let result = store.commit(&[creation(&path, text)]).await;
        assert!(matches!(result, Err(StoreError::Mistakes(_))), "{result:?}");
    }
    let large = document("n", "a", &"l".repeat(1_000_000));
    let result = store.commit(&[replacement(&path, &text, &large)]).await;
    assert!(matches!(result, Err(StoreError::Refused { .. })), "{result:?}");
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
}

#[tokio::test]
async fn a_change_that_fails_leaves_no_nodes() {
    let nodes = TestNodes::new(false).await;
    let store = nodes.open_store().await;
    let (a, b) = (
        store.path_for(&definition_id("n", "a")).unwrap(),
        store.path_for(&definition_id("n", "b")).unwrap(),
    );
    nodes.write("n/b", document("n", "b", "b").as_bytes()).await;
    nodes.write("n/b/deeper", b"").await;
    // `n/b` cannot be deleted because a node is below it, but the store notices this only when it writes.
    let changes = [
        creation(&a, &document("n", "a", "a")),
        deletion(&b, &document("n", "b", "b")),
    ];
    let error = store.commit(&changes).await.unwrap_err();
    assert!(error.to_string().contains("has nodes below it"), "{error}");
    let client = nodes.client().await;
    assert_eq!(client.check_stat(node_path(&a)).await.unwrap(), None);
    assert_eq!(store.read().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_store_works_again_after_its_session_expired() {
    let nodes = TestNodes::new(true).await;
    let store = nodes.open_store().await;
    let path = store.path_for(&definition_id("n", "a")).unwrap();
    wait_until_hook(&store, None).await;
    let server = nodes.server.as_ref().unwrap();
    for session in server.sessions() {
        server.expire(session);
    }
    with_test_timeout("the loss of the session", store.wait_for_change()).await;
    wait_until_hook(&store, None).await;
    nodes.put(&path, &document("n", "a", "first")).await;
    wait_until_hook(&store, Some("first")).await;
}

#[tokio::test]
async fn a_store_reports_nodes_that_belong_to_another_user() {
    // A BCS that was built without a user and a password uses an empty user and an empty password, as in the second
    // case.
    for (user, password) in [("bcs", "secret"), ("", "")] {
        assert_nodes_refuse_other_users(user, password).await;
    }
}

async fn assert_nodes_refuse_other_users(user: &str, password: &str) {
    let nodes = TestNodes::new(false).await;
    let config = |password: &str| EnsembleConfig {
        digest: Some(ZooKeeperDigest::new(user, password)),
        ..nodes.config()
    };
    let store = nodes.store_with_config(config(password));
    let path = store.path_for(&definition_id("n", "a")).unwrap();
    let text = document("n", "a", "first");
    store.commit(&[creation(&path, &text)]).await.unwrap();
    let same = nodes.store_with_config(config(password));
    assert_files(&same.read().await.unwrap(), &[(&path, &text)]);
    for other in [nodes.store_with_config(config("another")), nodes.open_store().await] {
        let read_error = other.read().await.unwrap_err();
        let commit_error = other.commit(&[deletion(&path, &text)]).await.unwrap_err();
        for error in [read_error, commit_error] {
            assert!(matches!(error, StoreError::Refused { .. }), "{error}");
            assert!(error.to_string().contains("`digest`"), "{error}");
        }
    }
    assert_files(&store.read().await.unwrap(), &[(&path, &text)]);
}

/// A server of ZooKeeper 3.4 closes the connection if a client uses a newer operation, such as removing a watch.
#[tokio::test]
async fn a_store_uses_only_operations_of_zookeeper_3_4() {
    let nodes = TestNodes::new(false).await;
    let old = OldServer::in_front_of(ensemble::shared_server_address()).await;
    let store = nodes.store_with_config(EnsembleConfig::new(old.address().parse().unwrap()));
    wait_until_hook(&store, None).await;
    let path = |name: &str| store.path_for(&definition_id("a", name)).unwrap();
    let (one, two, three) = (
        document("a", "x", "one"),
        document("a", "x", "two"),
        document("a", "y", "three"),
    );
    store.commit(&[creation(&path("x"), &one)]).await.unwrap();
    wait_until_hook(&store, Some("one")).await;
    store.commit(&[replacement(&path("x"), &one, &two)]).await.unwrap();
    wait_until_hook(&store, Some("two")).await;
    store
        .commit(&[deletion(&path("x"), &two), creation(&path("y"), &three)])
        .await
        .unwrap();
    wait_until_hook(&store, Some("three")).await;
    for round in 0..5 {
        nodes
            .put(&path("y"), &document("a", "y", &format!("other-{round}")))
            .await;
        wait_until_hook(&store, Some(&format!("other-{round}"))).await;
        store.read().await.unwrap();
    }
    nodes.remove(&path("y")).await;
    wait_until_hook(&store, None).await;
    assert_eq!(old.unknown_operations(), Vec::<i32>::new());
    assert_eq!(*old.accepted_count().borrow(), 1);
    old.interrupt();
    nodes.put(&path("z"), &document("a", "z", "after")).await;
    wait_until_hook(&store, Some("after")).await;
    assert_eq!(old.unknown_operations(), Vec::<i32>::new());
}
