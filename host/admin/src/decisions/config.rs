use std::{path::PathBuf, time::Duration};

use admittance_definitions::Share;
use url::Url;

/// The sinks to which decisions are written, besides memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SinksConfig {
    /// The written share of the requests that were allowed unchanged; `None` for none. All other requests are always
    /// written.
    pub share: Option<Share>,
    /// Whether the objects of requests are written too.
    pub objects: bool,
    pub sqlite: Option<SqliteConfig>,
    pub ndjson: Option<NdjsonPlace>,
    pub http: Option<HttpConfig>,
    /// Whether denied requests are written as events of the cluster.
    pub events: bool,
}

impl Default for SinksConfig {
    fn default() -> Self {
        Self {
            share: Some(Share::ALL),
            objects: false,
            sqlite: None,
            ndjson: None,
            http: None,
            events: false,
        }
    }
}

impl SinksConfig {
    /// Returns whether no sink is configured.
    pub fn is_empty(&self) -> bool {
        self.sqlite.is_none() && self.ndjson.is_none() && self.http.is_none() && !self.events
    }
}

/// A database of decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteConfig {
    pub file: PathBuf,
    /// The time for which decisions are kept. Default: 30 days.
    pub keep: Duration,
    /// The size of the database above which the oldest decisions are removed, in bytes. Default: 1 GiB.
    pub size_limit: u64,
}

impl SqliteConfig {
    pub const DEFAULT_KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
    pub const DEFAULT_SIZE_LIMIT: u64 = 1 << 30;
}

/// The place for lines of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NdjsonPlace {
    StandardOutput,
    /// The file is appended to, and opened again when it was renamed or removed, and at SIGHUP.
    File(PathBuf),
}

/// A server that takes lines of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    pub url: Url,
    /// The file with the token to send, which is read for each request.
    pub token_file: Option<PathBuf>,
    /// The authorities to trust for the server, in addition to the system's.
    pub ca: Option<PathBuf>,
}
