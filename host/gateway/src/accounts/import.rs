//! Copies the users and clusters of bcs-api, whose tables are in the same MySQL database and stay unchanged.
//!
//! Users, tokens and clusters keep their IDs, because platforms store them and send them to `/rest`. If an ID or name
//! is already in use in the gateway, nothing at all is imported. Imported rows are recorded, so that another import
//! copies only new rows of bcs-api, and restores nothing that was deleted or revoked in the gateway.

mod plan;
mod source;

use std::collections::{HashMap, HashSet};

use admittance_bcs::routes::Permission;
use admittance_net::{
    bearer::TokenDigest,
    tls::{self, Trust},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::{query, query_as};

use self::{
    plan::ImportPlan,
    source::{ImportSource, SourceCredentials, SourcePermission, SourceToken},
};
use super::{
    Access, Accounts, AccountsError, AgentReport, Directory, RegisterToken, Secret, TokenId, UserId, UserName,
    database::{DatabaseTransaction, moment, now, read_directory},
    rows::{
        UserTokenRow, digest_text, insert_cluster, insert_grant, insert_register_token, insert_token, insert_user,
        token_row_name,
    },
};

const CREDENTIALS_KIND: &str = "credentials";
const REGISTER_TOKENS_KIND: &str = "register_tokens";

/// bcs-api's number for the type of the plain tokens, which `POST users/{id}/tokens` returns.
pub(crate) const PLAIN_TOKEN: i64 = 3;

/// The number of rows that an import copied. Rows that earlier imports copied do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedAccounts {
    /// The number of imported users.
    pub users: usize,
    /// The number of imported tokens of users.
    pub tokens: usize,
    /// The number of imported clusters.
    pub clusters: usize,
    /// The number of clusters whose credentials were imported.
    pub credentials: usize,
    /// The number of imported register tokens.
    pub register_tokens: usize,
    /// The number of imported permissions.
    pub permissions: usize,
    /// The users of the gateway that were deleted because they conflicted with users of bcs-api.
    #[serde(default)]
    pub replaced: Vec<String>,
    /// The rows of bcs-api that were not copied, each with the reason.
    pub skipped: Vec<String>,
}

impl Accounts {
    /// Copies users, tokens, clusters, credentials, register tokens and permissions of bcs-api, in one transaction.
    ///
    /// The gateway may already use the IDs or names of some rows of bcs-api. Then nothing is imported, and the error
    /// [`ImportConflicts`](AccountsError::ImportConflicts) lists all of these rows. `replaced_names` names users of the
    /// gateway whom the import may delete, with all their tokens, to resolve conflicts. If an imported user has the
    /// same name as a deleted one, the imported user gets the clusters and permissions of the deleted user.
    pub async fn import(&self, actor: &str, replace: &[UserName]) -> Result<ImportedAccounts, AccountsError> {
        if self.0.database.is_sqlite {
            return Err(AccountsError::Invalid(
                "the tables of bcs-api are in MySQL: set `dialect.gateway.accounts.mysql` to its database first"
                    .to_owned(),
            ));
        }
        let mut change = self.0.database.begin_change().await?;
        let mut source = ImportSource::read(&mut change).await?;
        let directory = read_directory(&mut change, &self.0.keys, None).await?;
        let settled: Vec<(String, String)> = query_as("SELECT kind, source FROM admittance_imported")
            .fetch_all(&mut *change)
            .await?;
        let settled: HashSet<_> = settled.into_iter().collect();
        let mut plan = ImportPlan::new(&mut source, &directory, &settled, replace)?;
        let mut outcome = ImportedAccounts {
            users: plan.users.len(),
            tokens: plan.tokens.len(),
            clusters: plan.clusters.len(),
            replaced: plan.replaced.values().map(|user| user.name.to_string()).collect(),
            skipped: plan.skipped.clone(),
            ..ImportedAccounts::default()
        };
        replace_users(&mut change, &plan, &directory).await?;
        for token in &plan.tokens {
            self.insert_source_token(&mut change, token).await?;
        }
        for cluster in plan.clusters.values() {
            insert_cluster(&mut change, cluster, &cluster.id).await?;
        }
        let is_new = |plan: &ImportPlan, table: &str, cluster: &str| {
            let is_here = plan.clusters.contains_key(cluster) || directory.cluster(cluster).is_some();
            is_here && !settled.contains(&(table.to_owned(), cluster.to_owned()))
        };
        for reported in source.credentials {
            let id = reported.cluster_id.clone();
            if !is_new(&plan, CREDENTIALS_KIND, &id) {
                continue;
            }
            let has_newer = directory
                .cluster(&id)
                .is_some_and(|existing_cluster| existing_cluster.credentials.is_some());
            if has_newer
                || self
                    .insert_source_credentials(&mut change, reported, &mut outcome)
                    .await?
            {
                plan.settled.push((CREDENTIALS_KIND, id));
            }
        }
        for (id, token) in source.register_tokens {
            if !is_new(&plan, REGISTER_TOKENS_KIND, &id) {
                continue;
            }
            let has_newer = directory
                .cluster(&id)
                .is_some_and(|existing_cluster| existing_cluster.register_token.is_some());
            if !has_newer {
                insert_used_register_token(&mut change, &id, &token).await?;
                outcome.register_tokens += 1;
            }
            plan.settled.push((REGISTER_TOKENS_KIND, id));
        }
        if plan.settled.is_empty() {
            return Ok(outcome);
        }
        let granted = imported_access(&source.permissions, &plan, &directory, &mut outcome);
        for ((user, cluster), access) in granted {
            insert_grant(&mut change, user, &cluster, access).await?;
            outcome.permissions += 1;
        }
        for (kind, source) in plan.settled {
            query("INSERT INTO admittance_imported (kind, source) VALUES (?, ?)")
                .bind(kind)
                .bind(source)
                .execute(&mut *change)
                .await?;
        }
        let subject = format!("{} users and {} clusters of bcs-api", outcome.users, outcome.clusters);
        self.commit(change, actor, "import", &subject).await?;
        Ok(outcome)
    }

    async fn insert_source_token(
        &self,
        change: &mut DatabaseTransaction,
        token: &SourceToken,
    ) -> Result<(), AccountsError> {
        let digest = digest_text(TokenDigest::of_token(&token.value));
        let value = (token.kind == PLAIN_TOKEN).then(|| Secret(token.value.clone()));
        let sealed_value = value.map(|value| self.0.keys.seal(&value, &token_row_name(&digest)));
        let row = UserTokenRow {
            id: Some(TokenId(token.id)),
            user: UserId(token.user_id),
            digest,
            created_at: token.created_at.map_or_else(now, moment),
            expires_at: moment(token.expires_at),
            sealed_value: sealed_value.transpose().map_err(AccountsError::Unavailable)?,
        };
        Ok(insert_token(change, row).await?)
    }

    /// Inserts the credentials of a cluster if they are valid, and returns whether they are. They are checked here,
    /// because bcs-api has stored them without a check.
    async fn insert_source_credentials(
        &self,
        change: &mut DatabaseTransaction,
        source_credentials: SourceCredentials,
        outcome: &mut ImportedAccounts,
    ) -> Result<bool, AccountsError> {
        let report = AgentReport {
            // The last version of BCS's agent separates the addresses with commas, but the gateway expects semicolons.
            server_addresses: source_credentials.server_addresses.replace(',', ";"),
            ca: source_credentials.ca_cert_data,
            user_token: Secret(source_credentials.user_token),
            cluster_domain: source_credentials.cluster_domain,
        };
        let cluster = source_credentials.cluster_id;
        let checked = self.reachable_credentials(report).and_then(|credentials| {
            let unusable = |error: &dyn std::fmt::Display| AccountsError::Invalid(format!("cacert_data: {error}"));
            let authorities = tls::certificates_in(credentials.ca.as_bytes()).map_err(|error| unusable(&error))?;
            Trust::Only(&authorities).roots().map_err(|error| unusable(&error))?;
            Ok(credentials)
        });
        match checked {
            Ok(credentials) => {
                self.insert_credentials(change, &cluster, &credentials).await?;
                outcome.credentials += 1;
                Ok(true)
            }
            Err(error) => {
                outcome.skipped.push(format!("credentials of {cluster}: {error}"));
                Ok(false)
            }
        }
    }
}

async fn replace_users(
    change: &mut DatabaseTransaction,
    plan: &ImportPlan,
    directory: &Directory,
) -> Result<(), AccountsError> {
    for id in plan.replaced.keys() {
        query("DELETE FROM admittance_users WHERE id = ?")
            .bind(id.0)
            .execute(&mut **change)
            .await?;
    }
    for user in plan.users.values() {
        insert_user(change, user.clone()).await?;
    }
    for cluster in directory.clusters() {
        if plan.replaced.contains_key(&cluster.creator) {
            let creator = successor(plan, cluster.creator).unwrap_or(UserId::UNASSIGNED);
            query("UPDATE admittance_clusters SET creator_id = ? WHERE id = ?")
                .bind(creator.0)
                .bind(cluster.id.clone())
                .execute(&mut **change)
                .await?;
        }
    }
    Ok(())
}

/// Returns the imported user who takes the place of a deleted user, because both have the same name.
fn successor(plan: &ImportPlan, replaced: UserId) -> Option<UserId> {
    let name = &plan.replaced.get(&replaced)?.name;
    let mut users = plan.users.values();
    users.find(|user| user.name == *name).map(|user| user.id)
}

/// Inserts the register token of an imported agent. It does not expire, because the agent has used it at bcs-api.
async fn insert_used_register_token(
    change: &mut DatabaseTransaction,
    cluster: &str,
    token: &str,
) -> Result<(), AccountsError> {
    let at = now();
    let token = RegisterToken {
        digest: TokenDigest::of_token(token),
        created_at: at,
        expires_at: at,
        used_at: Some(at),
    };
    insert_register_token(change, cluster, &token).await
}

fn imported_access(
    source_permissions: &[SourcePermission],
    plan: &ImportPlan,
    directory: &Directory,
    outcome: &mut ImportedAccounts,
) -> HashMap<(UserId, String), Access> {
    let mut granted: HashMap<(UserId, String), Access> = HashMap::new();
    let mut grant = |user, cluster: &str, access: Access| {
        let entry = granted.entry((user, cluster.to_owned())).or_insert(access);
        *entry = match (*entry, access) {
            (Access::Permission(one), Access::Permission(other)) => Access::Permission(one.max(other)),
            _ => Access::Cluster,
        };
    };
    for row in source_permissions {
        let (Some(user), cluster) = (plan.find_user_id(directory, row.user_id), &row.cluster_id) else {
            continue;
        };
        let is_new = plan.users.contains_key(&user) || plan.clusters.contains_key(cluster);
        let is_here = plan.clusters.contains_key(cluster) || directory.cluster(cluster).is_some();
        if !is_new || !is_here {
            continue;
        }
        match row.name.to_ascii_lowercase().as_str() {
            name if name.ends_with("view") => grant(user, cluster, Access::Permission(Permission::Read)),
            name if name.ends_with("edit") => grant(user, cluster, Access::Permission(Permission::Write)),
            name => outcome.skipped.push(format!(
                "permission `{name}` for {cluster}: only view and edit are known"
            )),
        }
    }
    for cluster in directory.clusters() {
        for (user, access) in &cluster.grants {
            if let Some(user) = successor(plan, *user) {
                grant(user, &cluster.id, *access);
            }
        }
    }
    granted
}
