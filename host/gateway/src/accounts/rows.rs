//! Writes the rows of users, clusters, tokens and grants in the database.

use admittance::Moment;
use admittance_net::bearer::TokenDigest;
use sqlx::{query, query_scalar};

use super::{
    Access, AccountsError, RegisterToken, RegisteredCluster, TokenId, User, UserId,
    database::{DatabaseTransaction, seconds},
    error::violation_error,
};

pub(super) fn digest_text(digest: TokenDigest) -> String {
    hex::encode(digest.as_bytes())
}

/// Returns the `row_name` for the encryption of a user's token. It contains a space, so it differs from the `row_name`
/// for the token of a cluster, which is the ID of the cluster.
pub(super) fn token_row_name(digest: &str) -> String {
    format!("user token {digest}")
}

/// Inserts a user into the database. If the user's number is [`UserId::UNASSIGNED`], the database chooses a number.
pub(super) async fn insert_user(change: &mut DatabaseTransaction, user: User) -> Result<User, AccountsError> {
    query("INSERT INTO admittance_users (id, name, is_super_user, user_groups, created_at) VALUES (?, ?, ?, ?, ?)")
        .bind((user.id != UserId::UNASSIGNED).then_some(user.id.0))
        .bind(user.name.as_str().to_owned())
        .bind(i64::from(user.is_super_user))
        .bind(user.groups.join(" "))
        .bind(seconds(user.created_at))
        .execute(&mut **change)
        .await
        .map_err(violation_error("user", "user", &user.name))?;
    let id = query_scalar("SELECT id FROM admittance_users WHERE name = ?").bind(user.name.as_str().to_owned());
    Ok(User {
        id: UserId(id.fetch_one(&mut **change).await?),
        ..user
    })
}

#[derive(Clone, Debug)]
pub(super) struct UserTokenRow {
    /// The number of the user's token. With `None`, the database chooses one.
    pub(super) id: Option<TokenId>,
    pub(super) user: UserId,
    pub(super) digest: String,
    pub(super) created_at: Moment,
    pub(super) expires_at: Moment,
    /// The value of the user's token in encrypted form, if the token can be shown again; `None` otherwise.
    pub(super) sealed_value: Option<String>,
}

pub(super) async fn insert_token(change: &mut DatabaseTransaction, token: UserTokenRow) -> Result<(), sqlx::Error> {
    query(
        "INSERT INTO admittance_user_tokens (id, user_id, digest, created_at, expires_at, sealed_value) \
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(token.id.map(|id| id.0))
    .bind(token.user.0)
    .bind(token.digest)
    .bind(seconds(token.created_at))
    .bind(seconds(token.expires_at))
    .bind(token.sealed_value)
    .execute(&mut **change)
    .await
    .map(drop)
}

pub(super) async fn insert_cluster(
    change: &mut DatabaseTransaction,
    cluster: &RegisteredCluster,
    name: &str,
) -> Result<(), AccountsError> {
    let info = cluster.bcs.as_ref();
    query(
        "INSERT INTO admittance_clusters \
         (id, identifier, provider, creator_id, created_at, project_id, bcs_cluster_id, cluster_type) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(cluster.id.clone())
    .bind(cluster.identifier.clone())
    .bind(cluster.provider.as_str())
    .bind(cluster.creator.0)
    .bind(seconds(cluster.created_at))
    .bind(info.map(|info| info.project_id.clone()))
    .bind(info.map(|info| info.cluster_id.clone()))
    .bind(info.map(|info| info.kind.as_str()))
    .execute(&mut **change)
    .await
    .map_err(violation_error("cluster", "cluster", name))?;
    Ok(())
}

pub(super) async fn insert_grant(
    change: &mut DatabaseTransaction,
    user: UserId,
    cluster: &str,
    access: Access,
) -> Result<(), sqlx::Error> {
    query("INSERT INTO admittance_permissions (cluster_id, user_id, permission) VALUES (?, ?, ?)")
        .bind(cluster.to_owned())
        .bind(user.0)
        .bind(access.to_string())
        .execute(&mut **change)
        .await
        .map(drop)
}

pub(super) async fn insert_register_token(
    change: &mut DatabaseTransaction,
    cluster: &str,
    token: &RegisterToken,
) -> Result<(), AccountsError> {
    query(
        "INSERT INTO admittance_register_tokens (cluster_id, digest, created_at, expires_at, used_at) \
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(cluster.to_owned())
    .bind(digest_text(token.digest))
    .bind(seconds(token.created_at))
    .bind(seconds(token.expires_at))
    .bind(token.used_at.map(seconds))
    .execute(&mut **change)
    .await
    .map_err(violation_error("register token of the cluster", "cluster", cluster))?;
    Ok(())
}

pub(super) async fn delete_register_token(
    change: &mut DatabaseTransaction,
    cluster: &str,
) -> Result<u64, AccountsError> {
    let deleted = query("DELETE FROM admittance_register_tokens WHERE cluster_id = ?").bind(cluster.to_owned());
    Ok(deleted.execute(&mut **change).await?.rows_affected())
}
