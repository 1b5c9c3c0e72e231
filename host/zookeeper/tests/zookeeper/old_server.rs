//! A server that knows no more than version 3.4 did.

use std::sync::{Arc, Mutex};

use admittance_zookeeper::{SessionState, ZooKeeper};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

use crate::{
    ensemble::shared,
    interruption::{number, read, write},
    scene::{PERSISTENT, config, registration, said, somebody, until},
};

/// The operations of version 3.4, as its `ZooDefs.OpCode` has them: from `create` to `multi`, `auth` and
/// `setWatches`, and the ends of a session.
const KNOWN: [i32; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 100, 101, -10, -11];

/// Stands before a newer server, and closes the connection at an operation that the older does not know, as
/// that does. Ends when it is dropped.
struct OldServer {
    address: String,
    unknown: Arc<Mutex<Vec<i32>>>,
    /// Each number is another time that all connections break.
    breaks: watch::Sender<u32>,
    /// How many connections there were.
    accepted: watch::Receiver<u32>,
    task: AbortHandle,
}

impl OldServer {
    async fn before(server: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (unknown, breaks) = (Arc::<Mutex<Vec<i32>>>::default(), watch::Sender::new(0));
        let (seen, told) = (unknown.clone(), breaks.clone());
        let (count, accepted) = watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                count.send_modify(|count| *count += 1);
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(relay(client, server, seen.clone(), told.subscribe()));
            }
        });
        Self {
            address,
            unknown,
            breaks,
            accepted,
            task: task.abort_handle(),
        }
    }

    /// Break all connections, and wait until there is another.
    async fn interrupt(&self, zookeeper: &ZooKeeper) {
        let mut accepted = self.accepted.clone();
        let before = *accepted.borrow_and_update();
        self.breaks.send_modify(|count| *count += 1);
        until(&mut accepted, |count| *count > before).await;
        until(&mut zookeeper.states(), SessionState::is_connected).await;
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(
    client: TcpStream,
    server: TcpStream,
    unknown: Arc<Mutex<Vec<i32>>>,
    mut breaks: watch::Receiver<u32>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        let mut is_first = true;
        while let Some(frame) = read(&mut from_client).await {
            let operation = number(&frame, 4).unwrap();
            // The first asks for a session, and is no operation.
            if !is_first && !KNOWN.contains(&operation) {
                unknown.lock().unwrap().push(operation);
                return;
            }
            is_first = false;
            if write(&mut to_server, &frame).await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        _ = breaks.changed() => {}
    }
}

#[tokio::test]
async fn nothing_is_asked_that_an_old_server_does_not_know() {
    let parent = "/old/server";
    let somebody = somebody(shared()).await;
    let old = OldServer::before(shared()).await;
    let zookeeper = ZooKeeper::open(config(&old.address));
    let members = zookeeper.members(parent);
    let mut list = members.receiver();
    until(&mut list, |list| list.is_read).await;
    let dropped = zookeeper.children(parent);
    until(&mut dropped.receiver(), |list| list.is_read).await;
    drop(dropped);
    old.interrupt(&zookeeper).await;
    let registered = zookeeper.register(registration(parent, "one"));
    until(&mut list, |list| said(list) == ["one"]).await;
    let children = zookeeper.children(parent);
    until(&mut children.receiver(), |list| list.names.len() == 1).await;
    for round in 0..3 {
        old.interrupt(&zookeeper).await;
        let path = format!("{parent}/x000000001{round}");
        somebody.create(&path, b"two", &PERSISTENT).await.unwrap();
        until(&mut list, |list| said(list) == ["one", "two"]).await;
        until(&mut children.receiver(), |list| list.names.len() == 2).await;
        let other = zookeeper.members(parent);
        until(&mut other.receiver(), |list| said(list) == ["one", "two"]).await;
        drop(other);
        somebody.delete(&path, None).await.unwrap();
        until(&mut list, |list| said(list) == ["one"]).await;
    }
    drop(children);
    registered.withdraw().await;
    until(&mut list, |list| list.members.is_empty()).await;
    assert!(zookeeper.state().is_connected());
    assert!(old.unknown.lock().unwrap().is_empty(), "{:?}", old.unknown);
}
