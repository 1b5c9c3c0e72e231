//! The content of the database of users and clusters at one moment, which authorizes requests.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use admittance::Moment;
use admittance_bcs::routes::Permission;
use admittance_net::bearer::TokenDigest;

use super::{
    role_grants::{GrantedBinding, RoleGrant},
    types::{Access, BcsInfo, ClusterType, RegisteredCluster, TokenId, User, UserId},
};

/// All users, tokens and clusters, read in one transaction. A directory never changes, so lookups in it are consistent.
#[derive(Debug, Default)]
pub struct Directory {
    /// The revision of the database, which grows by one with every change.
    pub(super) revision: i64,
    pub(super) users: BTreeMap<UserId, Arc<User>>,
    pub(super) tokens: HashMap<[u8; 32], UserToken>,
    pub(super) clusters: BTreeMap<String, Arc<RegisteredCluster>>,
    /// The gateway's IDs of clusters, by the identifiers that the clusters have in the paths of tunnels.
    pub(super) ids_by_identifier: HashMap<String, String>,
    /// The grants of roles, as they are stored in the database. They can name users and clusters that do not exist.
    pub(super) grants: BTreeSet<RoleGrant>,
    /// For each cluster, by its ID, the roles that grants give users. Grants to users that do not exist are left out.
    pub(super) bindings: HashMap<String, BTreeSet<GrantedBinding>>,
}

#[derive(Clone, Debug)]
pub(super) struct UserToken {
    pub(super) id: TokenId,
    pub(super) user: UserId,
    pub(super) created_at: Moment,
    pub(super) expires_at: Moment,
}

/// An authenticated user, with the token that the user sent. The token may have been revoked since the authentication.
#[derive(Clone, Debug)]
pub struct UserSession {
    pub user: Arc<User>,
    pub token: TokenId,
    pub digest: TokenDigest,
    pub expires_at: Moment,
}

/// The target of a user's request: a cluster itself, or the drivers of a Mesos cluster.
#[derive(Clone, Debug)]
pub enum AccessTarget {
    Cluster(String),
    /// The drivers of the Mesos cluster that has this ID in the platform.
    Drivers(String),
}

/// The reason why a token is not accepted. `Display` is the message for the client, in the words of bcs-api.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenDenied {
    /// The token of the user is unknown, or was revoked.
    #[error("anonymous requests is forbidden")]
    Unknown,
    #[error("this token has expired for user: {0}")]
    Expired(String),
    /// The user does not have the needed permission for the cluster, or the cluster was deleted.
    #[error("{user} does not have the permission {required_permission} for the cluster {cluster}")]
    Forbidden {
        user: String,
        cluster: String,
        required_permission: Permission,
    },
    /// The cluster to which an agent belongs is unknown, or has no register token.
    #[error("no register token found for the cluster: create one")]
    NoRegisterToken,
    /// The register token of an agent is unknown, was replaced or revoked, or was not used before its deadline.
    #[error("the register token is unknown, expired or revoked: create or rotate it")]
    RegisterToken,
}

impl Directory {
    /// Returns the session of the user to whom this token belongs.
    pub fn authenticate(&self, token: &[u8]) -> Result<UserSession, TokenDenied> {
        self.session(TokenDigest::of_token(token))
    }

    /// Returns the current session of a token that was [authenticated](Self::authenticate) earlier.
    pub fn session(&self, digest: TokenDigest) -> Result<UserSession, TokenDenied> {
        // This lookup need not take the same time for all digests. Clients cannot choose the digest of a token, so the
        // time tells them nothing about other tokens.
        let token = self.tokens.get(digest.as_bytes()).ok_or(TokenDenied::Unknown)?;
        let user = self.users.get(&token.user).ok_or(TokenDenied::Unknown)?;
        if token.expires_at <= Moment::now() {
            return Err(TokenDenied::Expired(user.name.as_str().to_owned()));
        }
        Ok(UserSession {
            user: user.clone(),
            token: token.id,
            digest,
            expires_at: token.expires_at,
        })
    }

    /// Returns the cluster with this ID. As in the database of bcs-api, the case of letters in the ID does not matter.
    pub fn cluster(&self, id: &str) -> Option<&Arc<RegisteredCluster>> {
        let in_any_case = || self.clusters().find(|cluster| cluster.id.eq_ignore_ascii_case(id));
        self.clusters.get(id).or_else(in_any_case)
    }

    /// Returns the cluster with this ID of the platform. If several projects registered the ID, returns the cluster of
    /// the project that did so first, because anybody may register the ID of an existing cluster again.
    pub fn first_with_platform_id(&self, platform_id: &str) -> Option<&Arc<RegisteredCluster>> {
        let has_id = |info: &BcsInfo| info.cluster_id.eq_ignore_ascii_case(platform_id);
        self.clusters()
            .filter(|cluster| cluster.bcs.as_ref().is_some_and(has_id))
            .min_by_key(|cluster| cluster.created_at)
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    pub(crate) fn role_grants(&self) -> &BTreeSet<RoleGrant> {
        &self.grants
    }

    pub fn cluster_by_identifier(&self, identifier: &str) -> Option<&Arc<RegisteredCluster>> {
        self.clusters.get(self.ids_by_identifier.get(identifier)?)
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Arc<RegisteredCluster>> {
        self.clusters.values()
    }

    pub fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    pub fn user(&self, id: UserId) -> Option<&Arc<User>> {
        self.users.get(&id)
    }

    /// Returns the tokens of a user, oldest first. Each has its number, its creation time and its expiry.
    pub fn tokens_of(&self, user: UserId) -> impl Iterator<Item = (TokenId, Moment, Moment)> + use<> {
        let user_tokens = self.tokens.values().filter(|token| token.user == user);
        let mut tokens: Vec<_> = user_tokens
            .map(|token| (token.id, token.created_at, token.expires_at))
            .collect();
        tokens.sort();
        tokens.into_iter()
    }

    /// Returns a user's access to a cluster. Super users have every permission, and creators may edit their clusters.
    pub fn access(&self, user: &User, cluster: &RegisteredCluster) -> Option<Access> {
        let creator_permission = match (user.is_super_user, cluster.creator == user.id) {
            (true, _) => return Some(Access::Permission(Permission::Hooks)),
            (false, is_creator) => is_creator.then_some(Permission::Write),
        };
        match cluster.grants.get(&user.id) {
            Some(Access::Cluster) => Some(Access::Cluster),
            Some(Access::Permission(granted)) => creator_permission.max(Some(*granted)).map(Access::Permission),
            None => creator_permission.map(Access::Permission),
        }
    }

    /// Returns the permission of a user to manage a cluster. Creators may always edit their clusters.
    pub fn permission(&self, user: &User, cluster: &RegisteredCluster) -> Option<Permission> {
        let creator_permission = (cluster.creator == user.id).then_some(Permission::Write);
        creator_permission.max(self.access(user, cluster).map(Access::permission_in_management))
    }

    /// Checks that a user has at least this permission to manage a cluster.
    pub fn check_permission(
        &self,
        user: &User,
        cluster: &RegisteredCluster,
        required_permission: Permission,
    ) -> Result<(), TokenDenied> {
        ensure_permission(self.permission(user, cluster), user, &cluster.id, required_permission)
    }

    /// Returns the permission of a user for the drivers of a Mesos cluster. Users who are not super users need a grant,
    /// even if they have created the cluster: any user may register a cluster with any ID of the platform.
    fn permission_for_drivers(&self, user: &User, platform_id: &str) -> Option<Permission> {
        if user.is_super_user {
            return Some(Permission::Hooks);
        }
        let requested_clusters = self.clusters.values().filter(|cluster| {
            let is_requested = |bcs: &BcsInfo| bcs.kind == ClusterType::Mesos && bcs.cluster_id == platform_id;
            cluster.bcs.as_ref().is_some_and(is_requested)
        });
        requested_clusters
            .filter_map(|cluster| match cluster.grants.get(&user.id)? {
                Access::Permission(permission) => Some(*permission),
                Access::Cluster => None,
            })
            .max()
    }

    /// Checks that a user has at least this permission for the target.
    pub fn check_access(
        &self,
        user: &User,
        target: &AccessTarget,
        required_permission: Permission,
    ) -> Result<(), TokenDenied> {
        let (permission, name) = match target {
            AccessTarget::Cluster(id) => {
                let cluster = self.cluster(id);
                let access = cluster.and_then(|cluster| self.access(user, cluster));
                (access.map(Access::permission_in_cluster), id)
            }
            AccessTarget::Drivers(id) => (self.permission_for_drivers(user, id), id),
        };
        ensure_permission(permission, user, name, required_permission)
    }

    /// Returns the cluster with this ID if `register_token` is its current register token and has not expired.
    pub fn authenticate_agent(
        &self,
        cluster_id: &str,
        register_token: &[u8],
    ) -> Result<&Arc<RegisteredCluster>, TokenDenied> {
        let digest = TokenDigest::of_token(register_token);
        let cluster = self.cluster(cluster_id).ok_or(TokenDenied::NoRegisterToken)?;
        let expected_token = cluster.register_token.as_ref().ok_or(TokenDenied::NoRegisterToken)?;
        let is_in_time = expected_token.used_at.is_some() || expected_token.expires_at > Moment::now();
        if !bool::from(expected_token.digest.equals(&digest)) || !is_in_time {
            return Err(TokenDenied::RegisterToken);
        }
        Ok(cluster)
    }
}

fn ensure_permission(
    permission: Option<Permission>,
    user: &User,
    cluster: &str,
    required_permission: Permission,
) -> Result<(), TokenDenied> {
    if permission >= Some(required_permission) {
        return Ok(());
    }
    Err(TokenDenied::Forbidden {
        user: user.name.as_str().to_owned(),
        cluster: cluster.to_owned(),
        required_permission,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{Provider, UserName};

    #[test]
    fn only_users_with_a_grant_reach_drivers() {
        let user = |id, is_super_user| User {
            id: UserId(id),
            name: UserName::plain(&format!("u{id}")).unwrap(),
            is_super_user,
            groups: Vec::new(),
            created_at: Moment::now(),
        };
        let cluster = |id: &str, kind, creator, grants: &[(i64, Permission)]| RegisteredCluster {
            id: id.to_owned(),
            identifier: id.to_owned(),
            provider: Provider::Bcs,
            creator: UserId(creator),
            created_at: Moment::now(),
            bcs: Some(BcsInfo {
                project_id: id.to_owned(),
                cluster_id: "BCS-MESOS-1".to_owned(),
                kind,
            }),
            credentials: None,
            register_token: None,
            grants: grants
                .iter()
                .map(|(user, granted)| (UserId(*user), Access::Permission(*granted)))
                .collect(),
        };
        let directory = Directory {
            clusters: [
                cluster("a", ClusterType::Mesos, 1, &[(2, Permission::Read)]),
                cluster("b", ClusterType::Mesos, 3, &[(2, Permission::Write)]),
                cluster("c", ClusterType::Kubernetes, 4, &[(4, Permission::Hooks)]),
            ]
            .map(|cluster| (cluster.id.clone(), Arc::new(cluster)))
            .into(),
            ..Directory::default()
        };
        for (id, is_super_user, expected) in [
            (1, false, None),
            (2, false, Some(Permission::Write)),
            (3, false, None),
            (4, false, None),
            (5, true, Some(Permission::Hooks)),
        ] {
            let user = user(id, is_super_user);
            assert_eq!(directory.permission_for_drivers(&user, "BCS-MESOS-1"), expected, "{id}");
            let drivers = AccessTarget::Drivers("BCS-MESOS-1".to_owned());
            let is_allowed = directory.check_access(&user, &drivers, Permission::Read).is_ok();
            assert_eq!(is_allowed, expected.is_some(), "{id}");
        }
        assert_eq!(directory.permission_for_drivers(&user(2, false), "BCS-MESOS-2"), None);
    }

    /// Databases of earlier versions and of bcs-api can contain one cluster ID for several projects.
    #[test]
    fn a_platform_id_belongs_to_the_first_cluster_that_has_it() {
        let cluster = |id: &str, created_at| RegisteredCluster {
            id: id.to_owned(),
            identifier: id.to_owned(),
            provider: Provider::Bcs,
            creator: UserId(1),
            created_at,
            bcs: Some(BcsInfo {
                project_id: id.to_owned(),
                cluster_id: "BCS-K8S-1".to_owned(),
                kind: ClusterType::Kubernetes,
            }),
            credentials: None,
            register_token: None,
            grants: [].into(),
        };
        let first = Moment::now();
        let later = Moment(first.0 + std::time::Duration::from_secs(1));
        let directory = Directory {
            clusters: [cluster("a", later), cluster("b", first)]
                .map(|cluster| (cluster.id.clone(), Arc::new(cluster)))
                .into(),
            ..Directory::default()
        };
        let owner = directory.first_with_platform_id("bcs-k8s-1").unwrap();
        assert_eq!(owner.id, "b");
        assert!(directory.first_with_platform_id("BCS-K8S-2").is_none());
    }
}
