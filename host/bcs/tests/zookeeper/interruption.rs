//! Simulates a network failure while a client creates a node: the connection breaks after the client has sent the
//! request, and before the client gets the response.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use crate::frames::{read_frame, read_number, write_frame};

/// The operation `create` of ZooKeeper's protocol.
const CREATE: i32 = 1;
const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// The moment at which the connection between client and server breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakMoment {
    /// The connection breaks when the client has sent the request and the server has not yet received it.
    RequestSent,
    /// The connection breaks when the server has created the node and the client has not yet received the response.
    NodeCreated,
}

/// A proxy that breaks one connection between a client and a server. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Interruption {
    address: String,
    was_broken: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Interruption {
    /// Starts a proxy that breaks the connection of the first client that creates an ephemeral node.
    pub(crate) async fn start(server: &str, moment: BreakMoment) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let was = Arc::new(AtomicBool::new(false));
        let (server, is_over) = (server.to_owned(), was.clone());
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(relay(client, server, moment, is_over.clone()));
            }
        });
        Self {
            address,
            was_broken: was,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn was_broken(&self) -> bool {
        self.was_broken.load(Ordering::Relaxed)
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Relays frames between client and server, until one of them closes its connection or the moment to break it has come.
async fn relay(client: TcpStream, server: TcpStream, moment: BreakMoment, was: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // The number of the request that creates the ephemeral node. The server's response with this number is not passed
    // on to the client.
    let withheld = AtomicI64::new(i64::MIN);
    let requests = async {
        while let Some(frame) = read_frame(&mut from_client).await {
            let makes_it = read_number(&frame, 4) == Some(CREATE)
                && read_number(&frame, frame.len() - 4) == Some(EPHEMERAL_SEQUENTIAL);
            if makes_it && !was.swap(true, Ordering::Relaxed) {
                match moment {
                    BreakMoment::RequestSent => return,
                    BreakMoment::NodeCreated => {
                        withheld.store(read_number(&frame, 0).unwrap().into(), Ordering::Relaxed);
                    }
                }
            }
            if write_frame(&mut to_server, &frame).await.is_none() {
                return;
            }
        }
    };
    let answers = async {
        while let Some(frame) = read_frame(&mut from_server).await {
            if read_number(&frame, 0).map(i64::from) == Some(withheld.load(Ordering::Relaxed)) {
                return;
            }
            if write_frame(&mut to_client, &frame).await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
    }
}
