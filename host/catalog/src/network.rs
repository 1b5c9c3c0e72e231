use std::{path::PathBuf, time::Duration};

use url::Url;

use crate::Error;

/// The configuration of connections to servers and registries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkConfig {
    /// A PEM file of CAs that are trusted in addition to the operating system's.
    pub ca: Option<PathBuf>,
    /// The proxy for all requests except those that `NO_PROXY` names; by default `HTTPS_PROXY`, `HTTP_PROXY`,
    /// `ALL_PROXY` and `NO_PROXY` of the environment are used.
    pub proxy: Option<Url>,
    /// Docker's `config.json`, or its directory. Default: `$DOCKER_CONFIG`, then `~/.docker`.
    pub docker_config: Option<PathBuf>,
    /// Registries (host, and port if one is written) that may be used without TLS, in addition to loopback addresses.
    pub insecure_registries: Vec<String>,
    /// The time that a server may be silent. Default: 30 seconds.
    pub read_timeout: Duration,
    /// The number of attempts, at least 1. Attempts of a download that makes progress are not counted. Default: 5.
    pub attempts: usize,
    /// The pause before the second attempt, which doubles with each further one. Default: half a second.
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

/// Progress of a fetch or push, in this order; nothing is reported for what is already in the store.
#[derive(Clone, Debug)]
pub enum FetchProgress {
    /// The transfer starts, or starts again after [`Retrying`](Self::Retrying).
    Started {
        /// The reference of the module, as the operator wrote it.
        reference: String,
        /// The size in bytes, if the server sends it.
        total: Option<u64>,
    },
    /// More bytes were received. The number includes the bytes of earlier attempts.
    Received { bytes: u64 },
    /// An attempt failed and is retried after a pause.
    Retrying { after: Duration, error: Error },
    /// The transfer is complete, and the digest was checked.
    Finished,
}

/// A progress callback. It is called from the task that fetches, so it must not block.
pub type OnProgress<'a> = &'a (dyn Fn(FetchProgress) + Send + Sync);
