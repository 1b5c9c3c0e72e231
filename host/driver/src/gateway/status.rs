use schemars::JsonSchema;
use serde::Serialize;

use super::{Gateway, tokens::Tokens};

/// How a gateway is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayStatus {
    /// The clusters that it knows.
    clusters: Vec<ClusterStatus>,
    /// The node below which clusters are found; null when all are listed.
    discovery: Option<String>,
    /// Why the clusters may be others than these.
    problem: Option<String>,
    /// Who knows the tokens; null when everybody may do everything.
    tokens: Option<TokensStatus>,
}

/// A cluster of a gateway.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ClusterStatus {
    /// Its id.
    cluster: String,
    /// Its drivers.
    drivers: Vec<DriverStatus>,
    /// Why requests for it fail, or its drivers may be others than these.
    problem: Option<String>,
}

/// A driver of a cluster.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct DriverStatus {
    /// Its URL.
    server: String,
    /// Whether it answered last.
    up: bool,
}

/// Who knows the tokens.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct TokensStatus {
    /// `file`, or the URL of the endpoint.
    source: String,
    /// How many there are, when that is known.
    count: Option<usize>,
    /// Why what the file holds now is not in use.
    problem: Option<String>,
}

impl Gateway {
    /// How it is.
    pub(crate) fn status(&self) -> GatewayStatus {
        let known = self.0.clusters.now();
        let clusters = known.clusters.values().map(|drivers| ClusterStatus {
            cluster: drivers.id.to_string(),
            drivers: drivers
                .health()
                .into_iter()
                .map(|health| DriverStatus {
                    server: health.server,
                    up: health.is_up,
                })
                .collect(),
            problem: drivers.problem(),
        });
        let problem = match (&known.lost, known.is_known) {
            (Some(lost), _) => Some(lost.clone()),
            (None, false) => Some("it is not known yet which clusters there are".to_owned()),
            (None, true) => None,
        };
        GatewayStatus {
            clusters: clusters.collect(),
            discovery: self.0.clusters.path().map(ToString::to_string),
            problem,
            tokens: self.0.tokens.as_ref().map(|tokens| match tokens {
                Tokens::File(table) => TokensStatus {
                    source: "file".to_owned(),
                    count: Some(table.len()),
                    problem: table.problem(),
                },
                Tokens::Endpoint(endpoint) => TokensStatus {
                    source: endpoint.url().to_string(),
                    count: None,
                    problem: None,
                },
            }),
        }
    }
}
