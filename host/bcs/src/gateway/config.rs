use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use admittance_net::{
    tls::ClientTls,
    upstream::{Server, UpstreamConfig},
};
use http::Uri;

use super::{PlainGroups, Statuses, TokenTable};
use crate::{ClusterId, zookeeper::NodePath};

/// The front of the drivers of one or many clusters.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The drivers of clusters, at least one of each. What is listed is not looked up.
    pub clusters: BTreeMap<ClusterId, Vec<Server>>,
    /// The node below which drivers of clusters register, in the ensemble of the services around. None: only the
    /// clusters above are known.
    pub discovery: Option<NodePath>,
    pub drivers: UpstreamConfig,
    /// Who may do what. None: everybody may do everything.
    pub tokens: Option<TokensConfig>,
    /// The API groups whose custom resources `Write` may change. Default: none.
    pub plain_groups: PlainGroups,
    /// Whether drivers see the tokens of clients. Default: they do not.
    pub forward_token: bool,
    /// Default: as bcs-api has them.
    pub statuses: Statuses,
}

impl GatewayConfig {
    /// Where bcs-mesos-driver registers, see [`discovery`](Self::discovery).
    pub const DEFAULT_PATH: &str = "/bcs/services/endpoints/mesosdriver";
}

/// Who knows what the holder of a token may do.
#[derive(Clone, Debug)]
pub enum TokensConfig {
    File(TokenTable),
    Endpoint(EndpointConfig),
}

/// A server that says whether the holder of a token may do something, as bcs-user-manager does at
/// `permissions/verify`.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Where it is asked. With no path, [`DEFAULT_PATH`](Self::DEFAULT_PATH).
    pub url: Uri,
    /// Whom to trust, and what to show.
    pub tls: ClientTls,
    /// The file with the gateway's own token, which is sent with each question; it is read for each. None: none is
    /// sent.
    pub token_file: Option<PathBuf>,
    /// For a question, connecting included. Default: 5 s.
    pub timeout: Duration,
    /// How long an answer holds. Default: 10 s.
    pub cache: Duration,
    /// The action that is asked for when definitions of hooks are to be changed; for anything else it is the
    /// request's method. Default: `hooks`.
    pub hooks_action: String,
}

impl EndpointConfig {
    pub const DEFAULT_PATH: &str = "/usermanager/v1/permissions/verify";
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    pub const DEFAULT_CACHE: Duration = Duration::from_secs(10);
    pub const DEFAULT_HOOKS_ACTION: &str = "hooks";
}
