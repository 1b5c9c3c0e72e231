//! Watches of nodes. A program may drop a watch at any time.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{runtime::Handle, sync::oneshot};
use zookeeper_client::{Client, Error, EventType, OneshotWatcher, Stat, WatchedEvent};

type Event = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;

/// A watch of a node. It is a future that completes when the node has changed. If the session ends before that, the
/// future completes with an error.
///
/// A watch may be dropped before it has fired. The client library still has its own watch then, and cannot remove it,
/// because a server of version 3.4 would close the connection. A task therefore keeps the library's watch until it
/// fires. A program that reads a node repeatedly should use the same watch again, because every dropped watch leaves
/// such a task behind.
#[derive(derive_more::Debug)]
#[debug("NodeWatch {{ has_fired: {:?}, .. }}", event.is_none())]
pub struct NodeWatch {
    /// A future that completes when the watch of the client library fires. It is `None` once the watch has fired.
    event: Option<Event>,
    runtime: Handle,
}

impl NodeWatch {
    /// Returns a node's child names, and a watch that fires when a child is created or deleted, or the node is deleted.
    pub async fn children(client: &Client, path: &str) -> Result<(Vec<String>, Self), Error> {
        let (client, path) = (client.clone(), path.to_owned());
        Self::send(async move { client.list_and_watch_children(&path).await }).await
    }

    /// Returns the stat of a node if it exists, and a watch that fires when the node is created, changed or deleted.
    pub async fn node(client: &Client, path: &str) -> Result<(Option<Stat>, Self), Error> {
        let (client, path) = (client.clone(), path.to_owned());
        Self::send(async move { client.check_and_watch_stat(&path).await }).await
    }

    /// Returns the data of a node, and a watch that fires when it is changed or deleted.
    pub async fn data(client: &Client, path: &str) -> Result<((Vec<u8>, Stat), Self), Error> {
        let (client, path) = (client.clone(), path.to_owned());
        Self::send(async move {
            let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
            Ok(((data, stat), watcher))
        })
        .await
    }

    /// Waits until the watch fires. An error means that the session has ended.
    pub async fn wait_until_fired(self) -> Result<(), Error> {
        self.await
    }

    /// Sends a request in a task that ends only when the response arrives, even if the caller is dropped.
    async fn send<T: Send + 'static>(
        request: impl Future<Output = Result<(T, OneshotWatcher), Error>> + Send + 'static,
    ) -> Result<(T, Self), Error> {
        let (sender, receiver) = oneshot::channel();
        let runtime = Handle::current();
        tokio::spawn(async move {
            let response = request.await.map(|(payload, watcher)| {
                let event: Event = Box::pin(watcher.changed());
                let event = Some(event);
                (payload, Self { event, runtime })
            });
            let _ = sender.send(response);
        });
        receiver.await.unwrap_or(Err(Error::ClientClosed))
    }
}

impl Future for NodeWatch {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(event) = &mut self.event else {
            return Poll::Pending;
        };
        let event = ready!(event.as_mut().poll(context));
        self.event = None;
        Poll::Ready(match event.event_type {
            EventType::Session => Err(Error::SessionExpired),
            _ => Ok(()),
        })
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.runtime.spawn(event);
        }
    }
}
