//! How agents and other gateways open tunnels.

pub(crate) const PATH: &str = "/bcsapi/v1/websocket/connect";

pub(crate) const MODULE: &str = "bcs-api-tunnel-module";
pub(crate) const CLUSTER: &str = "bcs-api-tunnel-clusterid";
/// The register token; of a gateway, the proof that it knows the secret.
pub(crate) const TOKEN: &str = "bcs-api-tunnel-token";
/// The ID of a gateway that opens a tunnel to another.
pub(crate) const ID: &str = "bcs-api-tunnel-id";
/// What a gateway that accepts a tunnel has chosen at random, for the other one to prove that it knows the secret now.
pub(crate) const CHALLENGE: &str = "bcs-api-tunnel-challenge";
pub(crate) const PARAMS: &str = "bcs-api-tunnel-params";
/// What agents call themselves; the second is what the last one of bcs-api says.
pub(crate) const MODULES: [&str; 2] = ["kube-agent", "kubeagent"];
