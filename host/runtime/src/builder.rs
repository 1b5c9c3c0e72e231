use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_admission::{Authorizer, Chain, NamespaceSource, NoAuthorizer, Reach, StaticNamespaces};
use admittance_catalog::{Catalog, CatalogConfig, Store};
use admittance_definitions::{
    ChainDefinition, DefinitionStore, DocumentForm, DocumentForms, FileStore, OnBadDefinition,
};
use admittance_sandbox::SandboxConfig;
use admittance_watch::Fingerprint;
use admittance_webhook::{AddressOverrides, WebhookClients};
use tokio::sync::{OnceCell, Semaphore};

use crate::{
    DecisionsConfig, Error, Host, NamespacedChains, Progress,
    changes::smallest_first::SmallestFirstLimit,
    changes::stores::Stores,
    decisions::DecisionLog,
    decisions::observer::Observer,
    history::History,
    live::assembly::{Assembler, WORKERS},
    live::plugins::Plugins,
    live::source::TableSource,
    rollout::candidate::Trials,
    status::traffic::Traffic,
};

/// Builds a [`Host`] from the sources of its chains and the resources that the chains may use.
///
/// ```
/// # async fn example() -> Result<(), admittance::Error> {
/// let host = admittance::Host::builder().definitions("chains/").store("/var/cache/admittance").build().await?;
/// # Ok(()) }
/// ```
#[derive(derive_more::Debug)]
#[debug("HostBuilder {{ definitions: {definition_paths:?}, stores: {stores:?}, chains: {native_chains:?}, .. }}")]
pub struct HostBuilder {
    definition_paths: Vec<PathBuf>,
    /// The number of stores that were added before the first directory; `None` if there is no directory. All
    /// directories together count as one store, which comes after these stores in the order. A new definition is
    /// written to the first store in the order that accepts it.
    directory_store_index: Option<usize>,
    stores: Vec<Arc<dyn DefinitionStore>>,
    on_bad_definition: OnBadDefinition,
    namespaced_chains: NamespacedChains,
    reach: Reach,
    starts_without_modules: bool,
    forms: DocumentForms,
    chain_definitions: Vec<ChainDefinition>,
    native_chains: Vec<Chain>,
    request_timeout: Duration,
    namespaces: Arc<dyn NamespaceSource>,
    authorizer: Arc<dyn Authorizer>,
    store_directory: Option<PathBuf>,
    store_limit: Option<u64>,
    catalog: CatalogConfig,
    history_directory: Option<PathBuf>,
    kept_revision_count: usize,
    sandbox: SandboxConfig,
    address_overrides: Vec<(String, String)>,
    accepts_short_keys: bool,
    decisions: Option<DecisionsConfig>,
    goes_live_on_request: bool,
    progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            definition_paths: Vec::new(),
            directory_store_index: None,
            stores: Vec::new(),
            on_bad_definition: OnBadDefinition::default(),
            namespaced_chains: NamespacedChains::default(),
            reach: Reach::default(),
            starts_without_modules: false,
            forms: DocumentForms::default(),
            chain_definitions: Vec::new(),
            native_chains: Vec::new(),
            request_timeout: Duration::from_secs(10),
            namespaces: Arc::new(StaticNamespaces::default()),
            authorizer: Arc::new(NoAuthorizer),
            store_directory: None,
            store_limit: None,
            catalog: CatalogConfig::default(),
            history_directory: None,
            kept_revision_count: History::DEFAULT_KEPT_COUNT,
            sandbox: SandboxConfig::default(),
            address_overrides: Vec::new(),
            accepts_short_keys: false,
            decisions: None,
            goes_live_on_request: false,
            progress: Arc::new(|_| ()),
        }
    }
}

impl HostBuilder {
    /// Adds the definitions in this file, or in the files of this directory. May be called more than once.
    ///
    /// A new definition is written to the first directory or [store](Self::definition_store) that accepts it. They are
    /// tried in the order in which they were added. A path that is a single file accepts no new definitions.
    pub fn definitions(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        if !path.is_file() {
            self.directory_store_index.get_or_insert(self.stores.len());
        }
        self.definition_paths.push(path);
        self
    }

    /// Adds the definitions of this store, except [invalid ones](Self::on_bad_definition). May be called repeatedly.
    ///
    /// While the store is unavailable, the definitions that are live stay live, and [`Host::status`] gives the reason.
    /// A host that starts waits five seconds for the store, and then serves the definitions that were live last.
    pub fn definition_store(self, store: impl DefinitionStore) -> Self {
        self.definition_stores(vec![Arc::new(store)])
    }

    /// Adds the definitions of these stores; see [`definition_store`](Self::definition_store).
    pub fn definition_stores(mut self, stores: Vec<Arc<dyn DefinitionStore>>) -> Self {
        self.stores.extend(stores);
        self
    }

    /// Sets what is served instead of an invalid definition in a store. All valid definitions are served in any case,
    /// and [`Host::status`] reports the invalid one. Default: the last valid version of the definition stays in force.
    pub fn on_bad_definition(mut self, on_bad_definition: OnBadDefinition) -> Self {
        self.on_bad_definition = on_bad_definition;
        self
    }

    /// Sets what namespaced chains in stores may use, such as plugins. Chains in files are not limited. Default: only
    /// expressions.
    pub fn namespaced_chains(mut self, limits: NamespacedChains) -> Self {
        self.namespaced_chains = limits;
        self
    }

    /// Declares which requests the control plane sends to this host. [`Host::status`] reports a chain if it matches
    /// requests that are not among them. Default: all requests are sent.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Lets the host start even if some modules cannot be fetched. A stage without its module fails as `unreachable`,
    /// which its failure policy allows or refuses; all other stages work. [`Host::follow`] fetches the modules later,
    /// and [`Host::status`] lists those that are missing. Default: [`build`](Self::build) fails.
    pub fn start_without_modules(mut self) -> Self {
        self.starts_without_modules = true;
        self
    }

    /// Adds the definition of a chain that the program has built or parsed itself.
    pub fn definition(mut self, definition: ChainDefinition) -> Self {
        self.chain_definitions.push(definition);
        self
    }

    /// Adds a document form, which reads the documents of another policy system. May be called more than once.
    ///
    /// The form is only asked about a document in the [definitions](Self::definitions) that no built-in form
    /// [recognizes](DocumentForm::recognize).
    pub fn form(mut self, form: impl DocumentForm) -> Self {
        self.forms = self.forms.with_form(Arc::new(form));
        self
    }

    /// Adds a chain that the program defines in code. Such chains are called before the chains of definitions.
    pub fn chain(mut self, chain: Chain) -> Self {
        self.native_chains.push(chain);
        self
    }

    /// Limits the total time that all chains together may spend on one request. Default: 10 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the source of the labels of namespaces. Default: each namespace has a single label with its name.
    pub fn namespaces(mut self, namespaces: impl NamespaceSource) -> Self {
        self.namespaces = Arc::new(namespaces);
        self
    }

    /// Sets the authorizer for match conditions that check permissions. Default: there is none, so match conditions
    /// that check permissions fail.
    pub fn authorizer(mut self, authorizer: impl Authorizer) -> Self {
        self.authorizer = Arc::new(authorizer);
        self
    }

    /// Keeps modules and their compiled forms in this directory, so that the next start needs neither network nor
    /// compiler. The directory is created if needed, must not be writable by other users, and may be shared by several
    /// programs. Default: `store` in the directory of the [`history`](Self::history); without a history, nothing is
    /// kept.
    pub fn store(mut self, directory: impl AsRef<Path>) -> Self {
        self.store_directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets the size limit of the store, in bytes. Above it, the least recently used entries are removed, but never
    /// modules of live tables or of the history. Default: nothing is removed.
    pub fn store_limit(mut self, bytes: u64) -> Self {
        self.store_limit = Some(bytes);
        self
    }

    /// Configures how modules are fetched from servers and registries, and which modules must be signed.
    pub fn catalog(mut self, config: CatalogConfig) -> Self {
        self.catalog = config;
        self
    }

    /// Keeps earlier tables in this directory. They are needed for rollbacks, and for a start with the last live table
    /// if the definitions cannot be loaded. Only one host may use the directory at a time. Default: kept in memory.
    pub fn history(mut self, directory: impl AsRef<Path>) -> Self {
        self.history_directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets how many revisions the history keeps, at least 1. Default: 20.
    pub fn revisions(mut self, count: usize) -> Self {
        self.kept_revision_count = count;
        self
    }

    /// Configures the sandbox, with its limits for plugins and for the number of concurrent calls.
    pub fn sandbox(mut self, config: SandboxConfig) -> Self {
        self.sandbox = config;
        self
    }

    /// Sets the address `HOST:PORT` of the webhooks whose URL contains `host`, so that `host` is not looked up in DNS.
    /// May be called more than once.
    pub fn resolve(mut self, host: impl Into<String>, address: impl Into<String>) -> Self {
        self.address_overrides.push((host.into(), address.into()));
        self
    }

    /// Trusts CAs in the `caBundle` of webhooks even if their RSA keys have only 1024 to 2047 bits. Such keys can be
    /// broken, so use this only until the CAs are replaced. Default: calls to webhooks with such a CA fail.
    pub fn accept_short_webhook_keys(mut self) -> Self {
        self.accepts_short_keys = true;
        self
    }

    /// Keeps the decisions on the latest requests in memory, for [`Host::decisions`]. Default: no decisions are kept.
    pub fn decisions(mut self, config: DecisionsConfig) -> Self {
        self.decisions = Some(config);
        self
    }

    /// Makes new tables wait until the program calls [`Host::go_live_with`], so that several replicas can go live
    /// together. The first table goes live without such a call. Default: each table goes live as soon as it is built.
    pub fn go_live_on_request(mut self) -> Self {
        self.goes_live_on_request = true;
        self
    }

    /// Sets a callback that reports the progress of loading plugins.
    pub fn on_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Arc::new(progress);
        self
    }

    /// Reads the definitions, loads their plugins, and goes live.
    ///
    /// # Errors
    ///
    /// Fails if definitions are invalid or stages cannot be built. The error lists all mistakes in all files. If there
    /// are none, it lists all stages that cannot be built.
    pub async fn build(self) -> Result<Host, Error> {
        let history = match &self.history_directory {
            Some(directory) => History::open(directory, self.kept_revision_count)?,
            None => History::in_memory(self.kept_revision_count),
        };
        let store_in_history = || self.history_directory.as_ref().map(|directory| directory.join("store"));
        let mut catalog = self.catalog;
        if let Some(directory) = self.store_directory.or_else(store_in_history) {
            catalog.store = Some(Store::open(directory)?);
        }
        let mut stores = self.stores;
        if !self.definition_paths.is_empty() {
            let index = self.directory_store_index.unwrap_or_default();
            stores.insert(
                index,
                Arc::new(FileStore::new(self.definition_paths).with_forms(&self.forms)),
            );
        }
        let address_overrides = AddressOverrides::parse(self.address_overrides).map_err(Error::Resolve)?;
        let catalog = Catalog::new(catalog)?;
        let redacted_pointers = self.decisions.as_ref().map(|decisions| decisions.redact.clone());
        #[cfg_attr(
            not(feature = "registries"),
            expect(unused_mut, reason = "only registries have images")
        )]
        let mut sandbox = self.sandbox;
        #[cfg(feature = "registries")]
        sandbox
            .images
            .get_or_insert_with(|| Arc::new(admittance_catalog::RegistryImages::new(catalog.clone())));
        let assembler = Arc::new(Assembler {
            sandbox,
            catalog,
            webhooks: if self.accepts_short_keys {
                WebhookClients::with_short_keys(address_overrides)
            } else {
                WebhookClients::new(address_overrides)
            },
            authorizer: self.authorizer.clone(),
            namespaces: self.namespaces.clone(),
            progress: self.progress,
            shared_sandbox: OnceCell::new(),
            plugins: Plugins::default(),
            trials: Trials::with_redactions(&redacted_pointers.unwrap_or_default()),
            statistics: Default::default(),
            fetchers: Semaphore::new(WORKERS),
            compilers: SmallestFirstLimit::new(WORKERS),
            loaders: Semaphore::new(WORKERS),
            fills_store: true,
            reach: Arc::new(self.reach),
        });
        let source = TableSource {
            stores: Arc::new(Stores::new(stores, self.forms)),
            chain_definitions: self.chain_definitions,
            native_chains: self.native_chains.into(),
            namespaces: self.namespaces,
            authorizer: self.authorizer,
            request_timeout: self.request_timeout,
            assembler,
            observer: Arc::new(Observer {
                recorders: Arc::default(),
                decisions: DecisionLog::new(self.decisions),
                traffic: Traffic::new(Instant::now()),
                metrics: Default::default(),
            }),
            store_limit: self.store_limit,
            module_fingerprint: Fingerprint::default(),
            version: 0,
            refresh_intervals: Vec::new(),
            on_bad_definition: self.on_bad_definition,
            namespaced_chains: Arc::new(self.namespaced_chains),
            starts_without_modules: self.starts_without_modules,
            live_files: Arc::default(),
            live_modules: Arc::default(),
        };
        Host::start(source, history, self.goes_live_on_request).await
    }
}
