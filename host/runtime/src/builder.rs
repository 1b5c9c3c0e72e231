use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{Authorizer, Chain, NamespaceSource, NoAuthorizer, StaticNamespaces};
use admittance_catalog::{Catalog, CatalogConfig, Store};
use admittance_definitions::{ChainDefinition, DefinitionStore, OnBadDefinition};
use admittance_sandbox::SandboxConfig;
use admittance_watch::Fingerprint;
use admittance_webhook::{Resolve, WebhookClients};
use tokio::sync::{OnceCell, Semaphore};

use crate::{
    Error, Host, Progress,
    assembly::{Assembler, WORKERS},
    history::History,
    plugins::Plugins,
    source::Source,
    stores::{StoreLocation, Stores},
};

/// Puts a [`Host`] together: where its chains come from, and what they may use.
///
/// ```
/// # async fn example() -> Result<(), admittance::Error> {
/// let host = admittance::Host::builder().definitions("chains/").store("/var/cache/admittance").build().await?;
/// # Ok(()) }
/// ```
pub struct HostBuilder {
    locations: Vec<StoreLocation>,
    on_bad: OnBadDefinition,
    starts_without_modules: bool,
    read: Vec<ChainDefinition>,
    chains: Vec<Chain>,
    request_timeout: Duration,
    namespaces: Arc<dyn NamespaceSource>,
    authorizer: Arc<dyn Authorizer>,
    store: Option<PathBuf>,
    store_limit: Option<u64>,
    catalog: CatalogConfig,
    history: Option<PathBuf>,
    keep: usize,
    sandbox: SandboxConfig,
    resolve: Vec<(String, String)>,
    progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            locations: Vec::new(),
            on_bad: OnBadDefinition::default(),
            starts_without_modules: false,
            read: Vec::new(),
            chains: Vec::new(),
            request_timeout: Duration::from_secs(10),
            namespaces: Arc::new(StaticNamespaces::default()),
            authorizer: Arc::new(NoAuthorizer),
            store: None,
            store_limit: None,
            catalog: CatalogConfig::default(),
            history: None,
            keep: History::DEFAULT_KEEP,
            sandbox: SandboxConfig::default(),
            resolve: Vec::new(),
            progress: Arc::new(|_| ()),
        }
    }
}

impl HostBuilder {
    /// Take the definitions in this file, or in the files of this directory. May be called again.
    ///
    /// A definition that is applied and new is written to the first place that takes it, of all files,
    /// directories and [stores](Self::definition_store) in the order they are given here. A file takes none.
    pub fn definitions(mut self, path: impl Into<PathBuf>) -> Self {
        self.locations.push(StoreLocation::Path(path.into()));
        self
    }

    /// Take the definitions of this store too. May be called again.
    ///
    /// What it holds becomes part of the table, but for what [cannot be used](Self::on_bad_definition). While it is
    /// lost, the table stays as it is, and [`Host::status`] says why; a start waits five seconds for it, and
    /// serves what was live last after that.
    pub fn definition_store(mut self, store: impl DefinitionStore) -> Self {
        self.locations.push(StoreLocation::Store(Arc::new(store)));
        self
    }

    /// What becomes of a definition in a store that cannot be used. The others are served either way, and
    /// [`Host::status`] names it. Default: the version of it that was in force last stays in force.
    pub fn on_bad_definition(mut self, on_bad: OnBadDefinition) -> Self {
        self.on_bad = on_bad;
        self
    }

    /// Start although modules cannot be fetched now: everything else is served, and a stage without its module fails as
    /// `unreachable`, which its failure policy decides on. [`Host::follow`] fetches the modules, and [`Host::status`]
    /// names what is missing. Default: [`build`](Self::build) fails.
    pub fn start_without_modules(mut self) -> Self {
        self.starts_without_modules = true;
        self
    }

    /// Add a chain definition that was read or made elsewhere.
    pub fn definition(mut self, definition: ChainDefinition) -> Self {
        self.read.push(definition);
        self
    }

    /// Add a chain that the program itself made; it comes before those of definitions.
    pub fn chain(mut self, chain: Chain) -> Self {
        self.chains.push(chain);
        self
    }

    /// How long all chains together may take for one request. Default: 10 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Where the labels of namespaces come from. Default: every namespace has only its name.
    pub fn namespaces(mut self, namespaces: impl NamespaceSource) -> Self {
        self.namespaces = Arc::new(namespaces);
        self
    }

    /// Who answers what a user may do, for match conditions that ask. Default: nobody, which is an error
    /// that those conditions see.
    pub fn authorizer(mut self, authorizer: impl Authorizer) -> Self {
        self.authorizer = Arc::new(authorizer);
        self
    }

    /// Keep modules and their compiled forms in this directory, so that the next start needs neither
    /// network nor compiler. It is made when it is not there, and must be writable by this user alone;
    /// several programs may share it. Default: `store` in the directory of the [`history`](Self::history);
    /// without that nothing is kept.
    pub fn store(mut self, directory: impl AsRef<Path>) -> Self {
        self.store = Some(directory.as_ref().to_owned());
        self
    }

    /// Remove what was not used for longest from the store when it holds more than this, in bytes. What is
    /// live stays, and the modules of the history. Default: nothing is removed.
    pub fn store_limit(mut self, bytes: u64) -> Self {
        self.store_limit = Some(bytes);
        self
    }

    /// How modules are had from servers and registries, and which must be signed.
    pub fn catalog(mut self, config: CatalogConfig) -> Self {
        self.catalog = config;
        self
    }

    /// Keep the tables that were live in this directory, to roll back to them, and to start with the last
    /// one when what the definitions say cannot be made. One host has it at a time. Default: they are kept
    /// in memory.
    pub fn history(mut self, directory: impl AsRef<Path>) -> Self {
        self.history = Some(directory.as_ref().to_owned());
        self
    }

    /// How many of them are kept, at least 1. Default: 20.
    pub fn revisions(mut self, keep: usize) -> Self {
        self.keep = keep;
        self
    }

    /// How plugins run: how many at once, and their limits.
    pub fn sandbox(mut self, config: SandboxConfig) -> Self {
        self.sandbox = config;
        self
    }

    /// Connect to this address (`host:port`) for the webhook host of this name, in place of asking
    /// DNS. May be called again.
    pub fn resolve(mut self, host: impl Into<String>, address: impl Into<String>) -> Self {
        self.resolve.push((host.into(), address.into()));
        self
    }

    /// Call this while plugins are loaded.
    pub fn on_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Arc::new(progress);
        self
    }

    /// Read the definitions, load what they name, and go live.
    ///
    /// # Errors
    ///
    /// When anything is wrong: with every mistake of every file, or every stage that cannot be made.
    pub async fn build(self) -> Result<Host, Error> {
        let history = match &self.history {
            Some(directory) => History::open(directory, self.keep)?,
            None => History::in_memory(self.keep),
        };
        let own_store = || self.history.as_ref().map(|directory| directory.join("store"));
        let mut catalog = self.catalog;
        if let Some(directory) = self.store.or_else(own_store) {
            catalog.store = Some(Store::open(directory)?);
        }
        let resolve = Resolve::parse(self.resolve).map_err(Error::Resolve)?;
        let assembler = Arc::new(Assembler {
            sandbox: self.sandbox,
            catalog: Catalog::new(catalog)?,
            webhooks: WebhookClients::new(resolve),
            progress: self.progress,
            started: OnceCell::new(),
            plugins: Plugins::default(),
            trials: Default::default(),
            statistics: Default::default(),
            fetchers: Semaphore::new(WORKERS),
            workers: Semaphore::new(WORKERS),
            loaders: Semaphore::new(WORKERS),
        });
        let source = Source {
            stores: Arc::new(Stores::new(self.locations)),
            given: self.read,
            chains: self.chains.into_iter().map(Arc::new).collect(),
            namespaces: self.namespaces,
            authorizer: self.authorizer,
            request_timeout: self.request_timeout,
            assembler,
            store_limit: self.store_limit,
            seen: Fingerprint::default(),
            refreshed: Vec::new(),
            on_bad: self.on_bad,
            starts_without_modules: self.starts_without_modules,
            in_force: Arc::default(),
            live_modules: Arc::default(),
        };
        Host::start(source, history).await
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("definitions", &self.locations)
            .field("chains", &self.chains)
            .field("request_timeout", &self.request_timeout)
            .field("store", &self.store)
            .field("history", &self.history)
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}
