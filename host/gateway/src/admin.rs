//! Routes of the admin API for the users and clusters of a gateway. Every change is in the audit log, with its author.

mod health;
mod types;

use std::{sync::Arc, time::Duration};

use admittance_admin::{
    AdminRole, ApiError, Call, Json,
    Method::{Delete, Get, Post},
    Nothing, Route,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub use self::health::panel;
pub use self::types::{
    BcsCluster, ClusterEntry, ClusterList, IssuedToken, NewCluster, NewToken, NewUser, PermissionEntry,
    RegisterTokenEntry, Removed, TokenEntry, UserEntry, UserList,
};
use crate::accounts::{Access, Accounts, AccountsError, ClusterName, ClusterType, TokenId, User, UserName};
pub use crate::accounts::{ImportedAccounts, Reencrypted};

const LONGEST_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
const SHORTEST_LIFETIME: Duration = Duration::from_secs(60);

const REFUSAL_STATUSES: &[u16] = &[404, 408, 409, 413, 415, 503];

/// Returns the routes for users and clusters. Their handlers get the [`Accounts`] from the extensions of the port.
#[rustfmt::skip]
pub fn routes() -> Vec<Route> {
    let (read_role, admin_role) = (Some(AdminRole::Read), Some(AdminRole::Admin));
    let users = "/v1/users/{name}";
    let clusters = "/v1/clusters/{id}";
    let tokens = "/v1/users/{name}/tokens";
    let token = "/v1/users/{name}/tokens/{id}";
    let register_token = "/v1/clusters/{id}/register-token";
    let permissions = "/v1/clusters/{id}/permissions";
    let permission = "/v1/clusters/{id}/permissions/{user}";
    let (reencrypt_path, import_path) = ("/v1/accounts/reencrypt", "/v1/accounts/import");
    let routes = [
        Route::new(Get, read_role, "/v1/users", "listUsers", "The users of a gateway", list_users),
        Route::new(Post, admin_role, "/v1/users", "createUser", "Create a user", create_user),
        Route::new(Get, read_role, users, "getUser", "A user of a gateway", get_user),
        Route::new(Delete, admin_role, users, "deleteUser", "Delete a user", delete_user)
            .description("With the user's tokens and permissions. Clusters that the user created stay."),
        Route::new(Post, admin_role, tokens, "createToken", "Create a token of a user", create_token)
            .description("The value is shown only in this reply."),
        Route::new(Delete, admin_role, token, "revokeToken", "Revoke a token of a user", revoke_token)
            .description("Requests and watches that use it end within seconds."),
        Route::new(Get, read_role, "/v1/clusters", "listClusters", "The clusters that users of a gateway reach", list_clusters),
        Route::new(Post, admin_role, "/v1/clusters", "createCluster", "Register a cluster", create_cluster),
        Route::new(Delete, admin_role, clusters, "deleteCluster", "Delete a cluster", delete_cluster)
            .description("With its credentials, its register token and the permissions for it."),
        Route::new(Post, admin_role, register_token, "createRegisterToken", "Create or rotate a register token", create_register_token)
            .description("A previous one is no longer valid. The value is shown only in this reply."),
        Route::new(Delete, admin_role, register_token, "revokeRegisterToken", "Revoke a register token", revoke_register_token),
        Route::new(Post, admin_role, permissions, "grantPermission", "Grant a permission for a cluster", grant_permission)
            .description("It replaces another one of the same user."),
        Route::new(Delete, admin_role, permission, "withdrawPermission", "Withdraw a permission for a cluster", withdraw_permission),
        Route::new(Post, admin_role, reencrypt_path, "reencrypt", "Encrypt the tokens of clusters with the first key of the key file", reencrypt)
            .description("The file is read again first."),
        Route::new(Post, admin_role, import_path, "importAccounts", "Copy users and clusters of bcs-api from the same database", import)
            .description("In one transaction, with their IDs. If rows conflict with what is here, all of them are listed and nothing is copied. What was copied before is not copied again, and bcs-api's tables stay as they are."),
    ];
    routes.into_iter().map(|route| route.refusals(REFUSAL_STATUSES)).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct UserPath {
    /// The name of the user: `alice`, or `plain:alice`.
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TokenPath {
    /// The name of the user: `alice`, or `plain:alice`.
    name: String,
    /// The number of the token.
    id: i64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ClusterPath {
    /// The ID of the cluster: `plain-dev`.
    id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PermissionPath {
    /// The ID of the cluster: `plain-dev`.
    id: String,
    /// The name of the user: `alice`, or `plain:alice`.
    user: String,
}

impl From<AccountsError> for ApiError {
    fn from(error: AccountsError) -> Self {
        let text = error.to_string();
        match error {
            AccountsError::Invalid(_) | AccountsError::Denied(_) => Self::Malformed(text),
            AccountsError::Unknown(..) => Self::NotFound(text),
            AccountsError::Exists(..)
            | AccountsError::ForeignClusterId(_)
            | AccountsError::ImportConflicts(_)
            | AccountsError::Quota(_) => Self::Conflict(text),
            AccountsError::TooSoon(_) | AccountsError::Unavailable(_) | AccountsError::MissingKey { .. } => {
                Self::Unavailable(text)
            }
        }
    }
}

fn accounts_of<P, Q, B>(call: &Call<P, Q, B>) -> Result<&Accounts, ApiError> {
    call.extension().ok_or_else(|| {
        ApiError::NotFound("this driver has no users and clusters: configure `dialect.gateway.accounts`".to_owned())
    })
}

fn find_user(accounts: &Accounts, name: &str) -> Result<Arc<User>, ApiError> {
    Ok(accounts.user(user_name(name)?.as_str())?)
}

fn user_name(name: &str) -> Result<UserName, ApiError> {
    UserName::plain(name).map_err(|error| ApiError::Malformed(error.to_string()))
}

fn removed_reply(kind: &str, name: &str) -> Json<Removed> {
    Json(Removed {
        removed: format!("{kind} {name}"),
    })
}

async fn list_users(call: Call) -> Result<Json<UserList>, ApiError> {
    let directory = accounts_of(&call)?.directory()?;
    let users = directory.users().map(|user| UserEntry::new(user, &directory));
    Ok(Json(UserList { users: users.collect() }))
}

async fn get_user(call: Call<UserPath>) -> Result<Json<UserEntry>, ApiError> {
    let accounts = accounts_of(&call)?;
    let user = find_user(accounts, &call.path.name)?;
    Ok(Json(UserEntry::new(&user, &*accounts.directory()?)))
}

async fn create_user(call: Call<Nothing, Nothing, Json<NewUser>>) -> Result<Json<UserEntry>, ApiError> {
    let (accounts, by) = (accounts_of(&call)?, call.client_name());
    let Json(NewUser {
        name,
        super_user,
        groups,
    }) = &call.body;
    let name = user_name(name)?;
    let user = accounts.create_user(&by, &name, *super_user, groups).await?;
    Ok(Json(UserEntry::new(&user, &*accounts.directory()?)))
}

async fn delete_user(call: Call<UserPath>) -> Result<Json<Removed>, ApiError> {
    let name = user_name(&call.path.name)?;
    accounts_of(&call)?
        .delete_user(&call.client_name(), name.as_str())
        .await?;
    Ok(removed_reply("user", name.as_str()))
}

async fn create_token(call: Call<UserPath, Nothing, Json<NewToken>>) -> Result<Json<IssuedToken>, ApiError> {
    let accounts = accounts_of(&call)?;
    let user = find_user(accounts, &call.path.name)?;
    let Json(NewToken { expires_in }) = call.body;
    let lifetime = Duration::from_secs(expires_in);
    if !(SHORTEST_LIFETIME..=LONGEST_LIFETIME).contains(&lifetime) {
        let (min_seconds, max_seconds) = (SHORTEST_LIFETIME.as_secs(), LONGEST_LIFETIME.as_secs());
        return Err(ApiError::Malformed(format!(
            "expiresIn is {expires_in}: write a number of seconds from {min_seconds} to {max_seconds}"
        )));
    }
    let token = accounts.create_token(&call.client_name(), &user, lifetime).await?;
    Ok(Json(IssuedToken {
        id: Some(token.id.0),
        token: token.value.0,
        expires_at: token.expires_at,
    }))
}

async fn revoke_token(call: Call<TokenPath>) -> Result<Json<Removed>, ApiError> {
    let accounts = accounts_of(&call)?;
    let TokenPath { name, id } = &call.path;
    let user = find_user(accounts, name)?;
    accounts.revoke_token(&call.client_name(), &user, TokenId(*id)).await?;
    Ok(removed_reply("token", &format!("{id} of {}", user.name)))
}

async fn list_clusters(call: Call) -> Result<Json<ClusterList>, ApiError> {
    let directory = accounts_of(&call)?.directory()?;
    let clusters = directory
        .clusters()
        .map(|cluster| ClusterEntry::new(cluster, &directory));
    Ok(Json(ClusterList {
        clusters: clusters.collect(),
    }))
}

async fn create_cluster(call: Call<Nothing, Nothing, Json<NewCluster>>) -> Result<Json<ClusterEntry>, ApiError> {
    let accounts = accounts_of(&call)?;
    let Json(NewCluster {
        id,
        creator,
        project_id,
        kind,
    }) = &call.body;
    let creator = creator.as_ref().map(|name| find_user(accounts, name)).transpose()?;
    let kind = match kind {
        None => ClusterType::Kubernetes,
        Some(text) => text
            .parse()
            .map_err(|error| ApiError::Malformed(format!("type: {error}")))?,
    };
    let bcs = project_id.as_ref().map(|project| (project.as_str(), kind));
    let name = ClusterName::new(id, bcs)?;
    let cluster = accounts
        .create_cluster(&call.client_name(), creator.as_deref(), &name)
        .await?;
    Ok(Json(ClusterEntry::new(&cluster, &*accounts.directory()?)))
}

async fn delete_cluster(call: Call<ClusterPath>) -> Result<Json<Removed>, ApiError> {
    let id = &call.path.id;
    accounts_of(&call)?.delete_cluster(&call.client_name(), id).await?;
    Ok(removed_reply("cluster", id))
}

async fn create_register_token(call: Call<ClusterPath>) -> Result<Json<IssuedToken>, ApiError> {
    let accounts = accounts_of(&call)?;
    let cluster = accounts.cluster(&call.path.id)?;
    let token = accounts
        .create_register_token(&call.client_name(), &cluster, true)
        .await?;
    Ok(Json(IssuedToken {
        id: None,
        token: token.value.0,
        expires_at: token.expires_at,
    }))
}

async fn revoke_register_token(call: Call<ClusterPath>) -> Result<Json<Removed>, ApiError> {
    let accounts = accounts_of(&call)?;
    let cluster = accounts.cluster(&call.path.id)?;
    accounts.revoke_register_token(&call.client_name(), &cluster).await?;
    Ok(removed_reply("register token of", &cluster.id))
}

async fn grant_permission(
    call: Call<ClusterPath, Nothing, Json<PermissionEntry>>,
) -> Result<Json<ClusterEntry>, ApiError> {
    let accounts = accounts_of(&call)?;
    let cluster = accounts.cluster(&call.path.id)?;
    let Json(PermissionEntry { user: name, permission }) = &call.body;
    let user = find_user(accounts, name)?;
    let access: Access = permission
        .parse()
        .map_err(|error| ApiError::Malformed(format!("permission: {error}")))?;
    accounts
        .set_access(&call.client_name(), &user, &cluster, Some(access))
        .await?;
    let cluster = accounts.cluster(&cluster.id)?;
    Ok(Json(ClusterEntry::new(&cluster, &*accounts.directory()?)))
}

async fn withdraw_permission(call: Call<PermissionPath>) -> Result<Json<Removed>, ApiError> {
    let accounts = accounts_of(&call)?;
    let PermissionPath { id, user: name } = &call.path;
    let (cluster, user) = (accounts.cluster(id)?, find_user(accounts, name)?);
    accounts.set_access(&call.client_name(), &user, &cluster, None).await?;
    Ok(removed_reply("permission of", &format!("{} for {id}", user.name)))
}

async fn reencrypt(call: Call) -> Result<Json<Reencrypted>, ApiError> {
    Ok(Json(accounts_of(&call)?.reencrypt(&call.client_name()).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ImportQuery {
    /// Names of users of the gateway, separated by commas. The import deletes those who conflict with a user of
    /// bcs-api, with all their tokens.
    #[serde(default)]
    replace: Option<String>,
}

async fn import(call: Call<Nothing, ImportQuery>) -> Result<Json<ImportedAccounts>, ApiError> {
    let replaced_names = call.query.replace.iter().flat_map(|names| names.split(','));
    let replace: Vec<UserName> = replaced_names.map(user_name).collect::<Result<_, _>>()?;
    Ok(Json(accounts_of(&call)?.import(&call.client_name(), &replace).await?))
}
