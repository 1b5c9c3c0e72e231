use std::path::PathBuf;

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
