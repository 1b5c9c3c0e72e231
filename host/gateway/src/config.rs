use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use admittance_bcs::{ClusterId, RegistrationConfig, zookeeper::NodePath};
use admittance_net::{
    tls::ClientTls,
    upstream::{UpstreamConfig, UpstreamServer},
};
use http::Uri;

use super::{PlainGroups, Statuses, TokenTable};
use crate::{accounts::AccountsConfig, kubernetes::PeersConfig, roles::RolesConfig};

/// The gateway to the drivers of one or many clusters.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The clusters that are configured here instead of being discovered. Each of them has at least one driver.
    pub clusters: BTreeMap<ClusterId, Vec<UpstreamServer>>,
    /// The ZooKeeper node below which drivers register. Without one, only listed clusters are known.
    pub discovery: Option<NodePath>,
    pub drivers: UpstreamConfig,
    /// Whether requests for other services of BCS are forwarded to their registered servers. Default: they are not.
    pub services: bool,
    /// The source of the tokens of clients and their permissions. Without one, every request is allowed.
    pub tokens: Option<TokensConfig>,
    /// The users and clusters of the management API. Without them, the API is not served.
    pub accounts: Option<Box<AccountsConfig>>,
    /// The roles that users have in Kubernetes clusters. This setting requires accounts. Default: no roles are written.
    pub roles: Option<RolesConfig>,
    pub registration: Option<RegistrationConfig>,
    /// The settings by which this gateway finds and trusts other gateways; they require `registration`. Without them,
    /// each gateway uses only the tunnels that agents have opened to it.
    pub peers: Option<PeersConfig>,
    /// The API groups whose custom resources users with the permission `Write` may change. Default: none.
    pub plain_groups: PlainGroups,
    /// Whether the gateway forwards the tokens of clients to drivers. Default: it does not.
    pub forward_token: bool,
    /// The HTTP statuses of the gateway's replies. Default: the statuses that bcs-api uses.
    pub statuses: Statuses,
}

impl GatewayConfig {
    /// The node at which bcs-mesos-driver registers, see [`discovery`](Self::discovery).
    pub const DEFAULT_PATH: &str = "/bcs/services/endpoints/mesosdriver";
}

#[derive(Clone, Debug)]
pub enum TokensConfig {
    File(TokenTable),
    Endpoint(Box<EndpointConfig>),
    Accounts,
}

/// A server at which the gateway checks tokens and permissions, such as the path `permissions/verify` of
/// bcs-user-manager.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The URL of the server. Without a path, it gets [`DEFAULT_PATH`](Self::DEFAULT_PATH).
    pub url: Uri,
    pub tls: ClientTls,
    /// The file with the token that the gateway sends to the server. It is read for each request. Default: no token.
    pub token_file: Option<PathBuf>,
    /// The timeout of a request to the server, including the time to connect. Default: 5 s.
    pub timeout: Duration,
    /// The time for which an answer of the server is cached. Default: 10 s.
    pub cache: Duration,
    /// The action that the gateway asks about for requests that change hook definitions. Default: `hooks`. For other
    /// requests, the action is the method.
    pub hooks_action: String,
}

impl EndpointConfig {
    pub const DEFAULT_PATH: &str = "/usermanager/v1/permissions/verify";
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    pub const DEFAULT_CACHE: Duration = Duration::from_secs(10);
    pub const DEFAULT_HOOKS_ACTION: &str = "hooks";
}
