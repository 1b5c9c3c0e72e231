//! Changes by administrators and users. Each is one transaction, and one line of the audit log.

use std::{fmt::Display, sync::Arc, time::Duration};

use admittance::Moment;
use admittance_bcs::routes::Permission;
use admittance_net::bearer::TokenDigest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::{query, query_scalar};

use super::{
    Accounts, AccountsError, BcsInfo, Cluster, ClusterKind, Provider, RegisterToken, Secret, TokenId, User,
    UserId, UserName,
    database::{Change, moment, now, seconds},
    error::violation,
    keys::{random_suffix, random_token},
    rows::{
        UserTokenRow, delete_register_token, digest_text, insert_cluster, insert_permission,
        insert_register_token, insert_token, insert_user, token_place,
    },
};

const USER_TOKEN_LENGTH: usize = 32;
const REGISTER_TOKEN_LENGTH: usize = 128;
const IDENTIFIER_LENGTH: usize = 16;
/// Distinguishes clusters of projects that use the same ID.
const BCS_SUFFIX_LENGTH: usize = 8;
/// A limit for scripts that create a token each time they run.
const MOST_TOKENS: i64 = 32;
const LONGEST_CLUSTER_ID: usize = 100;
const LONGEST_PROJECT_ID: usize = 32;
const LONGEST_GROUP: usize = 190;
const MOST_GROUPS: usize = 32;

/// A token of a user, which is shown once.
#[derive(Clone, Debug)]
pub struct CreatedToken {
    pub id: TokenId,
    pub value: Secret,
    pub created_at: Moment,
    pub expires_at: Moment,
}

/// The token of an agent, which is shown once.
#[derive(Clone, Debug)]
pub struct CreatedRegisterToken {
    pub value: Secret,
    pub created_at: Moment,
    pub expires_at: Moment,
}

/// The result of encrypting all tokens again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reencrypted {
    /// The number of clusters whose tokens are encrypted with the first key now.
    pub tokens: usize,
    /// The number of tokens of users that are encrypted with the first key now.
    #[serde(default, rename = "userTokens")]
    pub user_tokens: usize,
    /// Tokens that could not be decrypted and stay as they are, each with the reason and what to do.
    pub skipped: Vec<String>,
}

/// The name of a new cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterName {
    Plain(String),
    Bcs(BcsInfo),
}

impl ClusterName {
    /// Check a name, and a project if the platform manages the cluster.
    pub fn new(name: &str, bcs: Option<(&str, ClusterKind)>) -> Result<Self, AccountsError> {
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

fn unavailable(error: impl Display) -> AccountsError {
    AccountsError::Unavailable(error.to_string())
}

/// The end of a lifetime. One that is too long for the clock ends at once.
fn after(now: Moment, lifetime: Duration) -> Moment {
    Moment(now.0.checked_add(lifetime).unwrap_or(now.0))
}

impl Accounts {
    pub async fn create_user(
        &self,
        by: &str,
        name: &UserName,
        is_super_user: bool,
        groups: &[String],
    ) -> Result<Arc<User>, AccountsError> {
        check_groups(groups)?;
        let mut change = self.0.database.change().await?;
        let user = User {
            id: UserId::NOBODY,
            name: name.clone(),
            is_super_user,
            groups: groups.to_vec(),
            created_at: now(),
        };
        let user = insert_user(&mut change, user).await?;
        self.commit(change, by, "create user", name.as_str()).await?;
        Ok(Arc::new(user))
    }

    /// The user of this name.
    pub fn user(&self, name: &str) -> Result<Arc<User>, AccountsError> {
        let directory = self.now()?;
        let user = directory.users().find(|user| user.name.as_str() == name);
        user.cloned()
            .ok_or_else(|| AccountsError::Unknown("user", name.to_owned()))
    }

    /// Deletes the user's tokens and permissions as well, but not the clusters that the user created.
    pub async fn delete_user(&self, by: &str, name: &str) -> Result<(), AccountsError> {
        let mut change = self.0.database.change().await?;
        // Some versions of MySQL use the number of a deleted user again after a restart.
        query(
            "UPDATE admittance_clusters SET creator_id = ? \
             WHERE creator_id = (SELECT id FROM admittance_users WHERE name = ?)",
        )
        .bind(UserId::NOBODY.0)
        .bind(name.to_owned())
        .execute(&mut *change)
        .await?;
        let deleted = query("DELETE FROM admittance_users WHERE name = ?").bind(name.to_owned());
        let deleted = deleted.execute(&mut *change).await?.rows_affected();
        if deleted == 0 {
            return Err(AccountsError::Unknown("user", name.to_owned()));
        }
        self.commit(change, by, "delete user", name).await
    }

    /// Creates another token of a user. Its value is not stored.
    pub async fn create_token(
        &self,
        by: &str,
        user: &User,
        lifetime: Duration,
    ) -> Result<CreatedToken, AccountsError> {
        let change = self.0.database.change().await?;
        self.insert_new_token(change, by, user, lifetime, false).await
    }

    /// Returns the token that this function created for the user earlier, or that was imported as the user's plain token.
    /// Creates one if there is none, or if it has expired, was revoked, or cannot be decrypted.
    pub async fn get_or_create_token(
        &self,
        by: &str,
        user: &User,
        lifetime: Duration,
    ) -> Result<CreatedToken, AccountsError> {
        let mut change = self.0.database.change().await?;
        let rows: Vec<(i64, String, String, i64, i64)> = sqlx::query_as(
            "SELECT id, digest, sealed_value, created_at, expires_at FROM admittance_user_tokens \
             WHERE user_id = ? AND sealed_value IS NOT NULL AND expires_at > ? ORDER BY id DESC",
        )
        .bind(user.id.0)
        .bind(seconds(now()))
        .fetch_all(&mut *change)
        .await?;
        for (id, digest, sealed, created_at, expires_at) in rows {
            match self.0.keys.reload_and_open(&sealed, &token_place(&digest)) {
                Ok(value) => {
                    return Ok(CreatedToken {
                        id: TokenId(id),
                        value,
                        created_at: moment(created_at),
                        expires_at: moment(expires_at),
                    });
                }
                Err(why) => {
                    tracing::warn!("the token {id} of {} cannot be shown again: {why}", user.name);
                }
            }
        }
        self.insert_new_token(change, by, user, lifetime, true).await
    }

    async fn insert_new_token(
        &self,
        mut change: Change,
        by: &str,
        user: &User,
        lifetime: Duration,
        can_be_shown_again: bool,
    ) -> Result<CreatedToken, AccountsError> {
        let count =
            query_scalar("SELECT COUNT(*) FROM admittance_user_tokens WHERE user_id = ?").bind(user.id.0);
        let count: i64 = count.fetch_one(&mut *change).await?;
        if count >= MOST_TOKENS {
            return Err(AccountsError::Quota(format!(
                "{} has {count} tokens already, the most that a user may have: revoke some, as \
                 `admittance tokens list {}` lists them",
                user.name, user.name
            )));
        }
        let value = random_token(USER_TOKEN_LENGTH).map_err(unavailable)?;
        let digest = digest_text(TokenDigest::of(&value.0));
        let created_at = now();
        let expires_at = after(created_at, lifetime);
        let sealed_value = can_be_shown_again.then(|| self.0.keys.seal(&value, &token_place(&digest)));
        let token = UserTokenRow {
            id: None,
            user: user.id,
            digest: digest.clone(),
            created_at,
            expires_at,
            sealed_value: sealed_value.transpose().map_err(unavailable)?,
        };
        insert_token(&mut change, token)
            .await
            .map_err(violation("token", "user", &user.name))?;
        let id = query_scalar("SELECT id FROM admittance_user_tokens WHERE digest = ?").bind(digest);
        let id = TokenId(id.fetch_one(&mut *change).await?);
        let subject = format!("{} {}", user.name, id.0);
        self.commit(change, by, "create token", &subject).await?;
        Ok(CreatedToken {
            id,
            value,
            created_at,
            expires_at,
        })
    }

    pub async fn revoke_token(&self, by: &str, user: &User, id: TokenId) -> Result<(), AccountsError> {
        let mut change = self.0.database.change().await?;
        let deleted = query("DELETE FROM admittance_user_tokens WHERE id = ? AND user_id = ?")
            .bind(id.0)
            .bind(user.id.0);
        let subject = format!("{} {}", user.name, id.0);
        if deleted.execute(&mut *change).await?.rows_affected() == 0 {
            return Err(AccountsError::Unknown("token", subject));
        }
        self.commit(change, by, "revoke token", &subject).await
    }

    pub async fn create_cluster(
        &self,
        by: &str,
        creator: Option<&User>,
        name: &ClusterName,
    ) -> Result<Arc<Cluster>, AccountsError> {
        let lower = name.as_str().to_ascii_lowercase();
        let suffix = |length| random_suffix(length).map_err(unavailable);
        let (id, provider) = match name {
            ClusterName::Plain(_) => (format!("plain-{lower}"), Provider::Plain),
            ClusterName::Bcs(_) => (
                format!("bcs-{lower}-{}", suffix(BCS_SUFFIX_LENGTH)?),
                Provider::Bcs,
            ),
        };
        let cluster = Cluster {
            identifier: format!("{id}-{}", suffix(IDENTIFIER_LENGTH)?),
            id,
            provider,
            creator: creator.map_or(UserId::NOBODY, |creator| creator.id),
            created_at: now(),
            bcs: match name {
                ClusterName::Plain(_) => None,
                ClusterName::Bcs(info) => Some(info.clone()),
            },
            credentials: None,
            register_token: None,
            grants: [].into(),
        };
        let mut change = self.0.database.change().await?;
        if let ClusterName::Bcs(info) = name {
            let count = query_scalar(
                "SELECT COUNT(*) FROM admittance_clusters \
                 WHERE LOWER(bcs_cluster_id) = LOWER(?) AND project_id <> ?",
            );
            let count = count.bind(info.cluster_id.clone()).bind(info.project_id.clone());
            let count: i64 = count.fetch_one(&mut *change).await?;
            if count > 0 {
                return Err(AccountsError::ForeignClusterId(info.cluster_id.clone()));
            }
        }
        if let Some(creator) = creator.filter(|creator| !creator.is_super_user) {
            let count = query_scalar("SELECT COUNT(*) FROM admittance_clusters WHERE creator_id = ?");
            let count: i64 = count.bind(creator.id.0).fetch_one(&mut *change).await?;
            let most = self.0.clusters_per_user;
            if usize::try_from(count).is_ok_and(|count| count >= most) {
                return Err(AccountsError::Quota(format!(
                    "{} has created {count} clusters already, and `accounts.clustersPerUser` allows {most}: an \
                     administrator can delete some with `admittance clusters delete`, raise the limit, or create the \
                     cluster without a creator",
                    creator.name
                )));
            }
        }
        insert_cluster(&mut change, &cluster, name.as_str()).await?;
        self.commit(change, by, "create cluster", &cluster.id).await?;
        Ok(Arc::new(cluster))
    }

    /// The cluster with this ID.
    pub fn cluster(&self, id: &str) -> Result<Arc<Cluster>, AccountsError> {
        let directory = self.now()?;
        let cluster = directory.cluster(id).cloned();
        cluster.ok_or_else(|| AccountsError::Unknown("cluster", id.to_owned()))
    }

    /// Deletes its credentials, its register token and the permissions for it as well.
    pub async fn delete_cluster(&self, by: &str, id: &str) -> Result<(), AccountsError> {
        let mut change = self.0.database.change().await?;
        let deleted = query("DELETE FROM admittance_clusters WHERE id = ?").bind(id.to_owned());
        if deleted.execute(&mut *change).await?.rows_affected() == 0 {
            return Err(AccountsError::Unknown("cluster", id.to_owned()));
        }
        self.commit(change, by, "delete cluster", id).await
    }

    /// A new register token. If the cluster already has one, `rotate` replaces it; otherwise, that is an error.
    pub async fn create_register_token(
        &self,
        by: &str,
        cluster: &Cluster,
        rotate: bool,
    ) -> Result<CreatedRegisterToken, AccountsError> {
        let value = random_token(REGISTER_TOKEN_LENGTH).map_err(unavailable)?;
        let created_at = now();
        let expires_at = after(created_at, self.0.register_token_lifetime);
        let mut change = self.0.database.change().await?;
        if rotate {
            delete_register_token(&mut change, &cluster.id).await?;
        }
        let token = RegisterToken {
            digest: TokenDigest::of(&value.0),
            created_at,
            expires_at,
            used_at: None,
        };
        insert_register_token(&mut change, &cluster.id, &token).await?;
        self.commit(change, by, "create register token", &cluster.id)
            .await?;
        Ok(CreatedRegisterToken {
            value,
            created_at,
            expires_at,
        })
    }

    pub async fn revoke_register_token(&self, by: &str, cluster: &Cluster) -> Result<(), AccountsError> {
        let mut change = self.0.database.change().await?;
        if delete_register_token(&mut change, &cluster.id).await? == 0 {
            return Err(AccountsError::Unknown(
                "register token of the cluster",
                cluster.id.clone(),
            ));
        }
        self.commit(change, by, "revoke register token", &cluster.id)
            .await
    }

    /// Set the permission of a user for a cluster; none withdraws it.
    pub async fn grant(
        &self,
        by: &str,
        user: &User,
        cluster: &Cluster,
        permission: Option<Permission>,
    ) -> Result<(), AccountsError> {
        let mut change = self.0.database.change().await?;
        let deleted = query("DELETE FROM admittance_permissions WHERE cluster_id = ? AND user_id = ?")
            .bind(cluster.id.clone())
            .bind(user.id.0);
        let deleted = deleted.execute(&mut *change).await?.rows_affected();
        let subject = format!("{} {}", user.name, cluster.id);
        let Some(permission) = permission else {
            if deleted == 0 {
                return Err(AccountsError::Unknown("permission", subject));
            }
            return self.commit(change, by, "withdraw permission", &subject).await;
        };
        insert_permission(&mut change, user.id, &cluster.id, permission)
            .await
            .map_err(violation("permission", "user or cluster", &subject))?;
        let subject = format!("{subject} {permission}");
        self.commit(change, by, "grant permission", &subject).await
    }

    /// Encrypts all encrypted tokens with the first key of the file. Those that cannot be decrypted stay as they are.
    pub async fn reencrypt(&self, by: &str) -> Result<Reencrypted, AccountsError> {
        self.0.keys.reload().map_err(AccountsError::Invalid)?;
        let mut change = self.0.database.change().await?;
        let rows: Vec<(String, String)> =
            sqlx::query_as("SELECT cluster_id, sealed_token FROM admittance_credentials ORDER BY cluster_id")
                .fetch_all(&mut *change)
                .await?;
        let mut done = Reencrypted::default();
        for (cluster, sealed) in rows {
            match self.0.keys.reseal(&sealed, &cluster) {
                Ok(sealed) => {
                    query("UPDATE admittance_credentials SET sealed_token = ? WHERE cluster_id = ?")
                        .bind(sealed)
                        .bind(cluster)
                        .execute(&mut *change)
                        .await?;
                    done.tokens += 1;
                }
                Err(why) => done.skipped.push(format!(
                    "the token of the cluster {cluster}: {why}, or have its agent report again"
                )),
            }
        }
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "SELECT id, digest, sealed_value FROM admittance_user_tokens \
             WHERE sealed_value IS NOT NULL ORDER BY id",
        )
        .fetch_all(&mut *change)
        .await?;
        for (id, digest, sealed) in rows {
            match self.0.keys.reseal(&sealed, &token_place(&digest)) {
                Ok(sealed) => {
                    query("UPDATE admittance_user_tokens SET sealed_value = ? WHERE id = ?")
                        .bind(sealed)
                        .bind(id)
                        .execute(&mut *change)
                        .await?;
                    done.user_tokens += 1;
                }
                Err(why) => done.skipped.push(format!(
                    "the token {id} of a user: {why}, or revoke it so that another is created"
                )),
            }
        }
        let subject = format!("{} tokens of clusters", done.tokens);
        self.commit(change, by, "encrypt again", &subject).await?;
        Ok(done)
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
    if groups.len() > MOST_GROUPS {
        return Err(AccountsError::Invalid(format!(
            "a user has at most {MOST_GROUPS} groups"
        )));
    }
    Ok(())
}
