use std::{path::PathBuf, time::Duration};

use url::Url;

use crate::Error;

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkConfig {
    /// A PEM file of CAs that are trusted in addition to the CAs of the operating system.
    pub ca: Option<PathBuf>,
    /// The proxy for all requests, except those to hosts in `NO_PROXY`. Default: `HTTPS_PROXY`, `HTTP_PROXY` or
    /// `ALL_PROXY` of the environment.
    pub proxy: Option<Url>,
    /// The path of Docker's `config.json`, or of its directory. Default: `$DOCKER_CONFIG`, then `~/.docker`.
    pub docker_config: Option<PathBuf>,
    /// The registries that may be used without TLS, as `host` or `host:port`. Loopback addresses need not be listed.
    pub insecure_registries: Vec<String>,
    /// The maximum time for which a server may send nothing while a response is expected. Default: 30 s.
    pub read_timeout: Duration,
    /// The maximum number of attempts to fetch a module. Attempts that make progress do not count. Default: 5.
    pub attempts: usize,
    /// The pause before the second attempt to fetch a module; each further pause is twice as long. Default: 0.5 s.
    pub first_pause: Duration,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            ca: None,
            proxy: None,
            docker_config: None,
            insecure_registries: Vec::new(),
            read_timeout: Duration::from_secs(30),
            attempts: 5,
            first_pause: Duration::from_millis(500),
        }
    }
}

/// The progress of fetching or pushing a module. The variants are in the order in which they are reported. No progress
/// is reported for a module that is already in the store.
#[derive(Clone, Debug)]
pub enum FetchProgress {
    /// The transfer of the module starts. It starts again after each [`Retrying`](Self::Retrying).
    Started {
        /// The reference of the module, as the operator wrote it.
        reference: String,
        /// The size of the module in bytes, if the server sends it.
        total: Option<u64>,
    },
    /// More bytes of the module were transferred. `bytes` includes the bytes of earlier attempts.
    Received { bytes: u64 },
    /// An attempt to transfer the module failed, and the next attempt starts after a pause.
    Retrying { after: Duration, error: Error },
    /// The transfer of the module is complete, and its digest was checked.
    Finished,
}

/// A callback for the progress of a fetch or push. It must not block, because the fetching task calls it.
pub type OnProgress<'a> = &'a (dyn Fn(FetchProgress) + Send + Sync);
