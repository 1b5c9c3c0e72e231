//! Users and clusters of a gateway, as the admin API shows them.

use std::sync::Arc;

use admittance::Moment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::{Directory, RegisteredCluster, User};

/// The reply to `GET /v1/users`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserList {
    /// The users in the order in which they were created.
    pub users: Vec<UserEntry>,
}

/// A user of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserEntry {
    /// The number of the user, which `POST /rest/users/{id}/tokens` needs.
    pub id: i64,
    /// The name of the user, such as `plain:alice`.
    pub name: String,
    /// Whether the user may do everything with every cluster, and manage users.
    pub super_user: bool,
    /// The groups of the user in clusters.
    pub groups: Vec<String>,
    /// The time at which the user was created.
    pub created_at: Moment,
    /// The user's tokens; their values are shown only when they are created.
    pub tokens: Vec<TokenEntry>,
}

/// A token of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenEntry {
    /// The number of the token.
    pub id: i64,
    /// The time at which the token was created.
    pub created_at: Moment,
    /// The time at which the token expires.
    pub expires_at: Moment,
}

/// The body of `POST /v1/users`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewUser {
    /// The name of the user, such as `alice`, which stands for `plain:alice`.
    pub name: String,
    /// Whether the user may do everything with every cluster, and manage users.
    #[serde(default)]
    pub super_user: bool,
    /// The groups of the user in clusters. None may begin with `system:`.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The body of `POST /v1/users/{name}/tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewToken {
    /// The time until the token expires, in seconds; at most ten years.
    pub expires_in: u64,
}

/// A new token, which is not shown again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuedToken {
    /// The number of a user's token; absent for a register token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// The value of the token.
    pub token: String,
    /// The time at which the token expires. A register token that an agent has used never expires.
    pub expires_at: Moment,
}

/// The reply to `GET /v1/clusters`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterList {
    /// The clusters in the order of their IDs.
    pub clusters: Vec<ClusterEntry>,
}

/// A cluster that users reach through a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterEntry {
    /// The ID of the cluster, such as `plain-dev`.
    pub id: String,
    /// The name of the cluster in paths `/tunnels/clusters/{identifier}/`.
    pub identifier: String,
    /// The manager of the cluster: `plain` for the gateway's users, or `bcs` for the platform.
    pub provider: String,
    /// The user who created the cluster; absent if it was an administrator, or the user was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<String>,
    /// The time at which the cluster was created.
    pub created_at: Moment,
    /// The project and ID under which the platform manages the cluster; absent for `plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bcs: Option<BcsCluster>,
    /// The API servers that the cluster's agent reported; empty before the first report.
    pub servers: Vec<String>,
    /// The time at which the cluster's agent last reported a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Moment>,
    /// The register token of the cluster; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register_token: Option<RegisterTokenEntry>,
    /// The permissions that were granted to users. Super users and the creator have theirs without a grant.
    pub permissions: Vec<PermissionEntry>,
}

/// The project and ID under which the platform manages a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BcsCluster {
    /// The project in the platform to which the cluster belongs.
    pub project_id: String,
    /// The ID of the cluster in the platform, such as `BCS-K8S-15091`.
    pub cluster_id: String,
    /// The kind of the cluster: `k8s`, `mesos` or `tke`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The register token of a cluster, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisterTokenEntry {
    /// The time at which the token was created.
    pub created_at: Moment,
    /// The time by which an agent has to use the token for the first time.
    pub expires_at: Moment,
    /// The time at which an agent first used the token; after that, the token does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Moment>,
}

/// The permission of a user for a cluster, and the body of `POST /v1/clusters/{id}/permissions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionEntry {
    /// The name of the user, such as `plain:alice`.
    pub user: String,
    /// `Read`, `Write`, `Hooks` or `Cluster`. With `Cluster`, the role bindings in the Kubernetes cluster decide.
    pub permission: String,
}

/// The body of `POST /v1/clusters`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewCluster {
    /// The ID of the cluster: `dev`, which becomes `plain-dev`; or, with a project, `BCS-K8S-15091`.
    pub id: String,
    /// The user who may manage the cluster, as if that user had created it.
    #[serde(default)]
    pub creator: Option<String>,
    /// The project to which the cluster belongs, if the platform manages the cluster.
    #[serde(default)]
    pub project_id: Option<String>,
    /// `k8s`, `mesos` or `tke`; used only with a project. Default: `k8s`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
}

/// The reply to a request that deletes an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// The kind and name of the object that was deleted.
    pub removed: String,
}

impl UserEntry {
    pub(crate) fn new(user: &User, directory: &Directory) -> Self {
        let tokens = directory.tokens_of(user.id);
        Self {
            id: user.id.0,
            name: user.name.to_string(),
            super_user: user.is_super_user,
            groups: user.groups.clone(),
            created_at: user.created_at,
            tokens: tokens
                .map(|(id, created_at, expires_at)| TokenEntry {
                    id: id.0,
                    created_at,
                    expires_at,
                })
                .collect(),
        }
    }
}

impl ClusterEntry {
    pub(crate) fn new(cluster: &RegisteredCluster, directory: &Directory) -> Self {
        let name = |id| directory.user(id).map(|user: &Arc<User>| user.name.to_string());
        let credentials = cluster.credentials.as_ref();
        let servers = credentials.map(|cluster_credentials| cluster_credentials.servers().collect());
        let grants = cluster.grants.iter();
        Self {
            id: cluster.id.clone(),
            identifier: cluster.identifier.clone(),
            provider: cluster.provider.to_string(),
            creator: name(cluster.creator),
            created_at: cluster.created_at,
            bcs: cluster.bcs.as_ref().map(|info| BcsCluster {
                project_id: info.project_id.clone(),
                cluster_id: info.cluster_id.clone(),
                kind: info.kind.to_string(),
            }),
            servers: servers.unwrap_or_default(),
            reported_at: credentials.map(|cluster_credentials| cluster_credentials.reported_at),
            register_token: cluster.register_token.as_ref().map(|token| RegisterTokenEntry {
                created_at: token.created_at,
                expires_at: token.expires_at,
                used_at: token.used_at,
            }),
            permissions: grants
                .filter_map(|(user, access)| {
                    Some(PermissionEntry {
                        user: name(*user)?,
                        permission: access.to_string(),
                    })
                })
                .collect(),
        }
    }
}
