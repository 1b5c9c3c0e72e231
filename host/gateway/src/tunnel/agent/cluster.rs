//! The cluster to which an agent belongs: its credentials, and the addresses of its API servers.

use std::{
    io,
    path::{Path, PathBuf},
};

use admittance_net::{
    causes,
    tls::{self, ClientTls, Trust},
    upstream::new_connector,
};
use admittance_watch::file;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Uri, header::AUTHORIZATION};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    super::connect::{TIMEOUT, excerpt, uri_at_path},
    AgentError,
};
use crate::yaml;

/// The largest file with credentials that an agent reads, in bytes. Usual tokens and CAs have a few kilobytes.
const LARGEST_FILE: u64 = 1 << 20;
const LARGEST_REPLY: usize = 1 << 20;
/// The path of the endpoints with the addresses of all API servers. The API servers keep these endpoints up to date.
const ENDPOINTS_PATH: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
/// The name that the port of the API servers has in the endpoints of the Service `default/kubernetes`.
const PORT_NAME: &str = "https";
/// The name for which the certificate of every API server is valid.
const SERVER_NAME: &str = "kubernetes";

/// The source of the credentials that an agent reports.
#[derive(Clone, Debug)]
pub enum AgentCredentials {
    /// The file with the token of a service account, and the file with the CA of the API server. Kubernetes renews the
    /// token from time to time, so the agent reads the files regularly.
    ServiceAccount { token_file: PathBuf, ca_file: PathBuf },
    /// The current context of this kubeconfig. The user of the context must have a token.
    Kubeconfig(PathBuf),
}

/// The source of the API servers' addresses that an agent reports.
#[derive(Clone, Debug)]
pub enum ApiServers {
    /// The addresses are listed in the configuration of the agent. Each has the form `https://{host}:{port}`.
    Listed(Vec<Uri>),
    /// The endpoints of the Service `default/kubernetes`. They are read from this API server, or without one, from the
    /// API server in the kubeconfig.
    Endpoints(Option<Uri>),
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) token: String,
    pub(super) ca: String,
    /// The URL of the API server in the kubeconfig; `None` if the credentials do not come from a kubeconfig.
    server: Option<Uri>,
}

impl AgentCredentials {
    pub(super) async fn read(&self) -> Result<Credentials, AgentError> {
        match self {
            Self::ServiceAccount {
                token_file: token,
                ca_file: ca,
            } => Ok(Credentials {
                token: read_file(token.clone()).await?.trim().to_owned(),
                ca: read_file(ca.clone()).await?,
                server: None,
            }),
            Self::Kubeconfig(path) => {
                let text = read_file(path.clone()).await?;
                credentials_of_kubeconfig(&text, path.parent().unwrap_or(Path::new(".")))
                    .await
                    .map_err(|error| match error {
                        KubeconfigError::File(error) => error,
                        KubeconfigError::Content(reason) => AgentError::File {
                            file: path.clone(),
                            reason,
                        },
                    })
            }
        }
    }
}

impl ApiServers {
    /// Returns the addresses of the API servers. Configured addresses keep their order, and other addresses are sorted.
    pub(super) async fn list(&self, credentials: &Credentials) -> Result<Vec<Uri>, AgentError> {
        match self {
            Self::Listed(servers) => Ok(servers.clone()),
            Self::Endpoints(_) => {
                let server = self.fallback_servers(credentials).pop();
                let server_addresses = match server {
                    Some(server) => request_servers(&server, credentials).await,
                    None => Err("the kubeconfig has no server".to_owned()),
                };
                server_addresses.map_err(AgentError::Endpoints)
            }
        }
    }

    pub(super) fn fallback_servers(&self, credentials: &Credentials) -> Vec<Uri> {
        match self {
            Self::Listed(servers) => servers.clone(),
            Self::Endpoints(server) => {
                let server = server.as_ref().or(credentials.server.as_ref());
                server.cloned().into_iter().collect()
            }
        }
    }
}

async fn read_file(file: PathBuf) -> Result<String, AgentError> {
    let path = file.clone();
    let text = tokio::task::spawn_blocking(move || file::read_to_string(&path, LARGEST_FILE)).await;
    text.unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|error| AgentError::File {
            file,
            reason: error.to_string(),
        })
}

#[derive(Deserialize)]
struct ApiServerEndpoints {
    #[serde(default)]
    subsets: Vec<ApiServerSubset>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiServerSubset {
    addresses: Vec<EndpointAddress>,
    ports: Vec<EndpointPort>,
}

#[derive(Deserialize)]
struct EndpointAddress {
    ip: std::net::IpAddr,
}

#[derive(Deserialize)]
struct EndpointPort {
    name: Option<String>,
    port: u16,
}

async fn request_servers(server: &Uri, credentials: &Credentials) -> Result<Vec<Uri>, String> {
    let certificates = tls::certificates_in(credentials.ca.as_bytes()).map_err(|error| format!("the CA: {error}"))?;
    let client = tls::client_config(Trust::Only(&certificates), None).map_err(|error| format!("the CA: {error}"))?;
    let tls = ClientTls::from(client)
        .with_server_name(SERVER_NAME)
        .map_err(|error| error.to_string())?;
    let client = Client::builder(TokioExecutor::new()).build(new_connector(tls, TIMEOUT));
    let request = Request::get(uri_at_path(server, ENDPOINTS_PATH).map_err(|error| error.to_string())?)
        .header(AUTHORIZATION, format!("Bearer {}", credentials.token))
        .body(Empty::<Bytes>::new())
        .map_err(|_| "the token cannot be sent in a header".to_owned())?;
    let exchange = async {
        let outcome = client.request(request).await;
        let reply = outcome.map_err(|error| causes::chain(&error))?;
        let status = reply.status();
        let body_outcome = Limited::new(reply.into_body(), LARGEST_REPLY).collect().await;
        let body = body_outcome.map_err(|error| causes::chain(&*error))?.to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(format!("{server} replied {status}: {}", excerpt(&body)))
        }
    };
    let body = tokio::time::timeout(TIMEOUT, exchange)
        .await
        .map_err(|_| format!("{server} did not reply within {TIMEOUT:?}"))??;
    let api_endpoints: ApiServerEndpoints = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    servers_of_endpoints(&api_endpoints)
}

fn servers_of_endpoints(api_endpoints: &ApiServerEndpoints) -> Result<Vec<Uri>, String> {
    let mut addresses = Vec::new();
    for subset in &api_endpoints.subsets {
        let is_https = |port: &&EndpointPort| port.name.as_deref() == Some(PORT_NAME);
        let Some(port) = subset.ports.iter().find(is_https) else {
            continue;
        };
        addresses.extend(subset.addresses.iter().map(|address| {
            let address = std::net::SocketAddr::new(address.ip, port.port);
            format!("https://{address}")
        }));
    }
    addresses.sort();
    addresses.dedup();
    let servers: Vec<Uri> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
    if servers.is_empty() {
        Err(format!("no address has a port with the name {PORT_NAME}"))
    } else {
        Ok(servers)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: String,
    #[serde(default)]
    contexts: Vec<NamedEntry>,
    #[serde(default)]
    clusters: Vec<NamedEntry>,
    #[serde(default)]
    users: Vec<NamedEntry>,
}

#[derive(Deserialize)]
struct NamedEntry {
    name: String,
    #[serde(flatten)]
    content: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ContextCluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct ContextUser {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
}

enum KubeconfigError {
    Content(String),
    File(AgentError),
}

impl From<AgentError> for KubeconfigError {
    fn from(error: AgentError) -> Self {
        Self::File(error)
    }
}

fn entry<T: DeserializeOwned>(list: &[NamedEntry], key: &str, name: &str) -> Result<T, KubeconfigError> {
    let named_entry = list.iter().find(|entry| entry.name == name);
    let content = named_entry
        .and_then(|entry| entry.content.get(key))
        .ok_or_else(|| KubeconfigError::Content(format!("there is no {key} {name:?}")))?;
    T::deserialize(content).map_err(|error| KubeconfigError::Content(format!("{key} {name:?}: {error}")))
}

/// Reads the current context of a kubeconfig. Relative paths start at the directory of the file.
async fn credentials_of_kubeconfig(text: &str, directory: &Path) -> Result<Credentials, KubeconfigError> {
    let invalid = |reason: String| KubeconfigError::Content(format!("not a valid kubeconfig: {reason}"));
    let json =
        yaml::to_json(text.as_bytes(), text.len().saturating_mul(4)).map_err(|error| invalid(error.to_string()))?;
    let config: Kubeconfig = serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
    let context: Context = entry(&config.contexts, "context", &config.current_context)?;
    let cluster: ContextCluster = entry(&config.clusters, "cluster", &context.cluster)?;
    let user: ContextUser = entry(&config.users, "user", &context.user)?;
    let token = match (user.token_file, user.token) {
        (Some(file), _) => read_file(directory.join(file)).await?,
        (None, Some(token)) => token,
        (None, None) => {
            return Err(KubeconfigError::Content(format!(
                "user {:?} has no token, which is what a gateway needs: use the token of a service account",
                context.user
            )));
        }
    };
    let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
        (Some(data), _) => {
            let pem = BASE64_STANDARD.decode(data).ok();
            let decoded = pem.and_then(|bytes| String::from_utf8(bytes).ok());
            decoded.ok_or_else(|| invalid("certificate-authority-data is not base64 of PEM".to_owned()))?
        }
        (None, Some(file)) => read_file(directory.join(file)).await?,
        (None, None) => {
            return Err(KubeconfigError::Content(format!(
                "cluster {:?} has no certificate-authority, by which a gateway verifies the API server",
                context.cluster
            )));
        }
    };
    let server = cluster
        .server
        .parse()
        .map_err(|error| invalid(format!("server: {error}")))?;
    Ok(Credentials {
        token: token.trim().to_owned(),
        ca,
        server: Some(server),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, mkfifoat};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn only_regular_files_are_read_as_credentials() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("text"), " text\n").unwrap();
        fs::write(path("bytes"), b"\xff").unwrap();
        // A FIFO without a writer: to open it for reading would block.
        mkfifoat(CWD, path("fifo"), Mode::RUSR).unwrap();
        for (token, ca, expected) in [
            ("text", "text", None),
            ("absent", "text", Some("No such file")),
            ("fifo", "text", Some("it is a FIFO, not a regular file")),
            ("text", "fifo", Some("it is a FIFO, not a regular file")),
            ("text", "bytes", Some("it is not UTF-8 text")),
        ] {
            let credentials = AgentCredentials::ServiceAccount {
                token_file: path(token),
                ca_file: path(ca),
            };
            match (credentials.read().await, expected) {
                (Ok(read_credentials), None) => {
                    assert_eq!((&*read_credentials.token, &*read_credentials.ca), ("text", " text\n"))
                }
                (Err(error), Some(expected)) => {
                    let error = error.to_string();
                    assert!(error.contains(expected), "{token} {ca}: {error}");
                }
                (outcome, _) => panic!("{token} {ca}: {:?}", outcome.is_ok()),
            }
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_needs_a_token_and_a_ca() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), "PEM").unwrap();
        let file = directory.path().join("config");
        let text = |cluster: &str, user: &str| {
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 contexts: [{{ name: c, context: {{ cluster: k, user: u }} }}]\n\
                 clusters: [{{ name: k, cluster: {{ server: \"https://10.0.0.1:6443\"{cluster} }} }}]\n\
                 users: [{{ name: u, user: {{ {user} }} }}]\n"
            )
        };
        let ca = ", certificate-authority: ca.pem";
        for (cluster, user, expected) in [
            (ca, "token: abc", Ok("PEM")),
            (", certificate-authority-data: WFla", "token: abc", Ok("XYZ")),
            (ca, "client-certificate-data: x", Err("has no token")),
            ("", "token: abc", Err("has no certificate-authority")),
            (", certificate-authority-data: \"*\"", "token: abc", Err("base64")),
            (ca, "tokenFile: none", Err("none: No such file")),
        ] {
            fs::write(&file, text(cluster, user)).unwrap();
            let outcome = AgentCredentials::Kubeconfig(file.clone()).read().await;
            match (outcome, expected) {
                (Ok(read_credentials), Ok(ca)) => {
                    assert_eq!((&*read_credentials.token, &*read_credentials.ca), ("abc", ca));
                    let servers = ApiServers::Endpoints(None).fallback_servers(&read_credentials);
                    assert_eq!(servers, ["https://10.0.0.1:6443"]);
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (outcome, expected) => panic!("{cluster} {user}: {} {expected:?}", outcome.is_ok()),
            }
        }
    }

    #[test]
    fn only_endpoints_with_an_https_port_are_addresses_of_api_servers() {
        let addresses_of = |subsets: serde_json::Value| {
            servers_of_endpoints(&serde_json::from_value(json!({"subsets": subsets})).unwrap())
        };
        let https = json!([{"name": "https", "port": 6443}]);
        let servers = addresses_of(json!([
            {"addresses": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.3"}], "ports": https},
            {"addresses": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}], "ports": https},
            {"addresses": [{"ip": "10.0.0.4"}], "ports": [{"name": "http", "port": 80}]},
        ]));
        assert_eq!(
            servers.unwrap(),
            [
                "https://10.0.0.1:6443",
                "https://10.0.0.2:6443",
                "https://[fd00::1]:6443"
            ]
        );
        assert!(addresses_of(json!([])).is_err());
    }
}
