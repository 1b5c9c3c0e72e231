use super::{Gateway, tokens::Tokens};
use crate::api::{GatewayCluster, GatewayStatus, TokensStatus};

impl Gateway {
    /// The clusters and tokens as they are now.
    pub(crate) fn status(&self) -> GatewayStatus {
        let known = self.0.clusters.now();
        let clusters = known.clusters.values().map(|drivers| GatewayCluster {
            cluster: drivers.id.to_string(),
            drivers: drivers.health(),
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
