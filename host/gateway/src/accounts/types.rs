//! The types of users, clusters, tokens and credentials.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use admittance::Moment;
use admittance_admission::keywords;
use admittance_bcs::routes::Permission;
use admittance_net::bearer::TokenDigest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of a user in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct UserId(pub i64);

impl UserId {
    /// A number that belongs to no user, because the numbers of users begin with 1.
    pub const UNASSIGNED: Self = Self(0);
}

/// The number of a user's token in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TokenId(pub i64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub name: UserName,
    pub is_super_user: bool,
    /// The groups that the user has in every cluster. None of them begins with `system:`.
    pub groups: Vec<String>,
    pub created_at: Moment,
}

/// The name of a user: `{kind}:{name}`, such as `plain:alice`. In clusters, the name has `.` instead of `:`, such as
/// `plain.alice`. A kind contains no dot, so two users never have the same name in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub struct UserName(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a name of a user: write KIND:NAME, such as plain:alice; the kind has at most 32 characters of \
     a-z, 0-9 and `-`, the name at most 190 of A-Z, a-z, 0-9, `.`, `_`, `@` and `-`"
)]
pub struct InvalidUserName(pub String);

impl UserName {
    const PLAIN: &str = "plain";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the name of a user. A name without a kind gets the kind `plain`.
    pub fn plain(name: &str) -> Result<Self, InvalidUserName> {
        if name.contains(':') {
            return name.parse();
        }
        format!("{}:{name}", Self::PLAIN).parse()
    }

    /// Returns the name that the user has in clusters: with `.` instead of `:`, as in bcs-api.
    pub fn impersonated_name(&self) -> String {
        self.0.replacen(':', ".", 1)
    }
}

impl FromStr for UserName {
    type Err = InvalidUserName;

    fn from_str(text: &str) -> Result<Self, InvalidUserName> {
        let is_valid = text.split_once(':').is_some_and(|(kind, name)| {
            let is_kind = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
            (1..=32).contains(&kind.len())
                && kind.bytes().all(is_kind)
                && (1..=190).contains(&name.len())
                && name.bytes().all(is_name)
        });
        if !is_valid {
            return Err(InvalidUserName(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The user may send requests that need at most this permission. The gateway decides this for each request, and
    /// adds the groups of the permission to the user's own groups.
    Permission(Permission),
    /// The role bindings of the Kubernetes cluster decide: the gateway forwards every request, and adds no group.
    Cluster,
}

impl Access {
    const CLUSTER: &str = "Cluster";

    pub(crate) fn permission_in_management(self) -> Permission {
        match self {
            Self::Permission(permission) => permission,
            Self::Cluster => Permission::Read,
        }
    }

    /// Returns the highest permission that the user has for requests to the cluster. With `Access::Cluster`, the
    /// gateway lets every request pass, because the role bindings in the cluster decide.
    pub(crate) fn permission_in_cluster(self) -> Permission {
        match self {
            Self::Permission(permission) => permission,
            Self::Cluster => Permission::Hooks,
        }
    }
}

impl FromStr for Access {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::CLUSTER {
            return Ok(Self::Cluster);
        }
        let permission = text.parse().map(Self::Permission);
        permission.map_err(|error| format!("{error}; or {}, where its role bindings decide", Self::CLUSTER))
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Permission(permission) => permission.as_str(),
            Self::Cluster => Self::CLUSTER,
        })
    }
}

/// The origin of a cluster: the gateway's users or the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Plain,
    Bcs,
}

keywords!(Provider, "provider": Plain = "plain", Bcs = "bcs");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterType {
    Kubernetes,
    Mesos,
    Tke,
}

keywords!(ClusterType, "cluster type": Kubernetes = "k8s", Mesos = "mesos", Tke = "tke");

/// The project and ID that a cluster has in the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BcsInfo {
    pub project_id: String,
    /// The ID of the cluster in the platform, such as `BCS-K8S-15091`.
    pub cluster_id: String,
    pub kind: ClusterType,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredCluster {
    /// The cluster's unique ID in lower case, such as `plain-dev` and `bcs-bcs-k8s-15091-k3f9x2ab`.
    pub id: String,
    /// The cluster's unique name in paths `/tunnels/clusters/{identifier}/`: the ID, `-`, and 16 random characters.
    pub identifier: String,
    pub provider: Provider,
    pub creator: UserId,
    pub created_at: Moment,
    pub bcs: Option<BcsInfo>,
    /// The credentials that the cluster's agent reported last; `None` before its first report.
    pub credentials: Option<Arc<ClusterCredentials>>,
    pub register_token: Option<RegisterToken>,
    /// The access to the cluster that was granted to users. The creator has access without a grant.
    pub grants: BTreeMap<UserId, Access>,
}

impl RegisteredCluster {
    pub(crate) fn is_kubernetes(&self) -> bool {
        self.bcs.as_ref().is_none_or(|info| info.kind != ClusterType::Mesos)
    }
}

/// The addresses and credentials that a cluster's agent reported. If a later report is equal, the old `Arc` is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterCredentials {
    /// The addresses of the cluster's API servers, each `https://{host}:{port}`. There is at least one.
    pub server_addresses: Vec<http::Uri>,
    /// The CAs that sign the certificates of the cluster's API servers, as PEM.
    pub ca: String,
    /// The token of the agent's service account. It is sent only to the cluster.
    pub user_token: Secret,
    pub cluster_domain: String,
    pub reported_at: Moment,
}

impl ClusterCredentials {
    /// Returns the addresses of the API servers as text, without a slash at the end.
    pub fn servers(&self) -> impl Iterator<Item = String> {
        let servers = self.server_addresses.iter();
        servers.map(|uri| uri.to_string().trim_end_matches('/').to_owned())
    }
}

/// The token with which an agent registers at the gateway.
#[derive(Clone, Debug)]
pub struct RegisterToken {
    pub digest: TokenDigest,
    pub created_at: Moment,
    /// The deadline for the first use of the register token. A used token is valid until it is rotated or revoked.
    pub expires_at: Moment,
    pub used_at: Option<Moment>,
}

impl PartialEq for RegisterToken {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.digest.equals(&other.digest))
            && (self.created_at, self.expires_at, self.used_at) == (other.created_at, other.expires_at, other.used_at)
    }
}

impl Eq for RegisterToken {}

/// A string that is never logged.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("Secret(...)")]
pub struct Secret(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn a_user_name_needs_a_prefix_for_its_kind() {
        for (text, impersonated) in [
            ("plain:alice", Some("plain.alice")),
            ("plain:a.b", Some("plain.a.b")),
            ("pass-1:a@example.com", Some("pass-1.a@example.com")),
            ("plain.a:b", None),
            ("Plain:b", None),
            ("alice", None),
            (":alice", None),
            ("plain:", None),
            ("plain:a:b", None),
            ("system:admin/x", None),
            ("plain:größe", None),
            ("plain:a b", None),
        ] {
            let name = text.parse::<UserName>().ok();
            assert_eq!(name.map(|name| name.impersonated_name()).as_deref(), impersonated, "{text}");
        }
        assert_eq!(UserName::plain("alice").unwrap().as_str(), "plain:alice");
        assert_eq!(UserName::plain("bcs:alice").unwrap().as_str(), "bcs:alice");
        assert!(UserName::plain("a/b").is_err());
    }

    #[test]
    fn debug_output_of_a_secret_does_not_contain_it() {
        assert!(!format!("{:?}", Secret("hidden".to_owned())).contains("hidden"));
    }
}
