use std::{path::PathBuf, time::Duration};

use url::Url;

/// Where modules are kept, with what was made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// None: the user's cache directory.
    pub directory: Option<PathBuf>,
    /// The most that is kept, in bytes: what was not used for longest goes first. Default: 4 GiB.
    pub size_limit: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            directory: None,
            size_limit: 4 << 30,
        }
    }
}

/// Where the revisions that were live are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// None: the user's state directory.
    pub directory: Option<PathBuf>,
    /// How many revisions are kept. Default: 20.
    pub keep: usize,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            directory: None,
            keep: 20,
        }
    }
}

/// How modules are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulesConfig {
    /// PEM file: authorities to trust beside the system's.
    pub ca: Option<PathBuf>,
    /// None: as the environment says.
    pub proxy: Option<Url>,
    /// Docker's `config.json`, or its directory, with the credentials of registries. None: as the environment says.
    pub docker_config: Option<PathBuf>,
    /// Registries that are spoken to without TLS.
    pub insecure_registries: Vec<String>,
    /// The largest module, in bytes. Default: 64 MiB.
    pub size_limit: u64,
    /// How long a server may be silent. Default: 30 s.
    pub timeout: Duration,
    /// How often something is tried. Default: 5 times.
    pub attempts: usize,
}

impl Default for ModulesConfig {
    fn default() -> Self {
        Self {
            ca: None,
            proxy: None,
            docker_config: None,
            insecure_registries: Vec::new(),
            size_limit: 64 << 20,
            timeout: Duration::from_secs(30),
            attempts: 5,
        }
    }
}
