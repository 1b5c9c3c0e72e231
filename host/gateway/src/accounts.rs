//! Users, their tokens and permissions, clusters, and the credentials of clusters that agents report.
//!
//! The accounts are stored in a database: a SQLite file for one gateway, or MySQL for several gateways. Requests are
//! authorized by a [`Directory`], a copy of the database in memory. After every change, the copy is read again in one
//! transaction. With the copy, requests do not wait for the database, and are answered while the database is down.

mod agents;
mod changes;
mod config;
mod database;
mod directory;
mod error;
mod import;
mod keys;
mod role_grants;
mod rows;
mod tokens;
mod types;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance::Moment;
use admittance_bcs::routes::Permission;
use ipnet::IpNet;
use metrics::gauge;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::Instrument;

use self::database::{Database, DatabaseTransaction};
pub use self::{
    agents::AgentReport,
    changes::{ClusterName, CreatedRegisterToken},
    config::{AccountsConfig, DatabaseConfig, MySqlConfig},
    directory::{AccessTarget, Directory, TokenDenied, UserSession},
    error::AccountsError,
    import::ImportedAccounts,
    keys::KeyFile,
    role_grants::{GrantScope, GrantSource, GrantedClusters, GrantedRole, InvalidRoleGrant, RoleGrant},
    tokens::{CreatedToken, Reencrypted},
    types::{
        Access, BcsInfo, ClusterCredentials, ClusterType, InvalidUserName, Provider, RegisterToken, RegisteredCluster,
        Secret, TokenId, User, UserId, UserName,
    },
};
pub(crate) use self::{
    import::PLAIN_TOKEN,
    role_grants::{GrantEdit, GrantedBinding},
};
use crate::{metric_names, status::AccountsStatus};

/// The interval at which this gateway checks whether another gateway has changed the database.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const POLL_TIMEOUT: Duration = Duration::from_secs(20);

/// The users and clusters of a gateway. Cheap to clone; lives as long as the gateway.
#[derive(Clone, Debug)]
pub struct Accounts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    keys: KeyFile,
    directory_sender: watch::Sender<Option<Arc<Directory>>>,
    /// The lock that a task holds while it reads the database. Without it, two tasks could read at the same time, and
    /// the one with the older content could store its result last.
    loading: tokio::sync::Mutex<()>,
    stale_reason: Mutex<Option<String>>,
    register_token_lifetime: Duration,
    clusters_per_user: usize,
    local_servers: Vec<IpNet>,
    /// The time at which the agent of each cluster last reported changed credentials, by the ID of the cluster.
    reports: Mutex<HashMap<String, Instant>>,
}

impl Accounts {
    /// Prepares the accounts; [`follow`](Self::follow) opens the database. Fails if the key file is missing although
    /// the database has encrypted secrets, because a new key could not decrypt them.
    pub async fn new(config: AccountsConfig) -> Result<Self, AccountsError> {
        let path = &config.key_file;
        let database = Database::new(&config.database)?;
        let keys = if config.creates_key && !path.exists() {
            let sealed = database.sealed_token_count().await?;
            if sealed > 0 {
                return Err(AccountsError::MissingKey {
                    file: path.clone(),
                    sealed,
                });
            }
            KeyFile::create(path)
        } else {
            KeyFile::read(path)
        };
        Ok(Self(Arc::new(Inner {
            keys: keys.map_err(AccountsError::Unavailable)?,
            database,
            directory_sender: watch::Sender::new(None),
            loading: tokio::sync::Mutex::default(),
            stale_reason: Mutex::default(),
            register_token_lifetime: config.register_token_lifetime,
            clusters_per_user: config.clusters_per_user,
            local_servers: config.local_servers,
            reports: Mutex::default(),
        })))
    }

    /// Returns the directory that was last read, or an error if none has been read yet.
    pub fn directory(&self) -> Result<Arc<Directory>, AccountsError> {
        self.0.directory_sender.borrow().clone().ok_or_else(|| {
            let stale_reason = self.stale_reason();
            AccountsError::Unavailable(stale_reason.unwrap_or_else(|| "it was not read yet".to_owned()))
        })
    }

    /// Returns a receiver of the directory, which is `None` at first. Changes by any gateway arrive within a second.
    pub fn changes(&self) -> watch::Receiver<Option<Arc<Directory>>> {
        self.0.directory_sender.subscribe()
    }

    /// Returns the reason why the directory may be out of date, or `None` if it is up to date.
    pub fn stale_reason(&self) -> Option<String> {
        self.0.stale_reason.lock().clone()
    }

    pub(crate) fn status(&self) -> AccountsStatus {
        let borrowed = self.0.directory_sender.borrow();
        let directory = borrowed.as_deref();
        AccountsStatus {
            read: directory.is_some(),
            users: directory.map_or(0, |directory| directory.users.len()),
            clusters: directory.map_or(0, |directory| directory.clusters.len()),
            problem: self.stale_reason(),
        }
    }

    /// Waits until this session no longer has this permission for the target: because the token was revoked or has
    /// expired, the permission was withdrawn, or the user or cluster was removed.
    pub async fn wait_until_denied(
        &self,
        session: &UserSession,
        target: &AccessTarget,
        required_permission: Permission,
    ) -> TokenDenied {
        let check = |directory: &Directory| {
            let current = directory.session(session.digest)?;
            directory.check_access(&current.user, target, required_permission)
        };
        let remaining_lifetime = session.expires_at.0.duration_since(Moment::now().0);
        tokio::select! {
            denied = self.wait_until_check_fails(check) => denied,
            () = tokio::time::sleep(remaining_lifetime.unwrap_or_default()) => {
                TokenDenied::Expired(session.user.name.to_string())
            }
        }
    }

    pub async fn wait_until_agent_denied(&self, cluster_id: &str, register_token: &[u8]) -> TokenDenied {
        self.wait_until_check_fails(|directory| directory.authenticate_agent(cluster_id, register_token).map(drop))
            .await
    }

    async fn wait_until_check_fails(&self, check: impl Fn(&Directory) -> Result<(), TokenDenied>) -> TokenDenied {
        let mut changes = self.changes();
        loop {
            let directory = changes.borrow_and_update().clone();
            if let Some(Err(denied)) = directory.as_deref().map(&check) {
                return denied;
            }
            if changes.changed().await.is_err() {
                // This is not reached: `changed` fails only after its sender was dropped, and `self` owns the sender.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Opens the database, and reads the directory from it after every change. Never returns.
    pub async fn follow(&self) {
        gauge!(metric_names::ACCOUNTS_READ).set(0);
        let mut is_open = false;
        loop {
            let polled = tokio::time::timeout(POLL_TIMEOUT, self.poll(&mut is_open)).await;
            let timeout_error = || AccountsError::Unavailable(format!("it did not answer within {POLL_TIMEOUT:?}"));
            self.report_poll(polled.map_err(|_| timeout_error()).flatten());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn poll(&self, is_open: &mut bool) -> Result<(), AccountsError> {
        if !*is_open {
            self.0.database.migrate().await?;
            *is_open = true;
        }
        let revision = self.0.database.revision().await?;
        let known_revision = self
            .0
            .directory_sender
            .borrow()
            .as_ref()
            .map(|directory| directory.revision);
        if known_revision != Some(revision) {
            self.load().await?;
        }
        Ok(())
    }

    async fn load(&self) -> Result<(), AccountsError> {
        let Inner {
            database,
            keys,
            directory_sender: directory,
            loading,
            ..
        } = &*self.0;
        let _loading = loading.lock().await;
        let previous = directory.borrow().clone();
        let new_directory = Arc::new(database.load(keys, previous.as_deref()).await?);
        directory.send_if_modified(|current| {
            let is_other = current
                .as_ref()
                .is_none_or(|current| current.revision != new_directory.revision);
            if is_other {
                *current = Some(new_directory);
            }
            is_other
        });
        Ok(())
    }

    fn report_poll(&self, polled: Result<(), AccountsError>) {
        gauge!(metric_names::ACCOUNTS_READ).set(f64::from(u8::from(polled.is_ok())));
        let mut stale_reason = self.0.stale_reason.lock();
        match polled {
            Err(error) => {
                let text = error.to_string();
                if stale_reason.is_none() {
                    tracing::error!("{text}; users and clusters stay as they were last read");
                }
                *stale_reason = Some(text);
            }
            Ok(()) if stale_reason.take().is_some() => {
                tracing::info!("the database of users and clusters can be used again");
            }
            Ok(()) => {}
        }
    }

    /// Commits a change, writes it to the audit log, and reads the directory again.
    async fn commit(
        &self,
        change: DatabaseTransaction,
        actor: &str,
        action: &'static str,
        subject: &str,
    ) -> Result<(), AccountsError> {
        let (accounts, by, subject) = (self.clone(), actor.to_owned(), subject.to_owned());
        let work = async move {
            change.commit().await?;
            let (by, subject) = (by.as_str(), subject.as_str());
            tracing::info!(target: "admittance::audit", by, action, subject, "{by}: {action} {subject}");
            if let Err(error) = accounts.load().await {
                tracing::warn!("the change is made, and is in force once it can be read: {error}");
            }
            Ok(())
        };
        // The change runs in its own task. So it is logged even if the client disconnects, which drops this future.
        let committed = tokio::spawn(work.in_current_span()).await;
        committed.unwrap_or_else(|error| Err(AccountsError::Unavailable(error.to_string())))
    }
}
