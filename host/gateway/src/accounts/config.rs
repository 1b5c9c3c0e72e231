use std::{path::PathBuf, time::Duration};

use ipnet::IpNet;

use super::Secret;

/// The settings of the users and clusters of a gateway.
#[derive(Clone, Debug)]
pub struct AccountsConfig {
    pub database: DatabaseConfig,
    /// The file with the keys that encrypt secrets in the database, such as the tokens of clusters.
    pub key_file: PathBuf,
    /// Whether the gateway creates the key file if the file is missing.
    pub creates_key: bool,
    /// The lifetime of a new register token until an agent uses it for the first time. If no agent uses the token
    /// within this time, the token expires.
    pub register_token_lifetime: Duration,
    /// The maximum number of clusters that a user may create. Super users may create any number. Default: 50.
    pub clusters_per_user: usize,
    /// The loopback and link-local networks in which API servers may be. Other loopback and link-local addresses in
    /// reports are refused, because agents could otherwise make the gateway connect to servers that only the gateway's
    /// machine can reach. Default: none.
    pub local_servers: Vec<IpNet>,
}

impl AccountsConfig {
    pub const DEFAULT_CLUSTERS_PER_USER: usize = 50;
    pub const DEFAULT_REGISTER_TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
}

#[derive(Clone, Debug)]
pub enum DatabaseConfig {
    /// A SQLite file as the database. Only one gateway can use it.
    Sqlite(PathBuf),
    /// A MySQL server as the database. Several gateways can share it.
    MySql(MySqlConfig),
}

#[derive(Clone, Debug)]
pub struct MySqlConfig {
    pub host: String,
    pub port: u16,
    pub database: String,
    pub user: String,
    pub password: Option<Secret>,
    /// The PEM file of the CAs that may sign the MySQL server's certificate. Without it, the connection is unencrypted.
    pub ca: Option<PathBuf>,
}

impl MySqlConfig {
    pub const DEFAULT_PORT: u16 = 3306;
}
