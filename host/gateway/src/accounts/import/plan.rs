//! Compares bcs-api's rows with the rows of the gateway's database, before anything is written.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use admittance_net::bearer::TokenDigest;

use super::source::{ImportSource, SourceCluster, SourceToken, SourceUser};
use crate::accounts::{
    AccountsError, BcsInfo, ClusterType, Directory, Provider, RegisteredCluster, User, UserId, UserName,
    database::{moment, now},
    directory::UserToken,
};

/// The key of a row of bcs-api: the name of its table, and its ID. An import records the keys of the rows that it has
/// handled, so that later imports skip these rows.
pub(super) type RowKey = (&'static str, String);

/// The rows that an import inserts, with the IDs that they have at bcs-api.
#[derive(Debug, Default)]
pub(super) struct ImportPlan {
    pub(super) replaced: BTreeMap<UserId, Arc<User>>,
    pub(super) users: BTreeMap<UserId, User>,
    pub(super) tokens: Vec<SourceToken>,
    pub(super) clusters: BTreeMap<String, RegisteredCluster>,
    /// The rows of bcs-api that are done after this import, because it copies them or because the gateway already has
    /// them. Later imports skip these rows.
    pub(super) settled: Vec<RowKey>,
    pub(super) skipped: Vec<String>,
}

struct ImportPlanner<'a> {
    directory: &'a Directory,
    existing_tokens: HashMap<i64, &'a UserToken>,
    settled_before: &'a HashSet<(String, String)>,
    /// The users of the gateway that the import may delete if they conflict with users of bcs-api.
    replace: &'a [UserName],
    plan: ImportPlan,
    conflicts: BTreeSet<String>,
}

impl ImportPlan {
    pub(super) fn new(
        source: &mut ImportSource,
        directory: &Directory,
        settled_before: &HashSet<(String, String)>,
        replace: &[UserName],
    ) -> Result<Self, AccountsError> {
        let mut planning = ImportPlanner {
            directory,
            existing_tokens: directory.tokens.values().map(|token| (token.id.0, token)).collect(),
            settled_before,
            replace,
            plan: Self::default(),
            conflicts: BTreeSet::new(),
        };
        for user in &source.users {
            planning.plan_user(user);
        }
        for token in std::mem::take(&mut source.tokens) {
            planning.plan_token(token);
        }
        for cluster in std::mem::take(&mut source.clusters) {
            planning.plan_cluster(cluster);
        }
        if planning.conflicts.is_empty() {
            return Ok(planning.plan);
        }
        Err(AccountsError::ImportConflicts(planning.conflicts.into_iter().collect()))
    }

    /// Returns the ID of the user with the number `id`, who is already in the gateway or is imported. Returns `None` if
    /// there is no such user after the import.
    pub(super) fn find_user_id(&self, directory: &Directory, id: i64) -> Option<UserId> {
        let id = UserId(id);
        let is_kept = directory.user(id).is_some() && !self.replaced.contains_key(&id);
        (is_kept || self.users.contains_key(&id)).then_some(id)
    }
}

impl ImportPlanner<'_> {
    /// Records that this import handles the row. Returns `false` if an earlier import has handled it.
    fn settle_row(&mut self, table: &'static str, id: String) -> bool {
        if self.settled_before.contains(&(table.to_owned(), id.clone())) {
            return false;
        }
        self.plan.settled.push((table, id));
        true
    }

    fn plan_user(&mut self, user: &SourceUser) {
        // Users of bcs-api have names such as `plain:alice`. Only the users of `bootstrap_users` have names without a
        // kind, such as `admin`, and `UserName::plain` adds the kind `plain` to these names.
        let name = match UserName::plain(&user.name) {
            Ok(name) => name,
            Err(error) => {
                self.plan.skipped.push(format!("user {}: {error}", user.id));
                return;
            }
        };
        let id = UserId(user.id);
        if !self.settle_row("users", user.id.to_string()) {
            return;
        }
        if let Some(other) = self.plan.users.values().find(|other| other.name == name) {
            self.conflicts.insert(format!(
                "users {} and {} of bcs-api are both {name} here: rename one of them in its table `users`",
                other.id.0, user.id
            ));
            return;
        }
        let holder = self.directory.user(id);
        if holder.is_some_and(|holder| holder.name == name) {
            return;
        }
        let namesake = self.directory.users().find(|other| other.name == name);
        for other in holder.into_iter().chain(namesake) {
            if self.replace.contains(&other.name) {
                self.plan.replaced.insert(other.id, other.clone());
            } else {
                self.conflicts.insert(format!(
                    "user {} of bcs-api is {name}, and user {} here is {}",
                    user.id, other.id.0, other.name
                ));
            }
        }
        let user = User {
            id,
            name,
            is_super_user: user.is_super_user != 0,
            groups: Vec::new(),
            created_at: user.created_at.map_or_else(now, moment),
        };
        self.plan.users.insert(id, user);
    }

    fn plan_token(&mut self, token: SourceToken) {
        let Some(user) = self.plan.find_user_id(self.directory, token.user_id) else {
            return;
        };
        if !self.settle_row("user_tokens", token.id.to_string()) {
            return;
        }
        let digest = TokenDigest::of_token(&token.value);
        let is_kept = |existing_token: &&UserToken| !self.plan.replaced.contains_key(&existing_token.user);
        let same_value = self.directory.tokens.get(digest.as_bytes()).filter(is_kept);
        let same_id = self.existing_tokens.get(&token.id).copied().filter(is_kept);
        if same_value.is_some_and(|existing_token| existing_token.id.0 == token.id && existing_token.user == user) {
            return;
        }
        for (existing_token, relation) in [(same_value, "is"), (same_id, "has the number of")] {
            let Some(existing_token) = existing_token else {
                continue;
            };
            let user = self.directory.user(existing_token.user);
            let owner = user.map_or_else(String::new, |user| format!(" of {}", user.name));
            self.conflicts.insert(format!(
                "token {} of bcs-api, of its user {}, {relation} token {}{owner} here",
                token.id, token.user_id, existing_token.id.0
            ));
        }
        self.plan.tokens.push(token);
    }

    fn plan_cluster(&mut self, cluster: SourceCluster) {
        let SourceCluster { id, identifier, .. } = &cluster;
        let provider = match cluster.provider {
            1 => Provider::Plain,
            2 => Provider::Bcs,
            _ => {
                self.plan.skipped.push(format!(
                    "cluster {id}: fixtures are in bcs-api's configuration; create it here"
                ));
                return;
            }
        };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !identifier.bytes().all(is_letter) {
            self.plan
                .skipped
                .push(format!("cluster {id}: `{identifier}` cannot be a part of a path"));
            return;
        }
        if !self.settle_row("clusters", id.clone()) {
            return;
        }
        let project = cluster.project_id.clone().zip(cluster.platform_id.clone());
        for other in self.directory.clusters() {
            let bcs = other.bcs.as_ref();
            let other_project = bcs.map(|info| (&info.project_id, &info.cluster_id));
            if other.id == *id && other.identifier == *identifier {
                return;
            }
            let shared_key = if other.id == *id {
                "ID"
            } else if other.identifier == *identifier {
                "identifier"
            } else if other_project.is_some() && other_project == project.as_ref().map(|(project, id)| (project, id)) {
                "project and cluster ID"
            } else {
                continue;
            };
            self.conflicts.insert(format!(
                "cluster {id} of bcs-api, with the identifier {identifier}, has the {shared_key} of the cluster {} here, \
                 with the identifier {}",
                other.id, other.identifier
            ));
        }
        let creator = self.plan.find_user_id(self.directory, cluster.creator_id);
        self.plan.clusters.insert(
            id.clone(),
            RegisteredCluster {
                id: cluster.id,
                identifier: cluster.identifier,
                provider,
                creator: creator.unwrap_or(UserId::UNASSIGNED),
                created_at: cluster.created_at.map_or_else(now, moment),
                bcs: project.map(|(project_id, cluster_id)| BcsInfo {
                    project_id,
                    cluster_id,
                    kind: match cluster.kind {
                        Some(2) => ClusterType::Mesos,
                        Some(3) => ClusterType::Tke,
                        _ => ClusterType::Kubernetes,
                    },
                }),
                credentials: None,
                register_token: None,
                grants: [].into(),
            },
        );
    }
}
