use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_gateway::accounts::{
    Accounts, AccountsConfig, AgentReport, ClusterName, DatabaseConfig, Directory, KeyFile, RegisteredCluster, Secret,
    User, UserName,
};
use tempfile::TempDir;
use tokio::task::AbortHandle;

use crate::mariadb;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The users and clusters of a gateway under test. The gateway keeps reading its database until this value is dropped.
pub(crate) struct AccountsScene {
    pub(crate) accounts: Accounts,
    pub(crate) directory: Arc<TempDir>,
    pub(crate) database: DatabaseConfig,
    following: AbortHandle,
}

impl AccountsScene {
    pub(crate) async fn sqlite() -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let database = DatabaseConfig::Sqlite(directory.path().join("a ccounts%.db"));
        Self::start(directory, database, DAY).await
    }

    pub(crate) async fn mysql() -> Self {
        // A blocking thread is needed, because `shared_server` blocks while the server starts.
        let server = tokio::task::spawn_blocking(mariadb::shared_server).await.unwrap();
        let database = DatabaseConfig::MySql(server.create_database().await);
        Self::start(Arc::new(tempfile::tempdir().unwrap()), database, DAY).await
    }

    pub(crate) async fn all() -> [Self; 2] {
        [Self::sqlite().await, Self::mysql().await]
    }

    pub(crate) async fn start(
        directory: Arc<TempDir>,
        database: DatabaseConfig,
        register_token_lifetime: Duration,
    ) -> Self {
        let config = accounts_config(&directory, &database, register_token_lifetime);
        let accounts = Accounts::new(config).await.unwrap();
        let following = accounts.clone();
        let following = tokio::spawn(async move { following.follow().await }).abort_handle();
        let scene = Self {
            accounts,
            directory,
            database,
            following,
        };
        scene.wait_until("it is read", |_| true).await;
        scene
    }

    pub(crate) async fn another_gateway(&self) -> Self {
        Self::start(self.directory.clone(), self.database.clone(), DAY).await
    }

    pub(crate) fn config(&self, register_token_lifetime: Duration) -> AccountsConfig {
        accounts_config(&self.directory, &self.database, register_token_lifetime)
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.directory.path().join("keys")
    }

    /// Waits until the directory of the gateway fulfils `condition`, and returns the directory.
    pub(crate) async fn wait_until(&self, description: &str, condition: impl Fn(&Directory) -> bool) -> Arc<Directory> {
        let mut changes = self.accounts.changes();
        let waiting = changes.wait_for(|directory| directory.as_deref().is_some_and(&condition));
        match tokio::time::timeout(TEST_TIMEOUT, waiting).await {
            Ok(current) => current.unwrap().clone().unwrap(),
            Err(_) => panic!("waited for: {description}; {:?}", self.accounts.stale_reason()),
        }
    }

    pub(crate) async fn create_user(&self, name: &str) -> Arc<User> {
        let name = UserName::plain(name).unwrap();
        self.accounts.create_user("test", &name, false, &[]).await.unwrap()
    }

    pub(crate) async fn create_token(&self, user: &User) -> Vec<u8> {
        let token = self.accounts.create_token("test", user, DAY).await.unwrap();
        token.value.0.into_bytes()
    }

    pub(crate) async fn create_cluster(&self, name: &str, creator: Option<&User>) -> Arc<RegisteredCluster> {
        let name = ClusterName::new(name, None).unwrap();
        self.accounts.create_cluster("test", creator, &name).await.unwrap()
    }

    pub(crate) async fn create_register_token(&self, cluster: &RegisteredCluster) -> Vec<u8> {
        let created = self.accounts.create_register_token("test", cluster, true).await;
        created.unwrap().value.0.into_bytes()
    }
}

fn accounts_config(
    directory: &TempDir,
    database: &DatabaseConfig,
    register_token_lifetime: Duration,
) -> AccountsConfig {
    AccountsConfig {
        database: database.clone(),
        key_file: directory.path().join("keys"),
        creates_key: true,
        register_token_lifetime,
        clusters_per_user: 3,
        local_servers: Vec::new(),
    }
}

impl Drop for AccountsScene {
    fn drop(&mut self) {
        self.following.abort();
    }
}

pub(crate) fn agent_report(token: &str) -> AgentReport {
    AgentReport {
        server_addresses: "https://10.0.0.1:6443;https://10.0.0.2:6443".to_owned(),
        ca: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        user_token: Secret(token.to_owned()),
        cluster_domain: String::new(),
    }
}

/// Adds a new key at the beginning of the key file, so that it encrypts new secrets. Returns the new key as text.
pub(crate) fn prepend_key(path: &std::path::Path) -> String {
    let old = std::fs::read_to_string(path).unwrap();
    let next = path.with_extension("next");
    KeyFile::create(&next).unwrap();
    let new = std::fs::read_to_string(&next).unwrap();
    std::fs::remove_file(&next).unwrap();
    std::fs::write(path, format!("{new}{old}")).unwrap();
    new
}
