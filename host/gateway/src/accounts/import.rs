//! Copies what bcs-api has in the same MySQL database. Its tables stay as they are.

use std::collections::{BTreeSet, HashMap};

use admittance_bcs::routes::Permission;
use admittance_net::bearer::TokenDigest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::query_as;

use super::{
    Accounts, AccountsError, BcsInfo, Cluster, ClusterKind, Provider, RegisterToken, Report, Secret, UserId,
    UserName,
    database::{Change, moment, now},
    rows::{
        digest_text, insert_cluster, insert_permission, insert_register_token, insert_token, insert_user,
    },
};

/// What was copied. What is there already is not copied again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// How many users.
    pub users: usize,
    /// How many tokens of users.
    pub tokens: usize,
    /// How many clusters.
    pub clusters: usize,
    /// How many credentials of clusters.
    pub credentials: usize,
    /// How many register tokens.
    #[serde(rename = "registerTokens")]
    pub register_tokens: usize,
    /// How many permissions.
    pub permissions: usize,
    /// What was not copied, with the reason.
    pub skipped: Vec<String>,
}

/// The users in this database, by their numbers in bcs-api's.
type Users = HashMap<i64, UserId>;

impl Accounts {
    /// Copy users, tokens, clusters, credentials, register tokens and permissions of bcs-api, in one transaction.
    pub async fn import(&self, by: &str) -> Result<Imported, AccountsError> {
        if self.0.database.is_sqlite() {
            return Err(AccountsError::Invalid(
                "the tables of bcs-api are in MySQL: set `dialect.gateway.accounts.mysql` to its database first"
                    .to_owned(),
            ));
        }
        let mut change = self.0.database.change().await?;
        let mut done = Imported::default();
        let users = users(&mut change, &mut done).await?;
        tokens(&mut change, &users, &mut done).await?;
        let clusters = clusters(&mut change, &users, &mut done).await?;
        self.credentials(&mut change, &clusters, &mut done).await?;
        register_tokens(&mut change, &clusters, &mut done).await?;
        permissions(&mut change, &users, &clusters, &mut done).await?;
        let subject = format!("{} users and {} clusters of bcs-api", done.users, done.clusters);
        self.commit(change, by, "import", &subject).await?;
        Ok(done)
    }

    async fn credentials(
        &self,
        change: &mut Change,
        clusters: &BTreeSet<String>,
        done: &mut Imported,
    ) -> Result<(), AccountsError> {
        let rows: Vec<(String, String, String, String, String)> = query_as(
            "SELECT cluster_id, server_addresses, ca_cert_data, user_token, COALESCE(cluster_domain, '') \
             FROM cluster_credentials",
        )
        .fetch_all(&mut **change)
        .await?;
        for (cluster, addresses, ca, token, cluster_domain) in rows {
            if !clusters.contains(&cluster) {
                continue;
            }
            // The last agent of BCS separates them by commas.
            let server_addresses = addresses.replace(',', ";");
            let report = Report {
                server_addresses,
                ca,
                user_token: Secret(token),
                cluster_domain,
            };
            // Agents could report anything to bcs-api.
            match self.reachable(report) {
                Ok(credentials) => self.insert_credentials(change, &cluster, &credentials).await?,
                Err(error) => {
                    done.skipped.push(format!("credentials of {cluster}: {error}"));
                    continue;
                }
            }
            done.credentials += 1;
        }
        Ok(())
    }
}

async fn users(change: &mut Change, done: &mut Imported) -> Result<Users, AccountsError> {
    let rows: Vec<(i64, String, i64)> = query_as(
        "SELECT CAST(id AS SIGNED), name, CAST(COALESCE(is_super_user, 0) AS SIGNED) FROM users ORDER BY id",
    )
    .fetch_all(&mut **change)
    .await?;
    let known: Vec<(String, i64)> = query_as("SELECT name, id FROM admittance_users")
        .fetch_all(&mut **change)
        .await?;
    let known: HashMap<String, i64> = known.into_iter().collect();
    let mut users = Users::new();
    for (id, name, is_super_user) in rows {
        let here = match known.get(&name) {
            Some(here) => *here,
            None => {
                let parsed = match name.parse::<UserName>() {
                    Ok(parsed) => parsed,
                    Err(error) => {
                        done.skipped.push(format!("user {id}: {error}"));
                        continue;
                    }
                };
                done.users += 1;
                insert_user(change, &parsed, is_super_user != 0, &[]).await?.id.0
            }
        };
        users.insert(id, UserId(here));
    }
    Ok(users)
}

async fn tokens(change: &mut Change, users: &Users, done: &mut Imported) -> Result<(), AccountsError> {
    let rows: Vec<(i64, String, i64)> = query_as(
        "SELECT CAST(user_id AS SIGNED), value, CAST(UNIX_TIMESTAMP(expires_at) AS SIGNED) FROM user_tokens \
         WHERE expires_at > NOW()",
    )
    .fetch_all(&mut **change)
    .await?;
    let known: Vec<(String,)> = query_as("SELECT digest FROM admittance_user_tokens")
        .fetch_all(&mut **change)
        .await?;
    let known: BTreeSet<String> = known.into_iter().map(|(digest,)| digest).collect();
    for (user, value, expires_at) in rows {
        let digest = digest_text(TokenDigest::of(&value));
        let Some(user) = users.get(&user).filter(|_| !known.contains(&digest)) else {
            continue;
        };
        insert_token(change, *user, &digest, now(), moment(expires_at)).await?;
        done.tokens += 1;
    }
    Ok(())
}

type ClusterRow = (
    String,
    i64,
    i64,
    String,
    Option<String>,
    Option<String>,
    Option<i64>,
);

/// Returns the clusters that were copied now.
async fn clusters(
    change: &mut Change,
    users: &Users,
    done: &mut Imported,
) -> Result<BTreeSet<String>, AccountsError> {
    let rows: Vec<ClusterRow> = query_as(
        "SELECT c.id, CAST(c.provider AS SIGNED), CAST(c.creator_id AS SIGNED), c.identifier, \
         i.source_project_id, i.source_cluster_id, CAST(i.cluster_type AS SIGNED) \
         FROM clusters c LEFT JOIN bcs_cluster_infos i ON i.cluster_id = c.id ORDER BY c.id",
    )
    .fetch_all(&mut **change)
    .await?;
    let known: Vec<(String,)> = query_as("SELECT id FROM admittance_clusters")
        .fetch_all(&mut **change)
        .await?;
    let known: BTreeSet<String> = known.into_iter().map(|(id,)| id).collect();
    let mut copied = BTreeSet::new();
    for (id, provider, creator, identifier, project_id, cluster_id, kind) in rows {
        if known.contains(&id) || copied.contains(&id) {
            continue;
        }
        let provider = match provider {
            1 => Provider::Plain,
            2 => Provider::Bcs,
            _ => {
                done.skipped.push(format!(
                    "cluster {id}: fixtures are in bcs-api's configuration; create it here"
                ));
                continue;
            }
        };
        if !identifier
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            done.skipped
                .push(format!("cluster {id}: `{identifier}` cannot be a part of a path"));
            continue;
        }
        let cluster = Cluster {
            id: id.clone(),
            identifier,
            provider,
            creator: users.get(&creator).copied().unwrap_or(UserId::NOBODY),
            created_at: now(),
            bcs: project_id
                .zip(cluster_id)
                .map(|(project_id, cluster_id)| BcsInfo {
                    project_id,
                    cluster_id,
                    kind: match kind {
                        Some(2) => ClusterKind::Mesos,
                        Some(3) => ClusterKind::Tke,
                        _ => ClusterKind::Kubernetes,
                    },
                }),
            credentials: None,
            register_token: None,
            grants: [].into(),
        };
        insert_cluster(change, &cluster, &id).await?;
        done.clusters += 1;
        copied.insert(id);
    }
    Ok(copied)
}

/// Agents use them already, so they do not expire.
async fn register_tokens(
    change: &mut Change,
    clusters: &BTreeSet<String>,
    done: &mut Imported,
) -> Result<(), AccountsError> {
    let rows: Vec<(String, String)> = query_as("SELECT cluster_id, token FROM register_tokens")
        .fetch_all(&mut **change)
        .await?;
    for (cluster, token) in rows {
        if !clusters.contains(&cluster) {
            continue;
        }
        let at = now();
        let token = RegisterToken {
            digest: TokenDigest::of(&token),
            created_at: at,
            expires_at: at,
            used_at: Some(at),
        };
        insert_register_token(change, &cluster, &token).await?;
        done.register_tokens += 1;
    }
    Ok(())
}

async fn permissions(
    change: &mut Change,
    users: &Users,
    clusters: &BTreeSet<String>,
    done: &mut Imported,
) -> Result<(), AccountsError> {
    let rows: Vec<(i64, String, String)> = query_as(
        "SELECT CAST(user_id AS SIGNED), cluster_id, name FROM user_cluster_permissions WHERE is_active <> 0",
    )
    .fetch_all(&mut **change)
    .await?;
    let mut granted: HashMap<(UserId, String), Permission> = HashMap::new();
    for (user, cluster, name) in rows {
        let permission = match name.to_ascii_lowercase().as_str() {
            name if name.ends_with("view") => Permission::Read,
            name if name.ends_with("edit") => Permission::Write,
            _ => {
                let reason = format!("permission `{name}` for {cluster}: only view and edit are known");
                done.skipped.push(reason);
                continue;
            }
        };
        let Some(user) = users.get(&user).filter(|_| clusters.contains(&cluster)) else {
            continue;
        };
        let entry = granted.entry((*user, cluster)).or_insert(permission);
        *entry = permission.max(*entry);
    }
    for ((user, cluster), permission) in granted {
        insert_permission(change, user, &cluster, permission).await?;
        done.permissions += 1;
    }
    Ok(())
}
