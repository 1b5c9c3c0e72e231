//! Watches that may be given up.

use std::future::Future;

use tokio::{sync::oneshot, task::JoinHandle};
use zookeeper_client::{Client, Error, EventType, OneshotWatcher, Stat, WatchedEvent};

/// A watch that fires once. It may be dropped.
///
/// The client has the server remove a watch of its own that is dropped. Version 3.4 does not know that
/// request, and closes the connection; so this one stays until it fires for nobody, or the session ends. It
/// costs a task: whoever reads a node again and again waits for the watch of one time before the next.
#[derive(Debug)]
pub struct Watch {
    fired: JoinHandle<Option<WatchedEvent>>,
}

impl Watch {
    /// The names of a node's children, and a watch for others to come, some to go, and the node to go.
    pub async fn children(client: &Client, path: &str) -> Result<(Vec<String>, Self), Error> {
        let (client, path) = (client.clone(), path.to_owned());
        Self::ask(async move { client.list_and_watch_children(&path).await }).await
    }

    /// What is known of a node, if it is there, and a watch for it to come, to change, and to go.
    pub async fn node(client: &Client, path: &str) -> Result<(Option<Stat>, Self), Error> {
        let (client, path) = (client.clone(), path.to_owned());
        Self::ask(async move { client.check_and_watch_stat(&path).await }).await
    }

    /// What a node says, and a watch for it to say something else, and to go.
    pub async fn data(client: &Client, path: &str) -> Result<((Vec<u8>, Stat), Self), Error> {
        let (client, path) = (client.clone(), path.to_owned());
        Self::ask(async move {
            let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
            Ok(((data, stat), watcher))
        })
        .await
    }

    /// Wait until something has happened to the node. The error is that the session has ended.
    pub async fn fired(self) -> Result<(), Error> {
        match self.fired.await {
            Ok(Some(event)) if event.event_type != EventType::Session => Ok(()),
            _ => Err(Error::SessionExpired),
        }
    }

    /// Ask, in a task that goes on when nobody waits for the answer any more. It holds the client until there
    /// is one.
    async fn ask<T: Send + 'static>(
        request: impl Future<Output = Result<(T, OneshotWatcher), Error>> + Send + 'static,
    ) -> Result<(T, Self), Error> {
        let (answer, answered) = oneshot::channel();
        let fired = tokio::spawn(async move {
            let (read, watcher) = match request.await {
                Ok((read, watcher)) => (Ok(read), Some(watcher)),
                Err(error) => (Err(error), None),
            };
            // Whoever asked may be gone.
            let _ = answer.send(read);
            Some(watcher?.changed().await)
        });
        // Without an answer the task has ended with the runtime.
        let read = answered.await.unwrap_or(Err(Error::ClientClosed))?;
        Ok((read, Self { fired }))
    }
}
