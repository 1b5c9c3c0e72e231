//! The path and headers with which agents and other gateways open tunnels.

pub(crate) const PATH: &str = "/bcsapi/v1/websocket/connect";

pub(crate) const MODULE: &str = "bcs-api-tunnel-module";
pub(crate) const CLUSTER: &str = "bcs-api-tunnel-clusterid";
/// The register token of an agent, or a gateway's proof that it has the secret.
pub(crate) const TOKEN: &str = "bcs-api-tunnel-token";
/// The ID of a gateway that opens a tunnel to another.
pub(crate) const ID: &str = "bcs-api-tunnel-id";
/// A random string from the gateway that accepts a tunnel. The gateway that opens the tunnel must use it in its proof.
pub(crate) const CHALLENGE: &str = "bcs-api-tunnel-challenge";
pub(crate) const PARAMS: &str = "bcs-api-tunnel-params";
/// The names of modules that agents send. The last version of bcs-api's agent sends the second name.
pub(crate) const MODULES: [&str; 2] = ["kube-agent", "kubeagent"];
