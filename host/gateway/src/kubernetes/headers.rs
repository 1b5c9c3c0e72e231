//! The path and headers with which agents and other gateways open tunnels.

pub(crate) const TUNNEL_PATH: &str = "/bcsapi/v1/websocket/connect";

pub(crate) const MODULE_HEADER: &str = "bcs-api-tunnel-module";
pub(crate) const CLUSTER_ID_HEADER: &str = "bcs-api-tunnel-clusterid";
/// The header with the register token of an agent, or with a gateway's proof that it has the shared secret.
pub(crate) const TOKEN_HEADER: &str = "bcs-api-tunnel-token";
/// The header with the ID of a gateway that opens a tunnel to another gateway.
pub(crate) const GATEWAY_ID_HEADER: &str = "bcs-api-tunnel-id";
/// The header with a random string of the gateway that accepts a tunnel. The other gateway's proof must use it.
pub(crate) const CHALLENGE_HEADER: &str = "bcs-api-tunnel-challenge";
pub(crate) const PARAMS_HEADER: &str = "bcs-api-tunnel-params";
/// The names by which agents identify themselves in a header. The last agent of bcs-api sends the second name.
pub(crate) const AGENT_MODULES: [&str; 2] = ["kube-agent", "kubeagent"];
