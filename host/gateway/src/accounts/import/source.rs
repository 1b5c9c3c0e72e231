//! Reads the rows of bcs-api's tables, without interpreting them.

use sqlx::{AnyConnection, FromRow, Row, any::AnyRow, query_as};

use crate::accounts::AccountsError;

#[derive(Debug)]
pub(super) struct SourceUser {
    pub(super) id: i64,
    /// The name of a user, such as `plain:alice`. A user of `bootstrap_users` has the configured name, such as `admin`.
    pub(super) name: String,
    pub(super) is_super_user: i64,
    /// The time at which bcs-api created the user, in seconds since 1970.
    pub(super) created_at: Option<i64>,
}

/// A row of `user_tokens` that has not expired.
#[derive(Debug)]
pub(super) struct SourceToken {
    pub(super) id: i64,
    pub(super) user_id: i64,
    /// The type of the token: 3 for a plain token, which `POST users/{id}/tokens` returns.
    pub(super) kind: i64,
    pub(super) value: String,
    pub(super) created_at: Option<i64>,
    pub(super) expires_at: i64,
}

/// A row of `clusters`, joined with `bcs_cluster_infos` if the platform manages the cluster.
#[derive(Debug)]
pub(super) struct SourceCluster {
    pub(super) id: String,
    pub(super) provider: i64,
    pub(super) creator_id: i64,
    pub(super) identifier: String,
    pub(super) created_at: Option<i64>,
    pub(super) project_id: Option<String>,
    pub(super) platform_id: Option<String>,
    pub(super) kind: Option<i64>,
}

#[derive(Debug)]
pub(super) struct SourceCredentials {
    pub(super) cluster_id: String,
    pub(super) server_addresses: String,
    pub(super) ca_cert_data: String,
    pub(super) user_token: String,
    pub(super) cluster_domain: String,
}

/// An active row of bcs-api's table `user_cluster_permissions`.
#[derive(Debug)]
pub(super) struct SourcePermission {
    pub(super) user_id: i64,
    pub(super) cluster_id: String,
    pub(super) name: String,
}

/// Generates code that reads the fields of a row from the columns with the names of the fields.
macro_rules! read_by_name {
    ($($row:ident { $($field:ident),+ })+) => {$(
        impl FromRow<'_, AnyRow> for $row {
            fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
                Ok(Self { $($field: row.try_get(stringify!($field))?),+ })
            }
        }
    )+};
}

read_by_name! {
    SourceUser { id, name, is_super_user, created_at }
    SourceToken { id, user_id, kind, value, created_at, expires_at }
    SourceCluster { id, provider, creator_id, identifier, created_at, project_id, platform_id, kind }
    SourceCredentials { cluster_id, server_addresses, ca_cert_data, user_token, cluster_domain }
    SourcePermission { user_id, cluster_id, name }
}

#[derive(Debug)]
pub(super) struct ImportSource {
    pub(super) users: Vec<SourceUser>,
    pub(super) tokens: Vec<SourceToken>,
    pub(super) clusters: Vec<SourceCluster>,
    pub(super) credentials: Vec<SourceCredentials>,
    pub(super) register_tokens: Vec<(String, String)>,
    pub(super) permissions: Vec<SourcePermission>,
}

impl ImportSource {
    pub(super) async fn read(connection: &mut AnyConnection) -> Result<Self, AccountsError> {
        Ok(Self {
            users: query_as(
                "SELECT CAST(id AS SIGNED) AS id, name, CAST(COALESCE(is_super_user, 0) AS SIGNED) AS is_super_user, \
                 CAST(UNIX_TIMESTAMP(created_at) AS SIGNED) AS created_at FROM users ORDER BY id",
            )
            .fetch_all(&mut *connection)
            .await?,
            tokens: query_as(
                "SELECT CAST(id AS SIGNED) AS id, CAST(user_id AS SIGNED) AS user_id, \
                 CAST(COALESCE(type, 0) AS SIGNED) AS kind, value, \
                 CAST(UNIX_TIMESTAMP(created_at) AS SIGNED) AS created_at, \
                 CAST(UNIX_TIMESTAMP(expires_at) AS SIGNED) AS expires_at \
                 FROM user_tokens WHERE expires_at > NOW() ORDER BY id",
            )
            .fetch_all(&mut *connection)
            .await?,
            clusters: query_as(
                "SELECT c.id AS id, CAST(c.provider AS SIGNED) AS provider, \
                 CAST(COALESCE(c.creator_id, 0) AS SIGNED) AS creator_id, c.identifier AS identifier, \
                 CAST(UNIX_TIMESTAMP(c.created_at) AS SIGNED) AS created_at, i.source_project_id AS project_id, \
                 i.source_cluster_id AS platform_id, CAST(i.cluster_type AS SIGNED) AS kind \
                 FROM clusters c LEFT JOIN bcs_cluster_infos i ON i.cluster_id = c.id ORDER BY c.id",
            )
            .fetch_all(&mut *connection)
            .await?,
            credentials: query_as(
                "SELECT cluster_id, server_addresses, ca_cert_data, user_token, \
                 COALESCE(cluster_domain, '') AS cluster_domain FROM cluster_credentials",
            )
            .fetch_all(&mut *connection)
            .await?,
            register_tokens: query_as("SELECT cluster_id, token FROM register_tokens")
                .fetch_all(&mut *connection)
                .await?,
            permissions: query_as(
                "SELECT CAST(user_id AS SIGNED) AS user_id, cluster_id, name \
                 FROM user_cluster_permissions WHERE is_active <> 0",
            )
            .fetch_all(&mut *connection)
            .await?,
        })
    }
}
