//! Writes the roles of users into Kubernetes clusters: roles from a file, and roles that an authorization system sends.
//!
//! Roles from both sources are stored in the database. The gateway that holds a lease in the database makes the role
//! bindings of each cluster equal to the stored roles. It changes and deletes only objects with its label.

mod bindings;
mod file;
mod rules;
mod subscription;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

pub use self::{
    file::RoleTable,
    rules::{AllowedRights, Danger, cluster_roles, rules_of_writer},
    subscription::SubscriptionConfig,
};
use crate::{
    accounts::{Accounts, AccountsError, Directory, GrantEdit, GrantSource, GrantedClusters, RoleGrant},
    kubernetes::KubernetesProxy,
    status::RolesStatus,
};

/// The time for which the writer's lease is valid after it was taken or renewed.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// The interval at which each gateway tries to take or renew the lease of the writer.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(4);
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The sources of the roles of users in clusters, and the rights that these roles may contain.
#[derive(Clone, Debug)]
pub struct RolesConfig {
    pub file: Option<RoleTable>,
    pub subscription: Option<SubscriptionConfig>,
    /// The dangerous rights that the operator has allowed roles to contain. Default: none.
    pub allowed: AllowedRights,
}

#[derive(Debug)]
pub(crate) struct RoleSync {
    config: RolesConfig,
    accounts: Accounts,
    kubernetes: KubernetesProxy,
    id: String,
    is_writer: watch::Sender<bool>,
    pass: watch::Sender<PassResult>,
    subscription_problem: Mutex<Option<String>>,
}

#[derive(Clone, Debug, Default)]
struct PassResult {
    /// The revision of the database whose grants were written into the clusters.
    revision: i64,
    /// The IDs of the clusters whose roles could not be brought up to date, each with the reason.
    unwritten: Arc<BTreeMap<String, String>>,
}

impl RoleSync {
    pub(crate) fn new(config: RolesConfig, accounts: Accounts, kubernetes: KubernetesProxy) -> Self {
        Self {
            config,
            accounts,
            kubernetes,
            id: uuid::Uuid::new_v4().simple().to_string(),
            is_writer: watch::Sender::new(false),
            pass: watch::Sender::default(),
            subscription_problem: Mutex::default(),
        }
    }

    pub(crate) fn status(&self) -> RolesStatus {
        let is_writer = *self.is_writer.borrow();
        let directory = self.accounts.directory().ok();
        let unwritten = self.pass.borrow().unwritten.clone();
        let mut problems: Vec<String> = unwritten
            .iter()
            .map(|(cluster, problem)| format!("the roles in {cluster} are not up to date: {problem}"))
            .collect();
        problems.extend(self.config.file.as_ref().and_then(RoleTable::problem));
        problems.extend(self.subscription_problem.lock().clone());
        RolesStatus {
            is_writer,
            grants: directory.map_or(0, |directory| directory.role_grants().len()),
            problems,
        }
    }

    /// Takes part in the election of the writer, and writes roles while this gateway is the writer. Never returns.
    pub(crate) async fn follow(&self) {
        let reloaded = async {
            if let Some(file) = &self.config.file {
                file.follow().await;
            }
        };
        tokio::join!(self.renew_lease(), self.write_while_leased(), reloaded);
    }

    async fn renew_lease(&self) {
        loop {
            let renewed = self.accounts.lease_roles(&self.id, LEASE_DURATION).await;
            let is_writer = renewed.unwrap_or_else(|error| {
                tracing::debug!(%error, "the lease of the writer of roles was not renewed");
                false
            });
            self.is_writer
                .send_if_modified(|was| std::mem::replace(was, is_writer) != is_writer);
            sleep(RENEWAL_INTERVAL).await;
        }
    }

    async fn write_while_leased(&self) {
        let mut is_writer = self.is_writer.subscribe();
        loop {
            // `wait_for` fails only after its sender was dropped, and `self` owns the sender.
            let _ = is_writer.wait_for(|is_writer| *is_writer).await;
            tracing::info!("this gateway writes the roles of users into the clusters");
            tokio::select! {
                _ = async { tokio::join!(self.write_all(), self.store_configured_grants(), self.subscribe()) } => {}
                _ = is_writer.wait_for(|is_writer| !*is_writer) => {}
            }
            self.pass.send_replace(PassResult::default());
            *self.subscription_problem.lock() = None;
        }
    }

    /// Keeps the grants in the database equal to the grants of the configuration. Never returns.
    async fn store_configured_grants(&self) {
        let mut contents = self.config.file.as_ref().map(RoleTable::contents);
        let mut changes = self.accounts.changes();
        // The grants in the database are known only after the directory was read for the first time.
        let _ = changes.wait_for(Option::is_some).await;
        loop {
            let configured_grants = contents
                .as_mut()
                .map(|contents| contents.borrow_and_update().clone())
                .unwrap_or_default();
            if let Err(error) = self.store_grants(&configured_grants).await {
                tracing::warn!(%error, "the roles of the configuration were not stored; trying again");
                sleep(RETRY_PAUSE).await;
                continue;
            }
            let Some(contents) = &mut contents else {
                return std::future::pending().await;
            };
            // `changed` fails only after its sender was dropped, and `self` owns the sender.
            let _ = contents.changed().await;
        }
    }

    async fn store_grants(&self, configured_grants: &BTreeSet<RoleGrant>) -> Result<(), AccountsError> {
        let directory = self.accounts.directory()?;
        let stored = directory.role_grants().iter();
        if stored
            .filter(|grant| grant.source == GrantSource::Configuration)
            .eq(configured_grants)
        {
            return Ok(());
        }
        for grant in configured_grants {
            warn_of_unknown_names(&directory, grant);
        }
        let edit = GrantEdit::ReplaceConfigured(configured_grants.clone());
        self.accounts.edit_role_grants("configuration", edit).await?;
        Ok(())
    }
}

/// Logs a warning if the user or the cluster of a grant does not exist, because the grant has no effect yet.
fn warn_of_unknown_names(directory: &Directory, grant: &RoleGrant) {
    if !directory.has_user(&grant.user) {
        tracing::warn!("there is no user {}: {grant} has no effect yet", grant.user);
    }
    if let GrantedClusters::Named(id) = &grant.clusters
        && directory.cluster_of_grant(id).is_none()
    {
        tracing::warn!("there is no Kubernetes cluster {id}: {grant} has no effect yet");
    }
}
