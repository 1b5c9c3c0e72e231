//! Changes to users and clusters. Each change is one transaction, and one line of the audit log.

use std::{fmt::Display, sync::Arc, time::Duration};

use admittance::Moment;
use admittance_net::bearer::TokenDigest;
use sqlx::{query, query_scalar};

use super::{
    Access, Accounts, AccountsError, BcsInfo, ClusterType, Provider, RegisterToken, RegisteredCluster, Secret, User,
    UserId, UserName,
    database::now,
    error::violation_error,
    keys::{random_suffix, random_token},
    rows::{delete_register_token, insert_cluster, insert_grant, insert_register_token, insert_user},
};

const REGISTER_TOKEN_LENGTH: usize = 128;
const IDENTIFIER_LENGTH: usize = 16;
/// The length of the random suffix in a cluster's ID, because several projects can use the same ID of the platform.
const BCS_SUFFIX_LENGTH: usize = 8;
const LONGEST_CLUSTER_ID: usize = 100;
const LONGEST_PROJECT_ID: usize = 32;
const LONGEST_GROUP: usize = 190;
const MAX_GROUPS: usize = 32;

/// A new register token of an agent. Its value is shown only in this reply.
#[derive(Clone, Debug)]
pub struct CreatedRegisterToken {
    pub value: Secret,
    pub created_at: Moment,
    pub expires_at: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterName {
    Plain(String),
    Bcs(BcsInfo),
}

impl ClusterName {
    /// Checks the name of a new cluster, and returns the checked name. If the platform manages the cluster, `bcs`
    /// contains the project and the kind of the cluster. Otherwise, `bcs` is `None`.
    pub fn new(name: &str, bcs: Option<(&str, ClusterType)>) -> Result<Self, AccountsError> {
        let is_part = |text: &str, longest| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=longest).contains(&text.len()) && text.bytes().all(is_letter)
        };
        let invalid = |what, text, longest: usize| {
            Err(AccountsError::Invalid(format!(
                "`{text}` is not a valid {what}: write 1 to {longest} letters, digits, `-` and `_`"
            )))
        };
        if !is_part(name, LONGEST_CLUSTER_ID) {
            return invalid("ID of a cluster", name, LONGEST_CLUSTER_ID);
        }
        match bcs {
            None => Ok(Self::Plain(name.to_owned())),
            Some((project, _)) if !is_part(project, LONGEST_PROJECT_ID) => {
                invalid("project", project, LONGEST_PROJECT_ID)
            }
            Some((project, kind)) => Ok(Self::Bcs(BcsInfo {
                project_id: project.to_owned(),
                cluster_id: name.to_owned(),
                kind,
            })),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Plain(name) => name,
            Self::Bcs(info) => &info.cluster_id,
        }
    }
}

pub(super) fn unavailable(error: impl Display) -> AccountsError {
    AccountsError::Unavailable(error.to_string())
}

pub(super) fn moment_after(now: Moment, lifetime: Duration) -> Moment {
    Moment(now.0.checked_add(lifetime).unwrap_or(now.0))
}

impl Accounts {
    pub async fn create_user(
        &self,
        actor: &str,
        name: &UserName,
        is_super_user: bool,
        groups: &[String],
    ) -> Result<Arc<User>, AccountsError> {
        check_groups(groups)?;
        let mut change = self.0.database.begin_change().await?;
        let user = User {
            id: UserId::UNASSIGNED,
            name: name.clone(),
            is_super_user,
            groups: groups.to_vec(),
            created_at: now(),
        };
        let user = insert_user(&mut change, user).await?;
        self.commit(change, actor, "create user", name.as_str()).await?;
        Ok(Arc::new(user))
    }

    pub fn user(&self, name: &str) -> Result<Arc<User>, AccountsError> {
        let directory = self.directory()?;
        let user = directory.users().find(|user| user.name.as_str() == name);
        user.cloned()
            .ok_or_else(|| AccountsError::Unknown("user", name.to_owned()))
    }

    /// Deletes a user with all tokens and permissions, but not the clusters that the user created.
    pub async fn delete_user(&self, actor: &str, name: &str) -> Result<(), AccountsError> {
        let mut change = self.0.database.begin_change().await?;
        // The clusters of the deleted user stay, but get no creator. Some versions of MySQL give the number of a
        // deleted user to a new user after a restart. Such a user would otherwise become the creator of these clusters.
        query(
            "UPDATE admittance_clusters SET creator_id = ? \
             WHERE creator_id = (SELECT id FROM admittance_users WHERE name = ?)",
        )
        .bind(UserId::UNASSIGNED.0)
        .bind(name.to_owned())
        .execute(&mut *change)
        .await?;
        let delete_query = query("DELETE FROM admittance_users WHERE name = ?").bind(name.to_owned());
        let deleted = delete_query.execute(&mut *change).await?.rows_affected();
        if deleted == 0 {
            return Err(AccountsError::Unknown("user", name.to_owned()));
        }
        self.commit(change, actor, "delete user", name).await
    }

    pub async fn create_cluster(
        &self,
        actor: &str,
        creator: Option<&User>,
        name: &ClusterName,
    ) -> Result<Arc<RegisteredCluster>, AccountsError> {
        let lower = name.as_str().to_ascii_lowercase();
        let suffix = |length| random_suffix(length).map_err(unavailable);
        let (id, provider) = match name {
            ClusterName::Plain(_) => (format!("plain-{lower}"), Provider::Plain),
            ClusterName::Bcs(_) => (format!("bcs-{lower}-{}", suffix(BCS_SUFFIX_LENGTH)?), Provider::Bcs),
        };
        let cluster = RegisteredCluster {
            identifier: format!("{id}-{}", suffix(IDENTIFIER_LENGTH)?),
            id,
            provider,
            creator: creator.map_or(UserId::UNASSIGNED, |creator| creator.id),
            created_at: now(),
            bcs: match name {
                ClusterName::Plain(_) => None,
                ClusterName::Bcs(info) => Some(info.clone()),
            },
            credentials: None,
            register_token: None,
            grants: [].into(),
        };
        let mut change = self.0.database.begin_change().await?;
        if let ClusterName::Bcs(info) = name {
            let count: i64 = query_scalar(
                "SELECT COUNT(*) FROM admittance_clusters \
                 WHERE LOWER(bcs_cluster_id) = LOWER(?) AND project_id <> ?",
            )
            .bind(info.cluster_id.clone())
            .bind(info.project_id.clone())
            .fetch_one(&mut *change)
            .await?;
            if count > 0 {
                return Err(AccountsError::ForeignClusterId(info.cluster_id.clone()));
            }
        }
        if let Some(creator) = creator.filter(|creator| !creator.is_super_user) {
            let select = query_scalar("SELECT COUNT(*) FROM admittance_clusters WHERE creator_id = ?");
            let count: i64 = select.bind(creator.id.0).fetch_one(&mut *change).await?;
            let quota = self.0.clusters_per_user;
            if usize::try_from(count).is_ok_and(|count| count >= quota) {
                return Err(AccountsError::Quota(format!(
                    "{} has created {count} clusters already, and `accounts.clustersPerUser` allows {quota}: an \
                     administrator can delete some with `admittance clusters delete`, raise the limit, or create the \
                     cluster without a creator",
                    creator.name
                )));
            }
        }
        insert_cluster(&mut change, &cluster, name.as_str()).await?;
        self.commit(change, actor, "create cluster", &cluster.id).await?;
        Ok(Arc::new(cluster))
    }

    pub fn cluster(&self, id: &str) -> Result<Arc<RegisteredCluster>, AccountsError> {
        let directory = self.directory()?;
        let cluster = directory.cluster(id).cloned();
        cluster.ok_or_else(|| AccountsError::Unknown("cluster", id.to_owned()))
    }

    /// Deletes a cluster with its credentials, its register token and all permissions for the cluster.
    pub async fn delete_cluster(&self, actor: &str, id: &str) -> Result<(), AccountsError> {
        let mut change = self.0.database.begin_change().await?;
        let deleted = query("DELETE FROM admittance_clusters WHERE id = ?").bind(id.to_owned());
        if deleted.execute(&mut *change).await?.rows_affected() == 0 {
            return Err(AccountsError::Unknown("cluster", id.to_owned()));
        }
        self.commit(change, actor, "delete cluster", id).await
    }

    /// Creates a register token for a cluster. If it has one, `is_rotation` replaces it; otherwise, this fails.
    pub async fn create_register_token(
        &self,
        actor: &str,
        cluster: &RegisteredCluster,
        is_rotation: bool,
    ) -> Result<CreatedRegisterToken, AccountsError> {
        let value = random_token(REGISTER_TOKEN_LENGTH).map_err(unavailable)?;
        let created_at = now();
        let expires_at = moment_after(created_at, self.0.register_token_lifetime);
        let mut change = self.0.database.begin_change().await?;
        if is_rotation {
            delete_register_token(&mut change, &cluster.id).await?;
        }
        let token = RegisterToken {
            digest: TokenDigest::of_token(&value.0),
            created_at,
            expires_at,
            used_at: None,
        };
        insert_register_token(&mut change, &cluster.id, &token).await?;
        self.commit(change, actor, "create register token", &cluster.id).await?;
        Ok(CreatedRegisterToken {
            value,
            created_at,
            expires_at,
        })
    }

    pub async fn revoke_register_token(&self, actor: &str, cluster: &RegisteredCluster) -> Result<(), AccountsError> {
        let mut change = self.0.database.begin_change().await?;
        if delete_register_token(&mut change, &cluster.id).await? == 0 {
            return Err(AccountsError::Unknown(
                "register token of the cluster",
                cluster.id.clone(),
            ));
        }
        self.commit(change, actor, "revoke register token", &cluster.id).await
    }

    /// Sets the access of a user to a cluster, or withdraws it if the access is `None`. [`Access::Cluster`] to a Mesos
    /// cluster is an error, because Mesos clusters have no role bindings.
    pub async fn set_access(
        &self,
        actor: &str,
        user: &User,
        cluster: &RegisteredCluster,
        access: Option<Access>,
    ) -> Result<(), AccountsError> {
        if !cluster.is_kubernetes() && access == Some(Access::Cluster) {
            let id = &cluster.id;
            return Err(AccountsError::Invalid(format!(
                "{id} is a Mesos cluster, which has no role bindings: grant Read, Write or Hooks"
            )));
        }
        let mut change = self.0.database.begin_change().await?;
        let deleted = query("DELETE FROM admittance_permissions WHERE cluster_id = ? AND user_id = ?")
            .bind(cluster.id.clone())
            .bind(user.id.0);
        let deleted = deleted.execute(&mut *change).await?.rows_affected();
        let subject = format!("{} {}", user.name, cluster.id);
        let Some(access) = access else {
            if deleted == 0 {
                return Err(AccountsError::Unknown("permission", subject));
            }
            return self.commit(change, actor, "withdraw permission", &subject).await;
        };
        insert_grant(&mut change, user.id, &cluster.id, access)
            .await
            .map_err(violation_error("permission", "user or cluster", &subject))?;
        let subject = format!("{subject} {access}");
        self.commit(change, actor, "grant permission", &subject).await
    }
}

fn check_groups(groups: &[String]) -> Result<(), AccountsError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@/-".contains(&byte);
    for group in groups {
        if group.starts_with("system:") {
            return Err(AccountsError::Invalid(format!(
                "`{group}` cannot be a group of users: Kubernetes gives `system:` groups rights of its own"
            )));
        }
        if group.is_empty() || group.len() > LONGEST_GROUP || !group.bytes().all(is_letter) {
            return Err(AccountsError::Invalid(format!(
                "`{group}` is not a valid group: write at most {LONGEST_GROUP} letters, digits, `.`, `_`, `:`, `@`, `/` \
                 and `-`"
            )));
        }
    }
    if groups.len() > MAX_GROUPS {
        return Err(AccountsError::Invalid(format!(
            "a user has at most {MAX_GROUPS} groups"
        )));
    }
    Ok(())
}
