use std::time::{Duration, Instant};

use admittance_net::Backoff;
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};
use zookeeper_client::{Client, Error, SessionState as ClientState};

use super::{SessionConnection, SessionState};
use crate::zookeeper::{EnsembleConfig, EnsembleServer, error::describe};

/// Each pause is twice as long as the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// If no session can be opened, a TCP connection to each server is tried. The server must accept it within this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

struct Publisher {
    states: watch::Sender<SessionState>,
    connection: watch::Sender<SessionConnection>,
    servers: String,
    was_connected: bool,
}

pub(super) async fn keep_connected(
    config: EnsembleConfig,
    states: watch::Sender<SessionState>,
    connection: watch::Sender<SessionConnection>,
) {
    let mut publisher = Publisher {
        states,
        connection,
        servers: config.servers.to_string(),
        was_connected: false,
    };
    let mut pauses = Backoff::new(FIRST_PAUSE, MAX_PAUSE / 2);
    loop {
        match connect(&config).await {
            Ok(client) => {
                pauses.reset();
                let reason = publish_states(client, &mut publisher).await;
                publisher.publish_disconnected(reason);
            }
            Err(error) => {
                publisher.publish_disconnected(explain_failure(&error, &config).await);
                sleep(pauses.pause_after_failure()).await;
            }
        }
    }
}

async fn connect(config: &EnsembleConfig) -> Result<Client, Error> {
    let mut connector = Client::connector()
        .with_session_timeout(config.session_timeout)
        // This setting makes the client library give up as soon as it has tried every server. `keep_connected` tries
        // again later.
        .with_fail_eagerly()
        // This setting makes the client library create nodes with the operation of ZooKeeper 3.4.0, which newer servers
        // support too.
        .with_server_version(3, 4, 0);
    if let Some(digest) = &config.digest {
        connector = connector.with_auth("digest", &digest.credentials());
    }
    connector.connect(&config.servers.to_string()).await
}

async fn publish_states(client: Client, publisher: &mut Publisher) -> String {
    let mut watcher = client.state_watcher();
    let mut state = client.state();
    loop {
        match state {
            ClientState::SyncConnected | ClientState::ConnectedReadOnly => publisher.publish_connected(&client),
            ClientState::Disconnected => publisher.publish_disconnected(describe(&Error::ConnectionLoss)),
            ClientState::Expired => return describe(&Error::SessionExpired),
            ClientState::AuthFailed => return describe(&Error::AuthFailed),
            ClientState::Closed => return describe(&Error::ClientClosed),
        }
        state = watcher.changed().await;
    }
}

/// Finds out why no session was opened, because the client library does not say: tries a TCP connection to each server.
async fn explain_failure(error: &Error, config: &EnsembleConfig) -> String {
    match error {
        Error::NoHosts | Error::Timeout | Error::ConnectionLoss => {
            let probes: Vec<_> = config
                .servers
                .iter()
                .cloned()
                .map(probe_server)
                .map(tokio::spawn)
                .collect();
            let mut reasons = Vec::with_capacity(probes.len());
            for probe in probes {
                reasons.extend(probe.await);
            }
            reasons.join("; ")
        }
        error => describe(error),
    }
}

async fn probe_server(server: EnsembleServer) -> String {
    match timeout(PROBE_TIMEOUT, TcpStream::connect((server.host(), server.port()))).await {
        Err(_) => format!("{server} does not respond"),
        Ok(Err(error)) => format!("{server}: {error}"),
        Ok(Ok(_)) => {
            format!("{server} accepts connections but opens no session (its ensemble may have no leader)")
        }
    }
}

impl Publisher {
    fn publish_connected(&mut self, client: &Client) {
        let session = client.session_id();
        if self.states.borrow().is_connected() {
            return;
        }
        tracing::info!(servers = self.servers, %session, "connected to ZooKeeper");
        self.was_connected = true;
        self.connection
            .send_modify(|connection| *connection = Ok(client.clone()));
        self.states.send_replace(SessionState::Connected {
            since: Instant::now(),
            session,
        });
    }

    fn publish_disconnected(&mut self, reason: String) {
        let before = self.states.borrow().clone();
        // `since` is the time at which the connection was lost. Later failures to connect again do not change it.
        let since = if before.is_connected() {
            Instant::now()
        } else {
            before.since()
        };
        if before.reason() != Some(&reason) {
            tracing::warn!(servers = self.servers, reason, "ZooKeeper is unavailable");
        }
        self.connection
            .send_modify(|connection| *connection = Err(reason.clone()));
        self.states.send_replace(if self.was_connected {
            SessionState::Lost { since, reason }
        } else {
            SessionState::Connecting {
                since,
                reason: Some(reason),
            }
        });
    }
}
