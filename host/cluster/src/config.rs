//! Connection settings and credentials for the API server.

use std::{env, fmt, io, path::PathBuf};

use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{connection::Connection, request_error::causes};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The source of the address and the credentials. Default: [`ClusterSource::Infer`].
    pub source: ClusterSource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterSource {
    /// The service account of the Pod in which this program runs. Its token and its CA are read again every minute.
    InCluster,
    Kubeconfig {
        /// The path of the kubeconfig. Default: the files of `KUBECONFIG`, else `.kube/config` in the home directory.
        path: Option<PathBuf>,
        /// The name of the context in the kubeconfig. Default: the current context of the kubeconfig.
        context: Option<String>,
    },
    /// The kubeconfig that `kubectl` would use. If there is none, the service account of the Pod.
    #[default]
    Infer,
}

/// The reason why a connection cannot be configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("cannot read the kubeconfig `{path}`: {source}; correct the path, or let this program read the file")]
    Read { path: PathBuf, source: io::Error },
    #[error("{location} is not a valid kubeconfig: {reason}")]
    Parse { location: String, reason: String },
    #[error(
        "{location} has no current context; name one of its contexts ({context_names}), or set one with \
         `kubectl config use-context`"
    )]
    ContextMissing { location: String, context_names: Names },
    #[error("{location} has no context `{context}`; it has: {context_names}")]
    ContextUnknown {
        location: String,
        context: String,
        context_names: Names,
    },
    #[error("{location} has no cluster `{cluster}`, which its context names; it has: {cluster_names}")]
    ClusterUnknown {
        location: String,
        cluster: String,
        cluster_names: Names,
    },
    #[error("{location} has a proxy-url, which is not supported: remove proxy-url")]
    Proxy { location: String },
    #[error("{location} cannot be used: {reason}")]
    Unusable { location: String, reason: String },
    #[error(
        "no service account was found: {reason}; run in a pod whose service account token is mounted, or name a \
         kubeconfig"
    )]
    NotInCluster { reason: String },
    #[error(
        "neither a kubeconfig nor a service account was found: set KUBECONFIG or name a kubeconfig, or run in a \
         pod"
    )]
    NothingFound,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&self.0.join(", "))
    }
}

const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
const SERVICE_ACCOUNT: &str = "the service account of this pod";

impl ClusterConfig {
    pub(crate) async fn connect(&self) -> Result<Connection, ConfigError> {
        // rustls panics if the program contains two crypto providers and has installed neither as the default.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::CryptoProvider::install_default((*admittance_net::tls::provider()).clone());
        }
        let (location, config) = match &self.source {
            ClusterSource::InCluster => in_cluster_config()?,
            ClusterSource::Kubeconfig { path, context } => {
                let files = match path {
                    Some(path) => vec![path.clone()],
                    None => kubeconfig_files(),
                };
                read_kubeconfigs(files, context.as_deref()).await?
            }
            ClusterSource::Infer => infer_config().await?,
        };
        Connection::new(&config).map_err(|error| ConfigError::Unusable {
            reason: causes(&error),
            location,
        })
    }
}

async fn infer_config() -> Result<(String, Config), ConfigError> {
    let files = kubeconfig_files();
    if env::var_os(KUBECONFIG).is_some_and(|files| !files.is_empty()) || files.iter().any(|file| file.exists()) {
        return read_kubeconfigs(files, None).await;
    }
    if env::var_os(SERVICE_HOST).is_some() {
        return in_cluster_config();
    }
    Err(ConfigError::NothingFound)
}

const KUBECONFIG: &str = "KUBECONFIG";

fn kubeconfig_files() -> Vec<PathBuf> {
    let environment_files: Vec<_> = env::var_os(KUBECONFIG)
        .map(|files| {
            env::split_paths(&files)
                .filter(|file| !file.as_os_str().is_empty())
                .collect()
        })
        .unwrap_or_default();
    if !environment_files.is_empty() {
        return environment_files;
    }
    env::home_dir()
        .map(|home| home.join(".kube").join("config"))
        .into_iter()
        .collect()
}

fn in_cluster_config() -> Result<(String, Config), ConfigError> {
    let config = Config::incluster().map_err(|error| match error {
        InClusterError::ReadEnvironmentVariable(_) => ConfigError::NotInCluster {
            reason: format!("{SERVICE_HOST} and KUBERNETES_SERVICE_PORT are not set"),
        },
        other => ConfigError::NotInCluster { reason: causes(&other) },
    })?;
    Ok((SERVICE_ACCOUNT.to_owned(), config))
}

async fn read_kubeconfigs(files: Vec<PathBuf>, context: Option<&str>) -> Result<(String, Config), ConfigError> {
    if files.is_empty() {
        return Err(ConfigError::NothingFound);
    }
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let location = format!("the kubeconfig `{}`", names.join("`, `"));
    let mut kubeconfig = Kubeconfig::default();
    for file in files {
        if let Err(source) = admittance_watch::file::open(&file) {
            return Err(ConfigError::Read { path: file, source });
        }
        let part = Kubeconfig::read_from(&file).map_err(|error| read_error(file, error))?;
        kubeconfig = kubeconfig.merge(part).map_err(|error| ConfigError::Parse {
            location: location.clone(),
            reason: causes(&error),
        })?;
    }
    check_context(&kubeconfig, &location, context)?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| ConfigError::Unusable {
            location: location.clone(),
            reason: causes(&error),
        })?;
    // kube takes the proxy from `HTTPS_PROXY`. It is not used here, because operators set that variable for requests
    // that leave the cluster.
    config.proxy_url = None;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        let reason = "its certificate-authority holds no certificate; put the PEM of the API server's CA there";
        return Err(ConfigError::Unusable {
            location,
            reason: reason.to_owned(),
        });
    }
    if config.accept_invalid_certs {
        tracing::warn!("{location} disables verification of the API server's certificate");
    }
    Ok((location, config))
}

fn read_error(path: PathBuf, error: KubeconfigError) -> ConfigError {
    let reason = match error {
        KubeconfigError::ReadConfig(source, path) => return ConfigError::Read { path, source },
        // The parser's own message quotes lines of the kubeconfig, which may contain tokens and keys. So only the place
        // of the mistake is reported.
        KubeconfigError::Parse(error) => match error.location() {
            Some(position) => format!(
                "line {}, column {}: invalid YAML, or an unexpected value",
                position.line(),
                position.column()
            ),
            None => "invalid YAML, or an unexpected value".to_owned(),
        },
        other => causes(&other),
    };
    ConfigError::Parse {
        location: format!("`{}`", path.display()),
        reason,
    }
}

fn check_context(kubeconfig: &Kubeconfig, location: &str, context: Option<&str>) -> Result<(), ConfigError> {
    let owned_location = || location.to_owned();
    let contexts = || Names(kubeconfig.contexts.iter().map(|entry| entry.name.clone()).collect());
    let current = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let Some(name) = context.or(current) else {
        return Err(ConfigError::ContextMissing {
            location: owned_location(),
            context_names: contexts(),
        });
    };
    let context_entry = kubeconfig.contexts.iter().find(|candidate| candidate.name == name);
    let Some(context) = context_entry.and_then(|matching| matching.context.as_ref()) else {
        return Err(ConfigError::ContextUnknown {
            location: owned_location(),
            context: name.to_owned(),
            context_names: contexts(),
        });
    };
    let cluster_entry = kubeconfig
        .clusters
        .iter()
        .find(|candidate| candidate.name == context.cluster);
    let Some(cluster) = cluster_entry.and_then(|matching| matching.cluster.as_ref()) else {
        return Err(ConfigError::ClusterUnknown {
            location: owned_location(),
            cluster: context.cluster.clone(),
            cluster_names: Names(
                kubeconfig
                    .clusters
                    .iter()
                    .map(|known_cluster| known_cluster.name.clone())
                    .collect(),
            ),
        });
    };
    if cluster.proxy_url.as_ref().is_some_and(|proxy| !proxy.is_empty()) {
        return Err(ConfigError::Proxy {
            location: owned_location(),
        });
    }
    Ok(())
}
