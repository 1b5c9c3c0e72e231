//! `admittance users`, `tokens`, `clusters`, `register-tokens` and `permissions`: manages users of a gateway.

mod text;

use std::time::Duration;

use admittance_gateway::admin::{
    ClusterEntry, ClusterList, NewCluster, NewToken, NewUser, PermissionEntry, Removed, UserEntry, UserList,
};
use clap::{Args, Subcommand};
use http::Method;

use self::text::{
    clusters_table, import_text, issued_token_text, permissions_table, reencryption_text, register_tokens_table,
    tokens_table, users_table,
};
use super::{Query, client::Message};
use crate::{human, output::sanitize_line};

/// Manage the users of a gateway.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance users list --output json
  admittance users create alice --group developers
  admittance users delete alice")]
pub(crate) struct UsersArguments {
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    /// List users.
    #[command(after_help = "Examples:
  admittance users list --output json")]
    List(Query),
    /// Create a user.
    #[command(after_help = "Examples:
  admittance users create alice --group developers")]
    Create {
        /// The name of the user, such as `alice`. The full name of this user is then plain:alice.
        name: String,
        /// Let the user do everything with every cluster, and manage users.
        #[arg(long)]
        super_user: bool,
        /// A group to which the user belongs in every cluster. May be given more than once.
        #[arg(long, value_name = "GROUP")]
        group: Vec<String>,
        #[command(flatten)]
        query: Query,
    },
    /// Delete a user, with the user's tokens and permissions.
    #[command(after_help = "Examples:
  admittance users delete alice")]
    Delete {
        name: String,
        #[command(flatten)]
        query: Query,
    },
    /// Copy users, tokens and clusters of bcs-api, whose tables are in the gateway's MySQL database.
    ///
    /// Users, tokens and clusters keep their IDs. If a row of bcs-api conflicts with a row of the gateway, nothing is
    /// copied, and all conflicts are listed.
    #[command(after_help = "Examples:
  admittance users import
  admittance users import --replace root")]
    Import {
        /// Replace this user of the gateway if a user of bcs-api has the same name or number. The user of the gateway
        /// is deleted with all tokens, and then the user of bcs-api is copied. May be given more than once.
        #[arg(long, value_name = "USER")]
        replace: Vec<String>,
        #[command(flatten)]
        query: Query,
    },
}

/// Manage the tokens of users.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance tokens list alice
  admittance tokens create alice --expires-in 90d
  admittance tokens revoke alice 3")]
pub(crate) struct TokensArguments {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// List the tokens of a user, without their values.
    #[command(after_help = "Examples:
  admittance tokens list alice")]
    List {
        user: String,
        #[command(flatten)]
        query: Query,
    },
    /// Create a token, and print it. It cannot be shown again.
    #[command(after_help = "Examples:
  admittance tokens create alice --expires-in 90d")]
    Create {
        user: String,
        /// The time until the token expires, such as `12h` or `90d`.
        #[arg(long, value_name = "TIME", default_value = "365d", value_parser = crate::arguments::duration)]
        expires_in: Duration,
        #[command(flatten)]
        query: Query,
    },
    /// Revoke a token. Watches and connections that use it end within seconds.
    #[command(after_help = "Examples:
  admittance tokens revoke alice 3")]
    Revoke {
        user: String,
        /// The number of the token to revoke.
        id: i64,
        #[command(flatten)]
        query: Query,
    },
}

/// Manage the clusters that users reach through a gateway.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance clusters list
  admittance clusters create dev --creator alice
  admittance clusters delete plain-dev")]
pub(crate) struct ClustersArguments {
    #[command(subcommand)]
    command: ClustersCommand,
}

#[derive(Debug, Subcommand)]
enum ClustersCommand {
    /// List clusters.
    #[command(after_help = "Examples:
  admittance clusters list")]
    List(Query),
    /// Register a cluster.
    #[command(after_help = "Examples:
  admittance clusters create dev --creator alice
  admittance clusters create BCS-K8S-15091 --project demo --type k8s")]
    Create {
        /// The name of the cluster, such as `dev`: the ID of the cluster is then plain-dev. If --project is given, this
        /// is the ID that the platform gave the cluster, such as `BCS-K8S-15091`.
        id: String,
        /// The user who may manage the cluster.
        #[arg(long, value_name = "USER")]
        creator: Option<String>,
        /// The ID of the project, if a platform manages the cluster.
        #[arg(long)]
        project: Option<String>,
        /// The type of the cluster: k8s, mesos or tke [default: k8s].
        #[arg(long = "type", value_name = "TYPE", requires = "project")]
        kind: Option<String>,
        #[command(flatten)]
        query: Query,
    },
    /// Delete a cluster, with its credentials, its register token and the permissions for it.
    #[command(after_help = "Examples:
  admittance clusters delete plain-dev")]
    Delete {
        id: String,
        #[command(flatten)]
        query: Query,
    },
    /// Encrypt the credentials of all clusters with the first key of the gateway's key file.
    #[command(after_help = "Examples:
  admittance clusters reencrypt")]
    Reencrypt(Query),
}

/// Manage the tokens that agents of clusters register with.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance register-tokens list
  admittance register-tokens create plain-dev
  admittance register-tokens revoke plain-dev")]
pub(crate) struct RegisterTokensArguments {
    #[command(subcommand)]
    command: RegisterTokensCommand,
}

#[derive(Debug, Subcommand)]
enum RegisterTokensCommand {
    /// List clusters and their register tokens, without the values of the tokens.
    #[command(after_help = "Examples:
  admittance register-tokens list")]
    List(Query),
    /// Create or replace the register token of a cluster, and print it. It cannot be shown again.
    #[command(after_help = "Examples:
  admittance register-tokens create plain-dev")]
    Create {
        cluster: String,
        #[command(flatten)]
        query: Query,
    },
    /// Revoke the register token of a cluster.
    #[command(after_help = "Examples:
  admittance register-tokens revoke plain-dev")]
    Revoke {
        cluster: String,
        #[command(flatten)]
        query: Query,
    },
}

/// Manage the permissions of users for clusters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance permissions list
  admittance permissions grant alice plain-dev Write
  admittance permissions revoke alice plain-dev")]
pub(crate) struct PermissionsArguments {
    #[command(subcommand)]
    command: PermissionsCommand,
}

#[derive(Debug, Subcommand)]
enum PermissionsCommand {
    /// List permissions.
    #[command(after_help = "Examples:
  admittance permissions list")]
    List(Query),
    /// Grant a user a permission for a cluster, in place of the permission that the user has. The permission is Read,
    /// Write or Hooks; or Cluster, with which the role bindings of a Kubernetes cluster decide what the user may do
    /// there.
    #[command(after_help = "Examples:
  admittance permissions grant alice plain-dev Write")]
    Grant {
        user: String,
        cluster: String,
        /// The permission: Read, Write, Hooks or Cluster. Write includes Read, and Hooks includes both of these.
        permission: String,
        #[command(flatten)]
        query: Query,
    },
    /// Withdraw the permission of a user for a cluster.
    #[command(after_help = "Examples:
  admittance permissions revoke alice plain-dev")]
    Revoke {
        user: String,
        cluster: String,
        #[command(flatten)]
        query: Query,
    },
}

impl UsersArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        match &self.command {
            UsersCommand::List(query) => query
                .get_and_print(&["users"], &[], |list: &UserList| users_table(&list.users))
                .map(drop),
            UsersCommand::Create {
                name,
                super_user,
                group,
                query,
            } => {
                let body = NewUser {
                    name: name.clone(),
                    super_user: *super_user,
                    groups: group.clone(),
                };
                query.post_and_print(&["users"], &body, |user: &UserEntry| {
                    users_table(std::slice::from_ref(user))
                })
            }
            UsersCommand::Delete { name, query } => query.remove(&["users", name]),
            UsersCommand::Import { replace, query } => {
                let parameters = [("replace", replace.join(","))];
                let message = Message {
                    parameters: if replace.is_empty() { &[] } else { &parameters },
                    body: None,
                };
                query
                    .send_and_print(Method::POST, &["accounts", "import"], message, import_text)
                    .map(drop)
            }
        }
    }
}

impl TokensArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        match &self.command {
            TokensCommand::List { user, query } => {
                let user_tokens = |user: &UserEntry| tokens_table(&user.tokens);
                query.get_and_print(&["users", user], &[], user_tokens).map(drop)
            }
            TokensCommand::Create {
                user,
                expires_in,
                query,
            } => {
                let body = NewToken {
                    expires_in: expires_in.as_secs(),
                };
                query.post_and_print(&["users", user, "tokens"], &body, issued_token_text)
            }
            TokensCommand::Revoke { user, id, query } => query.remove(&["users", user, "tokens", &id.to_string()]),
        }
    }
}

impl ClustersArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        match &self.command {
            ClustersCommand::List(query) => query.list_clusters(clusters_table),
            ClustersCommand::Create {
                id,
                creator,
                project,
                kind,
                query,
            } => {
                let body = NewCluster {
                    id: id.clone(),
                    creator: creator.clone(),
                    project_id: project.clone(),
                    kind: kind.clone(),
                };
                let text = |cluster: &ClusterEntry| clusters_table(std::slice::from_ref(cluster));
                query.post_and_print(&["clusters"], &body, text)
            }
            ClustersCommand::Delete { id, query } => query.remove(&["clusters", id]),
            ClustersCommand::Reencrypt(query) => {
                let message = Message::default();
                let reencryption =
                    query.send_and_print(Method::POST, &["accounts", "reencrypt"], message, reencryption_text)?;
                match reencryption.skipped.len() {
                    0 => Ok(()),
                    skipped_count => {
                        let tokens = human::count(skipped_count, "token");
                        Err(format!("{tokens} could not be decrypted; all others are encrypted again").into())
                    }
                }
            }
        }
    }
}

impl RegisterTokensArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        match &self.command {
            RegisterTokensCommand::List(query) => query.list_clusters(register_tokens_table),
            RegisterTokensCommand::Create { cluster, query } => {
                query.post_and_print(&["clusters", cluster, "register-token"], &(), issued_token_text)
            }
            RegisterTokensCommand::Revoke { cluster, query } => query.remove(&["clusters", cluster, "register-token"]),
        }
    }
}

impl PermissionsArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        match &self.command {
            PermissionsCommand::List(query) => query.list_clusters(permissions_table),
            PermissionsCommand::Grant {
                user,
                cluster,
                permission,
                query,
            } => {
                let body = PermissionEntry {
                    user: user.clone(),
                    permission: permission.clone(),
                };
                let text = |cluster: &ClusterEntry| permissions_table(std::slice::from_ref(cluster));
                query.post_and_print(&["clusters", cluster, "permissions"], &body, text)
            }
            PermissionsCommand::Revoke { user, cluster, query } => {
                query.remove(&["clusters", cluster, "permissions", user])
            }
        }
    }
}

impl Query {
    fn list_clusters(&self, table: fn(&[ClusterEntry]) -> String) -> crate::Result<()> {
        let text = |list: &ClusterList| table(&list.clusters);
        self.get_and_print(&["clusters"], &[], text).map(drop)
    }

    fn remove(&self, path: &[&str]) -> crate::Result<()> {
        let text = |removal: &Removed| format!("removed: {}\n", sanitize_line(&removal.removed));
        self.send_and_print(Method::DELETE, path, Message::default(), text)
            .map(drop)
    }
}
