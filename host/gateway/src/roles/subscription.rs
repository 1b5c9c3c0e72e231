//! The roles that an authorization system sends to the gateway over a WebSocket. The messages are the same as those
//! that the authorization system sends to bcs-api.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use admittance_net::{
    bearer::read_header,
    causes,
    tls::ClientTls,
    upstream::{UpstreamConnector, new_connector},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, Uri, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::{Bytes, Message, handshake::client::generate_key};

use super::{PassResult, RoleSync, warn_of_unknown_names};
use crate::{
    accounts::{
        AccountsError, GrantEdit, GrantScope, GrantSource, GrantedClusters, GrantedRole, InvalidRoleGrant,
        InvalidUserName, RoleGrant, UserName,
    },
    tunnel::connect::{ConnectError, MAX_PAUSE, TIMEOUT, open_websocket, reconnect_backoff},
};

/// The largest message from the authorization system, in bytes. It may be a list of all roles.
const LARGEST_MESSAGE: usize = 16 << 20;
/// The time without any message after which a subscription counts as lost. This program sends a ping every 20 s, and
/// the answer counts as a message.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
const PING_INTERVAL: Duration = Duration::from_secs(20);
const LARGEST_SECRET: usize = 4096;

/// The settings of the subscription to an authorization system that sends roles.
#[derive(Clone, Debug)]
pub struct SubscriptionConfig {
    /// The URL of the subscription. Without a path, it gets [`DEFAULT_PATH`](Self::DEFAULT_PATH).
    pub url: Uri,
    /// The code by which the authorization system identifies the gateway.
    pub app_code: String,
    /// The file with the secret for the authorization system. It is read for each connection.
    pub secret_file: PathBuf,
    pub tls: ClientTls,
}

impl SubscriptionConfig {
    pub const DEFAULT_PATH: &str = "/subscribers/bcs-api/sub";

    /// Reads the secret for the authorization system. Only the owner of the file may be able to read the file.
    ///
    /// # Errors
    ///
    /// Returns a sentence that says what is wrong with the file.
    pub fn read_secret(file: &Path) -> Result<HeaderValue, String> {
        read_header(file, LARGEST_SECRET, "")
    }
}

/// A message from the authorization system. Only the kinds `data` and `list` change grants.
#[derive(Debug, Deserialize)]
struct ReceivedMessage {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    worker_id: Value,
    #[serde(default)]
    data_id: Value,
    /// The payload of the message as JSON. A message of the kind `data` contains one change of a grant. A message of
    /// the kind `list` contains all grants.
    #[serde(default)]
    data: String,
}

/// The addition or deletion of one grant. A message of the kind `data` contains one `PolicyChange`. A message of the
/// kind `list` contains one for each grant, and deletions in it are ignored.
#[derive(Debug, Deserialize)]
struct PolicyChange {
    #[serde(default)]
    operation: GrantOperation,
    principal: Principal,
    #[serde(rename = "action")]
    role: GrantedRole,
    resource_type: ResourceType,
    resource_instance: ResourceInstance,
    #[serde(default = "common_policy")]
    policy_from: GrantSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GrantOperation {
    #[default]
    Add,
    Delete,
}

#[derive(Debug, Deserialize)]
struct Principal {
    principal_type: String,
    principal_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResourceType {
    Cluster,
    Namespace,
}

#[derive(Debug, Deserialize)]
struct ResourceInstance {
    cluster: String,
    #[serde(default)]
    namespace: String,
}

fn common_policy() -> GrantSource {
    GrantSource::CommonPolicy
}

#[derive(Debug, thiserror::Error)]
enum MessageError {
    #[error("it is not valid JSON of this form: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    User(#[from] InvalidUserName),
    #[error(transparent)]
    Grant(#[from] InvalidRoleGrant),
    #[error("a grant for a namespace needs `resource_instance.namespace`")]
    NoNamespace,
    #[error("`policy_from` is neither common nor pattern_policy")]
    Source,
    #[error("{0}")]
    NotAllowed(String),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
}

/// A stored change. It is acknowledged to the authorization system after it was written to the clusters.
#[derive(Debug)]
struct UnacknowledgedChange {
    worker_id: Value,
    data_id: Value,
    revision: i64,
    /// The ID of the cluster that the change affects; `None` if it affects every cluster.
    cluster: Option<String>,
}

impl UnacknowledgedChange {
    fn is_written(&self, pass: &PassResult) -> bool {
        pass.revision >= self.revision
            && match &self.cluster {
                Some(cluster) => !pass.unwritten.contains_key(cluster),
                None => pass.unwritten.is_empty(),
            }
    }
}

impl PolicyChange {
    fn grant(&self) -> Result<RoleGrant, MessageError> {
        let Principal {
            principal_type,
            principal_id,
        } = &self.principal;
        if self.policy_from == GrantSource::Configuration {
            return Err(MessageError::Source);
        }
        let scope = match self.resource_type {
            ResourceType::Cluster => GrantScope::Cluster,
            ResourceType::Namespace => self.resource_instance.namespace.parse()?,
        };
        if matches!(
            (&self.resource_type, &scope),
            (ResourceType::Namespace, GrantScope::Cluster)
        ) {
            return Err(MessageError::NoNamespace);
        }
        Ok(RoleGrant {
            user: format!("{principal_type}:{principal_id}").parse::<UserName>()?,
            role: self.role,
            clusters: self.resource_instance.cluster.parse()?,
            scope,
            source: self.policy_from,
        })
    }
}

impl RoleSync {
    /// Keeps the subscription to the authorization system open. Never returns.
    pub(super) async fn subscribe(&self) {
        let Some(config) = &self.config.subscription else {
            return std::future::pending().await;
        };
        let connector = new_connector(config.tls.clone(), TIMEOUT);
        let mut pauses = reconnect_backoff();
        let subscription_loop = async {
            loop {
                let start = Instant::now();
                let why = match self.receive_messages(config, &connector).await {
                    Ok(never) => match never {},
                    Err(why) => why,
                };
                let problem = format!("the subscription {} is not open: {why}", config.url);
                if self.subscription_problem.lock().replace(problem.clone()) != Some(problem) {
                    tracing::warn!(url = %config.url, why, "the subscription of roles has ended; trying again");
                }
                if start.elapsed() > MAX_PAUSE {
                    pauses.reset();
                }
                sleep(pauses.pause_after_failure()).await;
            }
        };
        let ((), ()) = tokio::join!(subscription_loop, config.tls.keep_fresh());
    }

    async fn receive_messages(
        &self,
        config: &SubscriptionConfig,
        connector: &UpstreamConnector,
    ) -> Result<std::convert::Infallible, String> {
        let header = SubscriptionConfig::read_secret(&config.secret_file)?;
        let secret = header.to_str().map_err(|error| error.to_string())?;
        let login = BASE64_STANDARD.encode(format!("{}:{secret}", config.app_code));
        let headers = vec![(AUTHORIZATION.as_str(), format!("Basic {login}"))];
        let key = generate_key();
        let socket = open_websocket(connector, config.url.clone(), &key, headers, LARGEST_MESSAGE);
        let (socket, _) = socket.await.map_err(|error| match error {
            ConnectError::Header => "the URL or the secret cannot be sent".to_owned(),
            error => error.to_string(),
        })?;
        tracing::info!(url = %config.url, "the subscription of roles is open");
        *self.subscription_problem.lock() = None;
        let (mut sink, mut messages) = socket.split();
        let mut passes = self.pass.subscribe();
        let mut unacknowledged_changes: Vec<UnacknowledgedChange> = Vec::new();
        let mut pings = tokio::time::interval(PING_INTERVAL);
        loop {
            let replies: Vec<Message> = tokio::select! {
                next_message = timeout(SILENCE_TIMEOUT, messages.next()) => {
                    let message = next_message.map_err(|_| format!("nothing arrived for {SILENCE_TIMEOUT:?}"))?.ok_or("the other side closed it")?.map_err(|error| causes::chain(&error))?;
                    if let Message::Text(text) = message {
                        unacknowledged_changes.extend(self.take_message(&text).await);
                    }
                    acknowledgements(config, &mut unacknowledged_changes, &passes.borrow())
                }
                // `changed` fails only after its sender was dropped, and `self` owns the sender.
                _ = passes.changed() => acknowledgements(config, &mut unacknowledged_changes, &passes.borrow_and_update()),
                _ = pings.tick() => vec![Message::Ping(Bytes::new())],
            };
            for reply in replies {
                let outcome = timeout(TIMEOUT, sink.send(reply)).await;
                outcome
                    .map_err(|_| "a message could not be sent in time")?
                    .map_err(|error| causes::chain(&error))?;
            }
        }
    }

    /// Stores the change that is in a message of the authorization system. Returns the change if it has to be
    /// acknowledged later, and `None` otherwise.
    async fn take_message(&self, text: &str) -> Option<UnacknowledgedChange> {
        let message: ReceivedMessage = serde_json::from_str(text)
            .inspect_err(|error| tracing::warn!(%error, "a message of the subscription cannot be read"))
            .ok()?;
        let store_outcome = match message.kind.as_str() {
            "data" => self.store_change(&message.data).await,
            "list" => self.replace_grants_from_list(&message.data).await,
            _ => return None,
        };
        match store_outcome {
            Ok((revision, cluster)) => Some(UnacknowledgedChange {
                worker_id: message.worker_id,
                data_id: message.data_id,
                revision,
                cluster,
            }),
            Err(error) => {
                let id = &message.data_id;
                tracing::error!(%id, "a message of the subscription is not acknowledged: {error}");
                None
            }
        }
    }

    async fn store_change(&self, data: &str) -> Result<(i64, Option<String>), MessageError> {
        let change: PolicyChange = serde_json::from_str(data)?;
        let grant = change.grant()?;
        let directory = self.accounts.directory()?;
        let cluster = match &grant.clusters {
            GrantedClusters::Every => None,
            GrantedClusters::Named(name) => Some(directory.cluster_of_grant(name).unwrap_or(name).to_owned()),
        };
        let edit = match change.operation {
            GrantOperation::Add => {
                let role_check = self.config.allowed.check_role(grant.role);
                role_check.map_err(MessageError::NotAllowed)?;
                warn_of_unknown_names(&directory, &grant);
                GrantEdit::Add(grant)
            }
            GrantOperation::Delete => GrantEdit::Remove(grant),
        };
        let revision = self.accounts.edit_role_grants("subscription", edit).await?;
        Ok((revision, cluster))
    }

    async fn replace_grants_from_list(&self, data: &str) -> Result<(i64, Option<String>), MessageError> {
        let list: Vec<PolicyChange> = serde_json::from_str(data)?;
        let grants = list
            .iter()
            .filter(|change| matches!(change.operation, GrantOperation::Add))
            .map(|change| {
                let grant = change.grant()?;
                let role_check = self.config.allowed.check_role(grant.role);
                role_check.map_err(MessageError::NotAllowed)?;
                Ok(grant)
            })
            .collect::<Result<_, MessageError>>()?;
        let edit = GrantEdit::ReplacePolicies(grants);
        Ok((self.accounts.edit_role_grants("subscription", edit).await?, None))
    }
}

/// Removes from `unacknowledged_changes` the changes that are written in all affected clusters, and returns their
/// acknowledgements.
fn acknowledgements(
    config: &SubscriptionConfig,
    unacknowledged_changes: &mut Vec<UnacknowledgedChange>,
    pass: &PassResult,
) -> Vec<Message> {
    let written_changes = unacknowledged_changes.extract_if(.., |change| change.is_written(pass));
    let messages = written_changes.map(|change| {
        let text = json!({
            "app_code": config.app_code,
            "type": "ack",
            "worker_id": change.worker_id,
            "data_id": change.data_id,
        });
        Message::text(text.to_string())
    });
    messages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(resource_type: &str, namespace: &str) -> Result<RoleGrant, MessageError> {
        let data = json!({
            "operation": "add",
            "principal": {"principal_type": "bk", "principal_id": "alice"},
            "scope_type": "project", "scope_instance": "p", "service": "bcs",
            "action": "workloads-view",
            "resource_type": resource_type,
            "resource_instance": {"cluster": "BCS-K8S-1", "namespace": namespace},
            "policy_from": "pattern_policy",
        });
        serde_json::from_value::<PolicyChange>(data)?.grant()
    }

    #[test]
    fn messages_of_the_authorization_system_become_grants() {
        let cluster_grant = grant("cluster", "").unwrap();
        assert_eq!(cluster_grant.to_string(), "workloads-view of bk:alice in BCS-K8S-1");
        assert_eq!(cluster_grant.source, GrantSource::PatternPolicy);
        assert_eq!(grant("cluster", "n").unwrap().scope, GrantScope::Cluster);
        assert_eq!(grant("namespace", "*").unwrap().scope, GrantScope::EveryNamespace);
        let team = grant("namespace", "team").unwrap();
        assert_eq!(team.to_string(), "workloads-view of bk:alice in BCS-K8S-1/team");
        assert!(matches!(grant("namespace", ""), Err(MessageError::NoNamespace)));
        assert!(matches!(grant("namespace", "a/b"), Err(MessageError::Grant(_))));
        assert!(matches!(grant("region", ""), Err(MessageError::Json(_))));
    }

    #[test]
    fn a_change_counts_as_written_when_its_clusters_are_up_to_date() {
        let change = |cluster: Option<&str>| UnacknowledgedChange {
            worker_id: Value::Null,
            data_id: Value::Null,
            revision: 7,
            cluster: cluster.map(str::to_owned),
        };
        let pass = |revision, unwritten: &[&str]| PassResult {
            revision,
            unwritten: std::sync::Arc::new(unwritten.iter().map(|id| ((*id).to_owned(), String::new())).collect()),
        };
        assert!(!change(Some("a")).is_written(&pass(6, &[])));
        assert!(change(Some("a")).is_written(&pass(7, &["b"])));
        assert!(!change(Some("b")).is_written(&pass(8, &["b"])));
        assert!(!change(None).is_written(&pass(8, &["b"])));
        assert!(change(None).is_written(&pass(8, &[])));
    }
}
