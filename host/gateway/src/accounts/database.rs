//! Opens and migrates the database of users and clusters, and reads its whole content.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance::Moment;
use admittance_net::bearer::TokenDigest;
use admittance_watch::file;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::{
    Any, AnyPool, SqlSafeStr, Transaction,
    any::{AnyConnectOptions, AnyPoolOptions},
    migrate::{Migration, MigrationType, Migrator},
    query, query_as, query_scalar,
};

use super::{
    Access, AccountsError, AgentReport, BcsInfo, ClusterCredentials, DatabaseConfig, Directory, KeyFile, RegisterToken,
    RegisteredCluster, TokenId, User, UserId, directory::UserToken, role_grants::load_role_grants,
};

const MIGRATIONS_TABLE: &str = "admittance_migrations";
/// The migrations that create and change the tables in SQLite, oldest first, each with its name and statements.
const SQLITE_STEPS: [(&str, &str); 3] = [
    ("accounts", include_str!("../../migrations/sqlite/0001_accounts.sql")),
    ("import", include_str!("../../migrations/sqlite/0002_import.sql")),
    ("roles", include_str!("../../migrations/sqlite/0003_roles.sql")),
];
const MYSQL_STEPS: [(&str, &str); 3] = [
    ("accounts", include_str!("../../migrations/mysql/0001_accounts.sql")),
    ("import", include_str!("../../migrations/mysql/0002_import.sql")),
    ("roles", include_str!("../../migrations/mysql/0003_roles.sql")),
];
/// The maximum number of database connections. A few are enough, because changes are rare, and a read uses only one.
const MAX_CONNECTIONS: u32 = 4;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

const REVISION_QUERY: &str = "SELECT revision FROM admittance_state WHERE id = 1";

pub(super) type DatabaseTransaction = Transaction<'static, Any>;

#[derive(Debug)]
pub(super) struct Database {
    pub(super) pool: AnyPool,
    pub(super) is_sqlite: bool,
}

impl Database {
    /// Creates a pool of database connections, which connects on first use. Must be called in a tokio runtime.
    pub(super) fn new(config: &DatabaseConfig) -> Result<Self, AccountsError> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(&connection_url(config)?)?;
        let pool = AnyPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT);
        Ok(Self {
            pool: pool.connect_lazy_with(options),
            is_sqlite: matches!(config, DatabaseConfig::Sqlite(_)),
        })
    }

    pub(super) async fn migrate(&self) -> Result<(), AccountsError> {
        let steps = if self.is_sqlite {
            // With the journal mode WAL, reads see a consistent state while another connection writes.
            query("PRAGMA journal_mode = WAL").execute(&self.pool).await?;
            SQLITE_STEPS
        } else {
            MYSQL_STEPS
        };
        let migrations = (1..).zip(steps).map(|(version, (name, sql))| {
            let sql = sql.into_sql_str();
            Migration::new(version, name.into(), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
        migrator
            .run(&self.pool)
            .await
            .map_err(|error| AccountsError::Unavailable(error.to_string()))
    }

    pub(super) async fn sealed_token_count(&self) -> Result<i64, AccountsError> {
        self.migrate().await?;
        let count = query_scalar("SELECT COUNT(*) FROM admittance_credentials");
        Ok(count.fetch_one(&self.pool).await?)
    }

    pub(super) async fn revision(&self) -> Result<i64, AccountsError> {
        Ok(query_scalar(REVISION_QUERY).fetch_one(&self.pool).await?)
    }

    /// Begins a change of the database. Only one change can be in progress, so this waits until the changes of other
    /// gateways have ended.
    pub(super) async fn begin_change(&self) -> Result<DatabaseTransaction, AccountsError> {
        let mut change = self.pool.begin().await?;
        query("UPDATE admittance_state SET revision = revision + 1 WHERE id = 1")
            .execute(&mut *change)
            .await?;
        Ok(change)
    }

    pub(super) async fn load(&self, keys: &KeyFile, previous: Option<&Directory>) -> Result<Directory, AccountsError> {
        read_directory(&mut self.pool.begin().await?, keys, previous).await
    }
}

pub(super) async fn revision_in(transaction: &mut DatabaseTransaction) -> Result<i64, AccountsError> {
    Ok(query_scalar(REVISION_QUERY).fetch_one(&mut **transaction).await?)
}

/// Reads the whole content of the database. If the credentials of a cluster are the same as in the directory
/// `previous`, the new directory shares their `Arc` with `previous`.
pub(super) async fn read_directory(
    transaction: &mut DatabaseTransaction,
    keys: &KeyFile,
    previous: Option<&Directory>,
) -> Result<Directory, AccountsError> {
    let mut directory = Directory {
        revision: revision_in(transaction).await?,
        users: load_users(transaction).await?,
        tokens: load_tokens(transaction).await?,
        ..Directory::default()
    };
    for mut cluster in load_clusters(transaction, keys).await? {
        let previous_credentials = previous
            .and_then(|previous| previous.cluster(&cluster.id))
            .and_then(|previous_cluster| previous_cluster.credentials.as_ref());
        if let (Some(credentials), Some(previous_credentials)) = (&mut cluster.credentials, previous_credentials)
            && *credentials == *previous_credentials
        {
            *credentials = previous_credentials.clone();
        }
        directory
            .ids_by_identifier
            .insert(cluster.identifier.clone(), cluster.id.clone());
        directory.clusters.insert(cluster.id.clone(), Arc::new(cluster));
    }
    directory.add_grants(load_role_grants(transaction).await?);
    Ok(directory)
}

/// Returns the URL of the database for `sqlx`, which tells SQLite and MySQL apart by the scheme of the URL.
fn connection_url(config: &DatabaseConfig) -> Result<String, AccountsError> {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    match config {
        DatabaseConfig::Sqlite(path) => {
            let name = path.display();
            // The file is created here, because SQLite would create it with a mode that lets everybody read it.
            file::open_for_appending(path).map_err(|error| AccountsError::Unavailable(format!("{name}: {error}")))?;
            Ok(format!("sqlite://{}?mode=rw", encode(utf8_path(path)?)))
        }
        DatabaseConfig::MySql(config) => {
            let secret = config.password.as_ref();
            let password = secret.map_or(String::new(), |secret| format!(":{}", encode(&secret.0)));
            let tls = match &config.ca {
                Some(ca) => format!("verify_identity&ssl-ca={}", encode(utf8_path(ca)?)),
                None => "disabled".to_owned(),
            };
            Ok(format!(
                "mysql://{}{password}@{}:{}/{}?ssl-mode={tls}",
                encode(&config.user),
                config.host,
                config.port,
                encode(&config.database),
            ))
        }
    }
}

fn utf8_path(path: &Path) -> Result<&str, AccountsError> {
    path.to_str()
        .ok_or_else(|| AccountsError::Unavailable(format!("{} is not UTF-8", path.display())))
}

async fn load_users(transaction: &mut DatabaseTransaction) -> Result<BTreeMap<UserId, Arc<User>>, AccountsError> {
    let rows: Vec<(i64, String, i64, String, i64)> =
        query_as("SELECT id, name, is_super_user, user_groups, created_at FROM admittance_users")
            .fetch_all(&mut **transaction)
            .await?;
    rows.into_iter()
        .map(|(id, name, is_super_user, groups, created_at)| {
            let user = User {
                id: UserId(id),
                name: parse_column(&name)?,
                is_super_user: is_super_user != 0,
                groups: groups.split_whitespace().map(str::to_owned).collect(),
                created_at: moment(created_at),
            };
            Ok((user.id, Arc::new(user)))
        })
        .collect()
}

async fn load_tokens(transaction: &mut DatabaseTransaction) -> Result<HashMap<[u8; 32], UserToken>, AccountsError> {
    let rows: Vec<(i64, i64, String, i64, i64)> =
        query_as("SELECT id, user_id, digest, created_at, expires_at FROM admittance_user_tokens")
            .fetch_all(&mut **transaction)
            .await?;
    rows.into_iter()
        .map(|(id, user, digest, created_at, expires_at)| {
            let digest: TokenDigest = parse_column(&digest)?;
            let token = UserToken {
                id: TokenId(id),
                user: UserId(user),
                created_at: moment(created_at),
                expires_at: moment(expires_at),
            };
            Ok((*digest.as_bytes(), token))
        })
        .collect()
}

type ClusterRow = (
    String,
    String,
    String,
    i64,
    i64,
    Option<String>,
    Option<String>,
    Option<String>,
);

async fn load_clusters(
    transaction: &mut DatabaseTransaction,
    keys: &KeyFile,
) -> Result<Vec<RegisteredCluster>, AccountsError> {
    let cluster_rows: Vec<ClusterRow> = query_as(
        "SELECT id, identifier, provider, creator_id, created_at, project_id, bcs_cluster_id, cluster_type \
         FROM admittance_clusters",
    )
    .fetch_all(&mut **transaction)
    .await?;
    let mut grants = load_grants(transaction).await?;
    let mut tokens = load_register_tokens(transaction).await?;
    let mut credentials = load_credentials(transaction, keys).await?;
    let rows = cluster_rows.into_iter().map(|row| {
        let (id, identifier, provider, creator, created_at, project_id, cluster_id, kind) = row;
        let bcs = match (project_id, cluster_id, kind) {
            (Some(project_id), Some(cluster_id), Some(kind)) => Some(BcsInfo {
                project_id,
                cluster_id,
                kind: parse_column(&kind)?,
            }),
            _ => None,
        };
        Ok(RegisteredCluster {
            identifier,
            provider: parse_column(&provider)?,
            creator: UserId(creator),
            created_at: moment(created_at),
            bcs,
            credentials: credentials.remove(&id),
            register_token: tokens.remove(&id),
            grants: grants.remove(&id).unwrap_or_default(),
            id,
        })
    });
    rows.collect()
}

type Grants = HashMap<String, BTreeMap<UserId, Access>>;

async fn load_grants(transaction: &mut DatabaseTransaction) -> Result<Grants, AccountsError> {
    let rows: Vec<(String, i64, String)> =
        query_as("SELECT cluster_id, user_id, permission FROM admittance_permissions")
            .fetch_all(&mut **transaction)
            .await?;
    let mut grants = Grants::new();
    for (cluster, user, permission) in rows {
        let grants_of_cluster = grants.entry(cluster).or_default();
        grants_of_cluster.insert(UserId(user), parse_column(&permission)?);
    }
    Ok(grants)
}

async fn load_register_tokens(
    transaction: &mut DatabaseTransaction,
) -> Result<HashMap<String, RegisterToken>, AccountsError> {
    let rows: Vec<(String, String, i64, i64, Option<i64>)> =
        query_as("SELECT cluster_id, digest, created_at, expires_at, used_at FROM admittance_register_tokens")
            .fetch_all(&mut **transaction)
            .await?;
    rows.into_iter()
        .map(|(cluster, digest, created_at, expires_at, used_at)| {
            let token = RegisterToken {
                digest: parse_column(&digest)?,
                created_at: moment(created_at),
                expires_at: moment(expires_at),
                used_at: used_at.map(moment),
            };
            Ok((cluster, token))
        })
        .collect()
}

async fn load_credentials(
    transaction: &mut DatabaseTransaction,
    keys: &KeyFile,
) -> Result<HashMap<String, Arc<ClusterCredentials>>, AccountsError> {
    let rows: Vec<(String, String, String, String, String, i64)> = query_as(
        "SELECT cluster_id, server_addresses, ca, sealed_token, cluster_domain, reported_at \
         FROM admittance_credentials",
    )
    .fetch_all(&mut **transaction)
    .await?;
    let mut credentials = HashMap::new();
    for (cluster, addresses, ca, sealed, cluster_domain, reported_at) in rows {
        let user_token = match keys.reload_and_open(&sealed, &cluster) {
            Ok(token) => token,
            Err(error) => {
                tracing::error!(%cluster, "the cluster cannot be reached, because its token cannot be read: {error}");
                continue;
            }
        };
        let report = AgentReport {
            server_addresses: addresses,
            ca,
            user_token,
            cluster_domain,
        };
        match report.credentials() {
            Ok(mut cluster_credentials) => {
                cluster_credentials.reported_at = moment(reported_at);
                credentials.insert(cluster, Arc::new(cluster_credentials));
            }
            Err(error) => {
                tracing::error!(%cluster, "the cluster cannot be reached, because its credentials are invalid: {error}");
            }
        }
    }
    Ok(credentials)
}

pub(super) fn parse_column<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, AccountsError> {
    text.parse()
        .map_err(|error| AccountsError::Unavailable(format!("it has an invalid value: {error}")))
}

/// Returns the current time in whole seconds, as the database stores times.
pub(super) fn now() -> Moment {
    moment(seconds(Moment::now()))
}

pub(super) fn moment(seconds: i64) -> Moment {
    let since_epoch = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    Moment(SystemTime::UNIX_EPOCH + since_epoch)
}

pub(super) fn seconds(moment: Moment) -> i64 {
    let since_epoch = moment.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    use super::*;
    use crate::accounts::MySqlConfig;

    #[test]
    fn tls_to_the_database_is_never_turned_off_silently() {
        let mut config = MySqlConfig {
            host: "db".to_owned(),
            port: MySqlConfig::DEFAULT_PORT,
            database: "bcs".to_owned(),
            user: "gateway".to_owned(),
            password: None,
            ca: Some("ca.pem".into()),
        };
        let text = connection_url(&DatabaseConfig::MySql(config.clone())).unwrap();
        assert!(text.ends_with("?ssl-mode=verify_identity&ssl-ca=ca%2Epem"), "{text}");
        config.ca = Some(OsStr::from_bytes(b"\xff").into());
        let error = connection_url(&DatabaseConfig::MySql(config)).unwrap_err();
        assert!(error.to_string().contains("is not UTF-8"), "{error}");
    }
}
