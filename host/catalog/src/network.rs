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
    /// The longest time for which a server may send nothing. Default: 30 s.
    pub read_timeout: Duration,
    /// The maximum number of attempts, at least 1; attempts that make progress do not count. Default: 5.
    pub attempts: usize,
    /// The pause before the second attempt; each further pause is twice as long. Default: 0.5 s.
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

/// The progress of a fetch or a push. The variants are in the order in which they are reported. Nothing is reported for
/// a module that is already in the store.
#[derive(Clone, Debug)]
pub enum FetchProgress {
    /// The transfer starts. This is reported again after each [`Retrying`](Self::Retrying).
    Started {
        /// The reference of the module, as the operator wrote it.
        reference: String,
        /// The size in bytes, if the server sends it.
        total: Option<u64>,
    },
    /// More bytes were transferred. `bytes` includes the bytes of earlier attempts.
    Received { bytes: u64 },
    /// An attempt failed, and the next one starts after a pause.
    Retrying { after: Duration, error: Error },
    /// The transfer is complete, and its digest was checked.
    Finished,
}

/// A progress callback. It must not block, because the fetching task calls it.
pub type OnProgress<'a> = &'a (dyn Fn(FetchProgress) + Send + Sync);
