//! The roles that users have in Kubernetes clusters, and the lease of the gateway that writes them into the clusters.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use admittance_admission::{is_dns_label, keywords};
use sqlx::{query, query_as};

use super::{
    Access, Accounts, AccountsError, Directory, RegisteredCluster, UserName,
    database::{DatabaseTransaction, now, parse_column, revision_in, seconds},
};

/// A role that can be granted. bcs-api has the same roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantedRole {
    ClusterManage,
    ClusterReadonly,
    ServicesView,
    ServicesManage,
    WorkloadsView,
    WorkloadsManage,
}

keywords!(
    GrantedRole,
    "role":
    ClusterManage = "cluster-manage",
    ClusterReadonly = "cluster-readonly",
    ServicesView = "services-view",
    ServicesManage = "services-manage",
    WorkloadsView = "workloads-view",
    WorkloadsManage = "workloads-manage"
);

/// The origin of a grant. Grants that differ only in their origin are added and deleted independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantSource {
    Configuration,
    CommonPolicy,
    PatternPolicy,
}

keywords!(
    GrantSource,
    "source of a role":
    Configuration = "configuration",
    CommonPolicy = "common",
    PatternPolicy = "pattern_policy"
);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub enum GrantedClusters {
    #[display("*")]
    Every,
    /// One cluster, by the ID that it has at the gateway or in the platform.
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub enum GrantScope {
    #[display("")]
    Cluster,
    /// The grant holds for every namespace. The user gets the same rights as from a grant with the scope `Cluster`, but
    /// the database stores these two scopes as different grants.
    #[display("*")]
    EveryNamespace,
    Namespace(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRoleGrant {
    #[error("{0:?} is not a valid ID of a cluster: write letters, digits, `-` and `_`, or `*` for all clusters")]
    Cluster(String),
    #[error("{0:?} is not a valid name of a namespace")]
    Namespace(String),
}

/// A role that was granted to a user in some clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleGrant {
    pub user: UserName,
    pub role: GrantedRole,
    pub clusters: GrantedClusters,
    pub scope: GrantScope,
    pub source: GrantSource,
}

#[derive(Clone, Debug)]
pub(crate) enum GrantEdit {
    Add(RoleGrant),
    Remove(RoleGrant),
    ReplaceConfigured(BTreeSet<RoleGrant>),
    /// Replaces all grants that come from policies of the authorization system.
    ReplacePolicies(BTreeSet<RoleGrant>),
}

impl FromStr for GrantedClusters {
    type Err = InvalidRoleGrant;

    fn from_str(text: &str) -> Result<Self, InvalidRoleGrant> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        match text {
            "*" => Ok(Self::Every),
            text if (1..=160).contains(&text.len()) && text.bytes().all(is_valid) => Ok(Self::Named(text.to_owned())),
            text => Err(InvalidRoleGrant::Cluster(text.to_owned())),
        }
    }
}

impl FromStr for GrantScope {
    type Err = InvalidRoleGrant;

    fn from_str(text: &str) -> Result<Self, InvalidRoleGrant> {
        match text {
            "" => Ok(Self::Cluster),
            "*" => Ok(Self::EveryNamespace),
            name if is_dns_label(name) => Ok(Self::Namespace(name.to_owned())),
            name => Err(InvalidRoleGrant::Namespace(name.to_owned())),
        }
    }
}

impl fmt::Display for RoleGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} in {}", self.role, self.user, self.clusters)?;
        match &self.scope {
            GrantScope::Namespace(name) => write!(f, "/{name}"),
            GrantScope::Cluster | GrantScope::EveryNamespace => Ok(()),
        }
    }
}

/// A role that a user has in one cluster, or in one of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrantedBinding {
    pub(crate) user: UserName,
    pub(crate) role: GrantedRole,
    /// The namespace in which the user has the role; `None` for the whole cluster.
    pub(crate) namespace: Option<String>,
}

impl Directory {
    /// Returns the ID of the Kubernetes cluster for which a grant holds. The grant names the cluster by its ID at the
    /// gateway, or by its ID in the platform.
    pub(crate) fn cluster_of_grant(&self, name: &str) -> Option<&str> {
        let cluster = self.cluster(name).or_else(|| self.first_with_platform_id(name))?;
        cluster.is_kubernetes().then_some(&*cluster.id)
    }

    pub(crate) fn bindings_in(&self, cluster: &RegisteredCluster) -> Option<&BTreeSet<GrantedBinding>> {
        self.bindings.get(&cluster.id)
    }

    pub(crate) fn has_user(&self, name: &UserName) -> bool {
        self.users().any(|user| user.name == *name)
    }

    /// Stores the grants. A user without any access to the cluster of a grant gets [`Access::Cluster`] to the cluster.
    pub(super) fn add_grants(&mut self, grants: BTreeSet<RoleGrant>) {
        let user_ids: HashMap<_, _> = self.users().map(|user| (user.name.clone(), user.id)).collect();
        let mut ids_by_name: HashMap<&str, Option<String>> = HashMap::new();
        let mut bindings: HashMap<String, BTreeSet<GrantedBinding>> = HashMap::new();
        for grant in grants.iter().filter(|grant| user_ids.contains_key(&grant.user)) {
            let cluster_ids: Vec<String> = match &grant.clusters {
                GrantedClusters::Every => {
                    let all = self.clusters().filter(|cluster| cluster.is_kubernetes());
                    all.map(|cluster| cluster.id.clone()).collect()
                }
                GrantedClusters::Named(name) => {
                    let id = ids_by_name
                        .entry(name)
                        .or_insert_with(|| self.cluster_of_grant(name).map(str::to_owned));
                    id.iter().cloned().collect()
                }
            };
            for cluster_id in cluster_ids {
                bindings.entry(cluster_id).or_default().insert(GrantedBinding {
                    user: grant.user.clone(),
                    role: grant.role,
                    namespace: match &grant.scope {
                        GrantScope::Cluster | GrantScope::EveryNamespace => None,
                        GrantScope::Namespace(name) => Some(name.clone()),
                    },
                });
            }
        }
        for (id, bindings) in &bindings {
            let Some(cluster) = self.clusters.get_mut(id) else {
                continue;
            };
            let cluster = Arc::make_mut(cluster);
            for user in bindings.iter().filter_map(|binding| user_ids.get(&binding.user)) {
                if cluster.creator != *user {
                    cluster.grants.entry(*user).or_insert(Access::Cluster);
                }
            }
        }
        (self.grants, self.bindings) = (grants, bindings);
    }
}

impl Accounts {
    /// Stores a change of role grants. Returns the revision of the database that contains the change.
    pub(crate) async fn edit_role_grants(&self, actor: &str, edit: GrantEdit) -> Result<i64, AccountsError> {
        let mut change = self.0.database.begin_change().await?;
        let (action, subject) = match edit {
            GrantEdit::Add(grant) => {
                delete_grant(&mut change, &grant).await?;
                insert_grant(&mut change, &grant).await?;
                ("grant role", grant.to_string())
            }
            GrantEdit::Remove(grant) => {
                delete_grant(&mut change, &grant).await?;
                ("revoke role", grant.to_string())
            }
            GrantEdit::ReplaceConfigured(grants) => {
                let deletion = "DELETE FROM admittance_role_grants WHERE source = 'configuration'";
                let count_text = replace_grants(&mut change, deletion, &grants).await?;
                ("replace roles of the configuration", count_text)
            }
            GrantEdit::ReplacePolicies(grants) => {
                let deletion = "DELETE FROM admittance_role_grants WHERE source <> 'configuration'";
                let count = replace_grants(&mut change, deletion, &grants).await?;
                ("replace roles of the subscription", count)
            }
        };
        let revision = revision_in(&mut change).await?;
        self.commit(change, actor, action, &subject).await?;
        Ok(revision)
    }

    /// Takes or renews the lease of the gateway that writes roles. Returns `false` if another gateway holds the lease.
    pub(crate) async fn lease_roles(&self, holder: &str, lifetime: Duration) -> Result<bool, AccountsError> {
        let now_seconds = seconds(now());
        let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or_default();
        let update = query(
            "UPDATE admittance_leases SET holder = ?, expires_at = ? \
             WHERE name = 'roles' AND (holder = ? OR expires_at <= ?)",
        )
        .bind(holder.to_owned())
        .bind(now_seconds.saturating_add(lifetime))
        .bind(holder.to_owned())
        .bind(now_seconds)
        .execute(&self.0.database.pool)
        .await?;
        Ok(update.rows_affected() > 0)
    }
}

/// Runs the SQL statement `deletion`, which deletes grants, and then stores `grants`. Returns the number of stored
/// grants as text for the audit log.
async fn replace_grants(
    change: &mut DatabaseTransaction,
    deletion: &'static str,
    grants: &BTreeSet<RoleGrant>,
) -> Result<String, AccountsError> {
    query(deletion).execute(&mut **change).await?;
    for grant in grants {
        insert_grant(change, grant).await?;
    }
    Ok(format!("{} roles", grants.len()))
}

async fn insert_grant(change: &mut DatabaseTransaction, grant: &RoleGrant) -> Result<(), AccountsError> {
    execute_for_grant(
        change,
        "INSERT INTO admittance_role_grants (user_name, role, cluster, namespace, source) VALUES (?, ?, ?, ?, ?)",
        grant,
    )
    .await
}

async fn delete_grant(change: &mut DatabaseTransaction, grant: &RoleGrant) -> Result<(), AccountsError> {
    execute_for_grant(
        change,
        "DELETE FROM admittance_role_grants \
         WHERE user_name = ? AND role = ? AND cluster = ? AND namespace = ? AND source = ?",
        grant,
    )
    .await
}

async fn execute_for_grant(
    change: &mut DatabaseTransaction,
    sql: &'static str,
    grant: &RoleGrant,
) -> Result<(), AccountsError> {
    query(sql)
        .bind(grant.user.as_str().to_owned())
        .bind(grant.role.as_str())
        .bind(grant.clusters.to_string())
        .bind(grant.scope.to_string())
        .bind(grant.source.as_str())
        .execute(&mut **change)
        .await?;
    Ok(())
}

pub(super) async fn load_role_grants(
    transaction: &mut DatabaseTransaction,
) -> Result<BTreeSet<RoleGrant>, AccountsError> {
    let tuples: Vec<(String, String, String, String, String)> =
        query_as("SELECT user_name, role, cluster, namespace, source FROM admittance_role_grants")
            .fetch_all(&mut **transaction)
            .await?;
    let rows = tuples.into_iter().map(|(user, role, cluster, namespace, source)| {
        Ok(RoleGrant {
            user: parse_column(&user)?,
            role: parse_column(&role)?,
            clusters: parse_column(&cluster)?,
            scope: parse_column(&namespace)?,
            source: parse_column(&source)?,
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{AccountsConfig, ClusterName, ClusterType, DatabaseConfig};

    async fn new_accounts(directory: &tempfile::TempDir) -> Accounts {
        let config = AccountsConfig {
            database: DatabaseConfig::Sqlite(directory.path().join("accounts.db")),
            key_file: directory.path().join("key"),
            creates_key: true,
            register_token_lifetime: AccountsConfig::DEFAULT_REGISTER_TOKEN_LIFETIME,
            clusters_per_user: AccountsConfig::DEFAULT_CLUSTERS_PER_USER,
            local_servers: Vec::new(),
        };
        let accounts = Accounts::new(config).await.unwrap();
        accounts.0.database.migrate().await.unwrap();
        accounts.load().await.unwrap();
        accounts
    }

    #[tokio::test]
    async fn only_one_gateway_at_a_time_holds_the_lease() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = new_accounts(&directory).await;
        let long_lease = Duration::from_secs(600);
        assert!(accounts.lease_roles("a", long_lease).await.unwrap());
        assert!(!accounts.lease_roles("b", long_lease).await.unwrap());
        // Gateway `a` gives up its lease: it renews the lease with a lifetime of zero, so the lease ends at once.
        assert!(accounts.lease_roles("a", Duration::ZERO).await.unwrap());
        assert!(accounts.lease_roles("b", long_lease).await.unwrap());
        assert!(!accounts.lease_roles("a", long_lease).await.unwrap());
    }

    #[tokio::test]
    async fn grants_become_role_bindings_in_the_named_clusters() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = new_accounts(&directory).await;
        let alice = UserName::plain("alice").unwrap();
        let user = accounts.create_user("test", &alice, false, &[]).await.unwrap();
        let new_cluster = async |kind, id: &str| {
            let name = ClusterName::new(id, Some(("project", kind))).unwrap();
            accounts.create_cluster("test", None, &name).await.unwrap().id.clone()
        };
        let first_id = new_cluster(ClusterType::Kubernetes, "BCS-K8S-1").await;
        let second_id = new_cluster(ClusterType::Kubernetes, "BCS-K8S-10").await;
        let mesos_id = new_cluster(ClusterType::Mesos, "BCS-MESOS-1").await;
        let grant = |user: &UserName, clusters: &str, scope: &str, source| RoleGrant {
            user: user.clone(),
            role: GrantedRole::ServicesView,
            clusters: clusters.parse().unwrap(),
            scope: scope.parse().unwrap(),
            source,
        };
        let binding_count_and_access = |id: &str| {
            let directory = accounts.directory().unwrap();
            let cluster = directory.cluster(id).unwrap().clone();
            let binding_count = directory.bindings_in(&cluster).map_or(0, BTreeSet::len);
            (binding_count, directory.access(&user, &cluster))
        };
        let unknown_user = UserName::plain("nobody").unwrap();
        let configured_grants = [
            // The ID in a grant is compared as a whole, but its case does not matter. So `bcs-k8s-1` means the cluster
            // `BCS-K8S-1`, and not `BCS-K8S-10`.
            grant(&alice, "bcs-k8s-1", "", GrantSource::Configuration),
            grant(&alice, "BCS-K8S-1", "team", GrantSource::Configuration),
            grant(&unknown_user, "*", "", GrantSource::Configuration),
        ];
        let edit = GrantEdit::ReplaceConfigured(configured_grants.into());
        accounts.edit_role_grants("test", edit).await.unwrap();
        assert_eq!(binding_count_and_access(&first_id), (2, Some(Access::Cluster)));
        assert_eq!(binding_count_and_access(&second_id), (0, None));

        let policy = grant(&alice, "*", "*", GrantSource::CommonPolicy);
        for _ in 0..2 {
            let edit = GrantEdit::Add(policy.clone());
            accounts.edit_role_grants("test", edit).await.unwrap();
        }
        assert_eq!(binding_count_and_access(&second_id), (1, Some(Access::Cluster)));
        assert_eq!(binding_count_and_access(&mesos_id), (0, None));
        accounts
            .edit_role_grants("test", GrantEdit::Remove(policy))
            .await
            .unwrap();
        assert_eq!(binding_count_and_access(&first_id).0, 2);
        assert_eq!(binding_count_and_access(&second_id), (0, None));
        let edit = GrantEdit::ReplaceConfigured(BTreeSet::new());
        accounts.edit_role_grants("test", edit).await.unwrap();
        assert_eq!(binding_count_and_access(&first_id), (0, None));
    }
}
