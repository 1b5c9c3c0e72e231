//! Simulates a server of ZooKeeper 3.4, which lacks newer operations.

use std::sync::{Arc, Mutex};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

use crate::frames::{read_frame, read_number, write_frame};

/// The operations of ZooKeeper 3.4 in `ZooDefs.OpCode`, from `create` to `createSession` and `closeSession`.
const KNOWN_OPERATIONS: [i32; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 100, 101, -10, -11];

/// A proxy that closes the connection when a client uses an operation that ZooKeeper 3.4 lacks.
pub(crate) struct OldServer {
    address: String,
    unknown_operations: Arc<Mutex<Vec<i32>>>,
    /// Breaks all connections whenever its value changes.
    break_signal: watch::Sender<u32>,
    accepted_count: watch::Receiver<u32>,
    task: AbortHandle,
}

impl OldServer {
    pub(crate) async fn in_front_of(server: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (unknown, breaks) = (Arc::<Mutex<Vec<i32>>>::default(), watch::Sender::new(0));
        let (task_unknown, task_breaks) = (unknown.clone(), breaks.clone());
        let (count, accepted) = watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                count.send_modify(|count| *count += 1);
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(relay(client, server, task_unknown.clone(), task_breaks.subscribe()));
            }
        });
        Self {
            address,
            unknown_operations: unknown,
            break_signal: breaks,
            accepted_count: accepted,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the numbers of the operations that clients have used but that ZooKeeper 3.4 does not support.
    pub(crate) fn unknown_operations(&self) -> Vec<i32> {
        self.unknown_operations.lock().unwrap().clone()
    }

    pub(crate) fn accepted_count(&self) -> watch::Receiver<u32> {
        self.accepted_count.clone()
    }

    pub(crate) fn interrupt(&self) {
        self.break_signal.send_modify(|count| *count += 1);
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(client: TcpStream, server: TcpStream, unknown: Arc<Mutex<Vec<i32>>>, mut breaks: watch::Receiver<u32>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        let mut is_first = true;
        while let Some(frame) = read_frame(&mut from_client).await {
            let operation = read_number(&frame, 4).unwrap();
            // The first frame opens a session and has no operation, so it is not checked.
            if !is_first && !KNOWN_OPERATIONS.contains(&operation) {
                unknown.lock().unwrap().push(operation);
                return;
            }
            is_first = false;
            if write_frame(&mut to_server, &frame).await.is_none() {
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
