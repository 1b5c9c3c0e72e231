use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance_definitions::document::{Node, readers};
use admittance_gateway::accounts::{AccountsConfig, DatabaseConfig, KeyFile, MySqlConfig, Secret};
use admittance_net::tls;

use crate::config::read::zookeeper::read_password;

/// The allowed lifetimes of a register token.
const REGISTER_TOKEN_LIFETIMES: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 60 * 60);

pub(super) fn read_accounts(node: &Node<'_>) -> Option<AccountsConfig> {
    let mut fields = node.object()?;
    let database = match fields.present_fields(&["sqlite", "mysql"]).as_slice() {
        [("sqlite", node)] => read_sqlite(node).map(DatabaseConfig::Sqlite),
        [("mysql", node)] => read_mysql(node).map(DatabaseConfig::MySql),
        _ => {
            let fix = "write one of `sqlite: accounts.db` and `mysql: { ... }`";
            node.reject("exactly one database is required", fix)
        }
    };
    let key_node = fields.optional("keyFile");
    let register_token_lifetime = fields.get(
        "registerTokenLifetime",
        AccountsConfig::DEFAULT_REGISTER_TOKEN_LIFETIME,
        readers::duration(REGISTER_TOKEN_LIFETIMES),
    );
    let clusters_per_user = fields.get(
        "clustersPerUser",
        AccountsConfig::DEFAULT_CLUSTERS_PER_USER,
        readers::integer(0..=1_000_000),
    );
    let local_servers = fields.get_or_default("localServers", readers::list_of(readers::network));
    let database = database?;
    let creates_key = key_node.is_none();
    let key_file = match (key_node, &database) {
        (Some(node), _) => {
            let path = node.file_path()?;
            node.accept(KeyFile::read(&path).map(drop))?;
            path
        }
        (None, DatabaseConfig::Sqlite(path)) => {
            let mut name = path.clone().into_os_string();
            name.push(".key");
            let path = PathBuf::from(name);
            if path.exists() {
                node.accept(KeyFile::read(&path).map(drop))?;
            }
            path
        }
        (None, DatabaseConfig::MySql(_)) => {
            let fix = "write a key with `openssl rand -base64 32 > accounts.key`, and name the file";
            return node.reject("`keyFile` is required, because all gateways need the same keys", fix);
        }
    };
    Some(AccountsConfig {
        database,
        key_file,
        creates_key,
        register_token_lifetime,
        clusters_per_user,
        local_servers,
    })
}

fn read_sqlite(node: &Node<'_>) -> Option<PathBuf> {
    let path = node.file_path()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        let message = format!("the directory {} does not exist", directory.display());
        let fix = format!("create it: mkdir -m 700 -p {}", directory.display());
        return node.reject(message, fix);
    }
    Some(path)
}

fn read_mysql(node: &Node<'_>) -> Option<MySqlConfig> {
    let mut fields = node.object()?;
    let server = fields.get_required("server", "write 10.0.0.5:3306", readers::parse_with(parse_server));
    let database = fields.get_required("database", "write the name of the database", readers::text);
    let user = fields.get_required("user", "write the name of the user", readers::text);
    let password = readers::file_with(|path| read_password(path, false));
    let password = fields.get_optional("passwordFile", password);
    let ca = fields.get_optional("ca", readers::file_with(check_authorities));
    let (host, port) = server?;
    Some(MySqlConfig {
        host,
        port,
        database: database?,
        user: user?,
        password: password.map(Secret),
        ca,
    })
}

fn check_authorities(path: &Path) -> Result<PathBuf, String> {
    tls::certificates(path).map_err(|error| error.to_string())?;
    Ok(path.to_owned())
}

fn parse_server(text: &str) -> Result<(String, u16), String> {
    let server_error = || format!("{text:?} is not a valid server: write a host, or a host and a port, 10.0.0.5:3306");
    let authority: http::uri::Authority = text.parse().map_err(|_| server_error())?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return Err(server_error());
    }
    let has_port = authority.as_str().len() > authority.host().len();
    let port = match (authority.port_u16(), has_port) {
        (Some(port), _) => port,
        (None, false) => MySqlConfig::DEFAULT_PORT,
        (None, true) => return Err(server_error()),
    };
    Ok((authority.host().to_owned(), port))
}

#[cfg(test)]
mod tests;
