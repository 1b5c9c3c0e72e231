//! Keeps a session with an ensemble open. When the session is lost, opens a new one.

mod connect;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use zookeeper_client::{Acls, Client, SessionId};

use crate::zookeeper::{
    EnsembleAddress, EnsembleConfig, FollowedChildren, HeldRegistration, NodeRegistration, RegisteredMember,
    ZooKeeperError,
};

/// The pause before a retry after an error other than a lost connection.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a retry after the connection was lost. A short pause suffices, because the retry does not send
/// anything before there is a new connection.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// The longest time that [`ZooKeeper::client`] waits for a session.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// An ensemble with which a session is kept open: when the session is lost, a new one is opened. Cheap to clone. The
/// session lasts as long as any clone, and any list or registration that was made with it.
#[derive(Clone, derive_more::Debug)]
#[debug("ZooKeeper {{ servers: {:?}, state: {:?}, .. }}", shared.servers, shared.states.borrow())]
pub struct ZooKeeper {
    shared: Arc<SharedSession>,
}

struct SharedSession {
    servers: EnsembleAddress,
    is_authenticated: bool,
    states: watch::Receiver<SessionState>,
    connection: watch::Receiver<SessionConnection>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    Connecting {
        since: Instant,
        reason: Option<String>,
    },
    /// The session exists, and is connected to a server.
    Connected {
        since: Instant,
        /// The ID of the session, which stays the same when the session connects to another server.
        session: SessionId,
    },
    /// The session has lost its connection, or has ended.
    Lost {
        since: Instant,
        /// The reason why the connection was lost, or why a later attempt to connect again has failed.
        reason: String,
    },
}

type SessionConnection = Result<Client, String>;

impl SessionState {
    /// Returns whether the session is connected, so that requests to ZooKeeper are possible.
    pub fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    pub fn since(&self) -> Instant {
        match self {
            Self::Connecting { since, .. } | Self::Connected { since, .. } | Self::Lost { since, .. } => *since,
        }
    }

    /// Returns the reason why there is no connection to ZooKeeper; `None` if there is one, or if the reason is unknown.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Connecting { reason, .. } => reason.as_deref(),
            Self::Connected { .. } => None,
            Self::Lost { reason, .. } => Some(reason),
        }
    }
}

impl ZooKeeper {
    /// Opens a session with this ensemble. Returns at once: a task connects to the ensemble, and retries. Must be
    /// called in a tokio runtime.
    pub fn open(config: EnsembleConfig) -> Self {
        let servers = config.servers.clone();
        let is_authenticated = config.digest.is_some();
        let (state_sender, states) = watch::channel(SessionState::Connecting {
            since: Instant::now(),
            reason: None,
        });
        let (connection_sender, connection) = watch::channel(Err("not connected yet".to_owned()));
        let task = tokio::spawn(connect::keep_connected(config, state_sender, connection_sender));
        Self {
            shared: Arc::new(SharedSession {
                servers,
                is_authenticated,
                states,
                connection,
                _task: AbortOnDropHandle::new(task),
            }),
        }
    }

    pub fn servers(&self) -> &EnsembleAddress {
        &self.shared.servers
    }

    pub fn state(&self) -> SessionState {
        self.shared.states.borrow().clone()
    }

    /// Returns a receiver of the session's state. Its sender is dropped with the last clone of this ensemble.
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.shared.states.clone()
    }

    /// Returns a client of the current session. If there is no session, waits up to 2 s for one.
    ///
    /// The client is useless after its session has ended. A request that is made while the connection is lost waits as
    /// long as the session lasts, so every request needs a timeout.
    pub async fn client(&self) -> Result<Client, ZooKeeperError> {
        match timeout(CLIENT_TIMEOUT, self.wait_for_client(drop)).await {
            Ok(client) => Ok(client),
            Err(_) => Err(self.unavailable_error()),
        }
    }

    /// Returns the access list for created nodes: it allows the configured user or, without a user, everyone.
    pub fn acls(&self) -> Acls<'static> {
        if self.shared.is_authenticated {
            Acls::creator_all()
        } else {
            Acls::anyone_all()
        }
    }

    /// Follows the members that are registered below the node at this path. The node need not exist.
    pub fn members(&self, path: &str) -> FollowedChildren<RegisteredMember> {
        FollowedChildren::start(self.clone(), path)
    }

    /// Follows the names of the children of the node at this path. The node need not exist.
    pub fn children(&self, path: &str) -> FollowedChildren<String> {
        FollowedChildren::start(self.clone(), path)
    }

    /// Creates a node, and keeps it registered until the result is withdrawn or dropped.
    pub fn register(&self, registration: NodeRegistration) -> HeldRegistration {
        HeldRegistration::start(self.clone(), registration, true)
    }

    /// Like [`register`](Self::register), but creates the node only when [`HeldRegistration::set_present`] is called.
    pub fn register_later(&self, registration: NodeRegistration) -> HeldRegistration {
        HeldRegistration::start(self.clone(), registration, false)
    }

    /// Calls `follow` with the client of every new session, and again if `follow` has failed. Never returns.
    pub(crate) async fn follow_in_sessions<F>(
        &self,
        mut report: impl FnMut(ZooKeeperError),
        mut follow: impl FnMut(Client) -> F,
    ) where
        F: Future<Output = ZooKeeperError>,
    {
        loop {
            let client = self.wait_for_client(&mut report).await;
            match self.run_while_connected(follow(client)).await {
                None => report(self.unavailable_error()),
                Some(error) => {
                    let pause = if error.is_disconnected() {
                        RECONNECT_PAUSE
                    } else {
                        RETRY_PAUSE
                    };
                    report(error);
                    sleep(pause).await;
                }
            }
        }
    }

    /// Waits until there is a session, and returns its client. Until then, calls `report` with the reason why there is
    /// no session, now and whenever the reason changes.
    pub(super) async fn wait_for_client(&self, mut report: impl FnMut(ZooKeeperError)) -> Client {
        let mut connection = self.shared.connection.clone();
        loop {
            if let Ok(client) = &*connection.borrow_and_update() {
                return client.clone();
            }
            report(self.unavailable_error());
            if connection.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) async fn run_while_connected<T>(&self, action: impl Future<Output = T>) -> Option<T> {
        let mut connection_state = self.shared.connection.clone();
        tokio::select! {
            biased;
            _ = connection_state.wait_for(Result::is_err) => None,
            result = action => Some(result),
        }
    }

    pub(crate) fn unavailable_error(&self) -> ZooKeeperError {
        let reason = match &*self.shared.connection.borrow() {
            Err(reason) => reason.clone(),
            Ok(_) => "the connection was lost, and is restored now".to_owned(),
        };
        ZooKeeperError::Unavailable {
            servers: self.shared.servers.clone(),
            reason,
        }
    }
}
