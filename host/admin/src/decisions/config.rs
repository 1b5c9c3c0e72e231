use std::{path::PathBuf, time::Duration};

use admittance_definitions::Share;
use url::Url;

/// The configuration of the sinks to which decisions are written, besides the log in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SinksConfig {
    /// The share to write of the decisions that allow a request unchanged; `None` to write none of them. Decisions that
    /// refuse or change a request are always written.
    pub share: Option<Share>,
    /// Whether to write the objects of requests together with the decisions.
    pub objects: bool,
    pub sqlite: Option<SqliteConfig>,
    pub ndjson: Option<NdjsonTarget>,
    pub http: Option<HttpConfig>,
    /// Whether to create an Event in the cluster for each denied request.
    pub events: bool,
}

impl Default for SinksConfig {
    fn default() -> Self {
        Self {
            share: Some(Share::WHOLE),
            objects: false,
            sqlite: None,
            ndjson: None,
            http: None,
            events: false,
        }
    }
}

impl SinksConfig {
    pub fn is_empty(&self) -> bool {
        self.sqlite.is_none() && self.ndjson.is_none() && self.http.is_none() && !self.events
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteConfig {
    pub file: PathBuf,
    /// The time after which decisions are deleted. Default: 30 days.
    pub keep: Duration,
    /// The size of the database above which the oldest decisions are deleted, in bytes. Default: 1 GiB.
    pub size_limit: u64,
}

impl SqliteConfig {
    pub const DEFAULT_KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
    pub const DEFAULT_SIZE_LIMIT: u64 = 1 << 30;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NdjsonTarget {
    StandardOutput,
    /// A file to which decisions are appended. It is reopened at SIGHUP, and after it was renamed or removed.
    File(PathBuf),
}

/// A server that receives decisions as JSON lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    pub url: Url,
    /// The file with the bearer token, which is read again for each request.
    pub token_file: Option<PathBuf>,
    /// The file with certificate authorities that are trusted for this server, besides the operating system's.
    pub ca: Option<PathBuf>,
}
