//! The session, made again whenever it is lost.

mod connect;

use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::AbortHandle, time::timeout};
use zookeeper_client::{Acls, Client, SessionId};

use crate::zookeeper::{
    ChildList, EnsembleConfig, Followed, MemberList, Registered, Registration, Servers, ZooKeeperError,
};

/// How long somebody who needs a session waits for one.
const PATIENCE: Duration = Duration::from_secs(2);

/// An ensemble, with a session that is made again whenever it is lost. Cheap to clone; it lives as long as a
/// clone, or a list or a registration that was made with one.
#[derive(Clone)]
pub struct ZooKeeper {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Servers,
    is_authenticated: bool,
    states: watch::Receiver<SessionState>,
    session: watch::Receiver<Session>,
    task: AbortHandle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    Connecting {
        since: Instant,
        /// Why the last try failed, if there was one.
        reason: Option<String>,
    },
    /// There is one, and a server that it is connected to.
    Connected {
        since: Instant,
        /// Which one: it stays the same while only the connection comes and goes.
        session: SessionId,
    },
    /// There was one, and the connection or the session itself is gone.
    Lost {
        since: Instant,
        /// Why, or why the last try to have it back failed.
        reason: String,
    },
}

/// The same, with what is needed to use it.
#[derive(Clone, Debug)]
pub(crate) enum Session {
    Here(Client),
    Away(String),
}

impl SessionState {
    /// Whether ZooKeeper can be asked something.
    pub fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    pub fn since(&self) -> Instant {
        match self {
            Self::Connecting { since, .. } | Self::Connected { since, .. } | Self::Lost { since, .. } => {
                *since
            }
        }
    }

    /// Why ZooKeeper can not be asked anything, where that is known.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Connecting { reason, .. } => reason.as_deref(),
            Self::Connected { .. } => None,
            Self::Lost { reason, .. } => Some(reason),
        }
    }
}

impl ZooKeeper {
    /// Use this ensemble. This returns at once, whether it is there or not: a task connects to it, and tries
    /// again after 0.1 s, and then ever later, up to 2 s. To be called in a runtime of tokio.
    pub fn open(config: EnsembleConfig) -> Self {
        let servers = config.servers.clone();
        let is_authenticated = config.digest.is_some();
        let (show, states) = watch::channel(SessionState::Connecting {
            since: Instant::now(),
            reason: None,
        });
        let (hand_out, session) = watch::channel(Session::Away("not connected yet".to_owned()));
        let task = tokio::spawn(connect::keep(config, show, hand_out)).abort_handle();
        Self {
            shared: Arc::new(Shared {
                servers,
                is_authenticated,
                states,
                session,
                task,
            }),
        }
    }

    pub fn servers(&self) -> &Servers {
        &self.shared.servers
    }

    pub fn state(&self) -> SessionState {
        self.shared.states.borrow().clone()
    }

    /// How the session is, to wait for it to change. It ends with the last clone of this.
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.shared.states.clone()
    }

    /// A client of the session. If there is none, this waits up to 2 s for one.
    ///
    /// The client is of this session alone: ask for one for each thing that is to be done, and keep none. A
    /// request that is made while the connection is gone waits in it for as long as the session lasts, so give
    /// it a bound.
    pub async fn client(&self) -> Result<Client, ZooKeeperError> {
        match timeout(PATIENCE, self.connected(drop)).await {
            Ok(client) => Ok(client),
            Err(_) => Err(self.away()),
        }
    }

    /// The access list of nodes that are made: the user of the configuration and nobody else, or, without a
    /// user, anyone.
    pub fn acls(&self) -> Acls<'static> {
        if self.shared.is_authenticated {
            Acls::creator_all()
        } else {
            Acls::anyone_all()
        }
    }

    /// Follow who is registered below this node, in the background. The node need not be there.
    pub fn members(&self, path: &str) -> Followed<MemberList> {
        Followed::start(self.clone(), path)
    }

    /// Follow the names of this node's children, in the background. The node need not be there.
    pub fn children(&self, path: &str) -> Followed<ChildList> {
        Followed::start(self.clone(), path)
    }

    /// Keep a node there, from now until the result is withdrawn or dropped.
    pub fn register(&self, registration: Registration) -> Registered {
        Registered::keep(self.clone(), registration)
    }

    /// Wait for a session, and tell why there is none, again whenever that is another reason.
    pub(crate) async fn connected(&self, mut tell: impl FnMut(ZooKeeperError)) -> Client {
        let mut session = self.shared.session.clone();
        loop {
            if let Session::Here(client) = &*session.borrow_and_update() {
                return client.clone();
            }
            tell(self.away());
            if session.changed().await.is_err() {
                // The task has ended with the runtime.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Do something for as long as there is a connection; nothing if there is none any more.
    pub(crate) async fn while_connected<T>(&self, action: impl Future<Output = T>) -> Option<T> {
        let mut session = self.shared.session.clone();
        tokio::select! {
            biased;
            _ = session.wait_for(|session| matches!(session, Session::Away(_))) => None,
            result = action => Some(result),
        }
    }

    pub(crate) fn away(&self) -> ZooKeeperError {
        let reason = match &*self.shared.session.borrow() {
            Session::Away(reason) => reason.clone(),
            Session::Here(_) => "the connection was lost, and is restored now".to_owned(),
        };
        ZooKeeperError::Away {
            servers: self.shared.servers.clone(),
            reason,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ZooKeeper")
            .field("servers", &self.shared.servers)
            .field("state", &*self.shared.states.borrow())
            .finish_non_exhaustive()
    }
}
