//! Connects, with retries.

use std::time::{Duration, Instant};

use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};
use zookeeper_client::{Client, Error, SessionState as ClientState};

use super::{Session, SessionState};
use crate::zookeeper::{EnsembleConfig, Server};

/// The first pause between two attempts, which doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// The timeout of a probe that finds out why a server opened no session.
const PROBE: Duration = Duration::from_secs(1);

/// Publishes the state of the session.
struct Shown {
    states: watch::Sender<SessionState>,
    session: watch::Sender<Session>,
    servers: String,
    had_one: bool,
}

/// Keep a session for as long as this is polled.
pub(super) async fn keep(
    config: EnsembleConfig,
    states: watch::Sender<SessionState>,
    session: watch::Sender<Session>,
) {
    let mut shown = Shown {
        states,
        session,
        servers: config.servers.to_string(),
        had_one: false,
    };
    let mut pause = FIRST_PAUSE;
    loop {
        match connect(&config).await {
            Ok(client) => {
                pause = FIRST_PAUSE;
                let reason = stay(client, &mut shown).await;
                shown.away(reason);
            }
            Err(error) => {
                shown.away(explain(&error, &config).await);
                sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
        }
    }
}

async fn connect(config: &EnsembleConfig) -> Result<Client, Error> {
    let mut connector = Client::connector()
        .with_session_timeout(config.session_timeout)
        // One attempt with each server: retries are scheduled here.
        .with_fail_eagerly()
        // Makes the client create nodes with the operation that every version knows.
        .with_server_version(3, 4, 0);
    if let Some(digest) = &config.digest {
        connector = connector.with_auth("digest", &digest.credentials());
    }
    connector.connect(&config.servers.to_string()).await
}

/// Publish the state of the session until it has ended, and return why.
async fn stay(client: Client, shown: &mut Shown) -> String {
    let mut watcher = client.state_watcher();
    let mut state = client.state();
    loop {
        match state {
            ClientState::SyncConnected | ClientState::ConnectedReadOnly => shown.here(&client),
            ClientState::Disconnected => shown.away("the connection was lost".to_owned()),
            ClientState::Expired => return "the session has expired".to_owned(),
            ClientState::AuthFailed => {
                return "authentication failed: check the user and the password".to_owned();
            }
            ClientState::Closed => return "the session was closed".to_owned(),
        }
        state = watcher.changed().await;
    }
}

/// Why an attempt opened no session. The client only reports that no server was usable, so each server is
/// probed.
async fn explain(error: &Error, config: &EnsembleConfig) -> String {
    match error {
        Error::NoHosts | Error::Timeout | Error::ConnectionLoss => {
            let probes: Vec<_> = config
                .servers
                .iter()
                .cloned()
                .map(probe)
                .map(tokio::spawn)
                .collect();
            let mut reasons = Vec::with_capacity(probes.len());
            for probe in probes {
                // Fails only if the runtime stops.
                reasons.extend(probe.await);
            }
            reasons.join("; ")
        }
        Error::AuthFailed => "authentication failed: check the user and the password".to_owned(),
        error => error.to_string(),
    }
}

async fn probe(server: Server) -> String {
    match timeout(PROBE, TcpStream::connect((server.host(), server.port()))).await {
        Err(_) => format!("{server} does not respond"),
        Ok(Err(error)) => format!("{server}: {error}"),
        Ok(Ok(_)) => {
            format!("{server} accepts connections but opens no session (its ensemble may have no leader)")
        }
    }
}

impl Shown {
    fn here(&mut self, client: &Client) {
        let session = client.session_id();
        if self.states.borrow().is_connected() {
            return;
        }
        tracing::info!(servers = self.servers, %session, "connected to ZooKeeper");
        self.had_one = true;
        self.session.send_replace(Session::Here(client.clone()));
        self.states.send_replace(SessionState::Connected {
            since: Instant::now(),
            session,
        });
    }

    fn away(&mut self, reason: String) {
        let before = self.states.borrow().clone();
        // The reason may change while the session is lost; the time of the loss does not.
        let since = if before.is_connected() {
            Instant::now()
        } else {
            before.since()
        };
        if before.reason() != Some(&reason) {
            tracing::warn!(servers = self.servers, reason, "ZooKeeper is unavailable");
        }
        self.session.send_replace(Session::Away(reason.clone()));
        self.states.send_replace(if self.had_one {
            SessionState::Lost { since, reason }
        } else {
            SessionState::Connecting {
                since,
                reason: Some(reason),
            }
        });
    }
}
