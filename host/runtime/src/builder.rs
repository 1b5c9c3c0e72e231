use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{Authorizer, Chain, NamespaceSource, NoAuthorizer, StaticNamespaces};
use admittance_catalog::CompiledCache;
use admittance_definitions::ChainDefinition;
use admittance_sandbox::SandboxConfig;
use admittance_watch::Fingerprint;
use admittance_webhook::{Resolve, WebhookClients};

use crate::{Error, Host, Progress, assembly::Assembler, source::Source};

/// Puts a [`Host`] together: where its chains come from, and what they may use.
///
/// ```
/// # async fn example() -> Result<(), admittance::Error> {
/// let host = admittance::Host::builder().definitions("chains/").cache("/var/cache/admittance").build().await?;
/// # Ok(()) }
/// ```
pub struct HostBuilder {
    definitions: Vec<PathBuf>,
    read: Vec<ChainDefinition>,
    chains: Vec<Chain>,
    request_timeout: Duration,
    namespaces: Arc<dyn NamespaceSource>,
    authorizer: Arc<dyn Authorizer>,
    cache: Option<PathBuf>,
    sandbox: SandboxConfig,
    resolve: Vec<(String, String)>,
    progress: Box<dyn Fn(Progress) + Send + Sync>,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            definitions: Vec::new(),
            read: Vec::new(),
            chains: Vec::new(),
            request_timeout: Duration::from_secs(10),
            namespaces: Arc::new(StaticNamespaces::default()),
            authorizer: Arc::new(NoAuthorizer),
            cache: None,
            sandbox: SandboxConfig::default(),
            resolve: Vec::new(),
            progress: Box::new(|_| ()),
        }
    }
}

impl HostBuilder {
    /// Take the definitions in this file, or in the files of this directory. May be called again.
    pub fn definitions(mut self, path: impl Into<PathBuf>) -> Self {
        self.definitions.push(path.into());
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

    /// Keep compiled plugins in this directory, so that the next start compiles nothing. It is made
    /// when it is not there, and must be writable by this user alone. Default: nothing is kept.
    pub fn cache(mut self, directory: impl AsRef<Path>) -> Self {
        self.cache = Some(directory.as_ref().to_owned());
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
        self.progress = Box::new(progress);
        self
    }

    /// Read the definitions, load what they name, and go live.
    ///
    /// # Errors
    ///
    /// When anything is wrong: with every mistake of every file, or every stage that cannot be made.
    pub async fn build(self) -> Result<Host, Error> {
        let cache = self.cache.map(CompiledCache::open).transpose()?;
        let resolve = Resolve::parse(self.resolve).map_err(Error::Resolve)?;
        let assembler = Arc::new(Assembler {
            sandbox: self.sandbox,
            cache,
            webhooks: WebhookClients::new(resolve),
            progress: self.progress,
            started: tokio::sync::OnceCell::new(),
        });
        let mut source = Source {
            definitions: self.definitions,
            given: self.read,
            chains: self.chains.into_iter().map(Arc::new).collect(),
            namespaces: self.namespaces,
            authorizer: self.authorizer,
            request_timeout: self.request_timeout,
            assembler,
            seen: Fingerprint::default(),
        };
        let table = source.table().await?;
        Ok(Host::live(source, table))
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("definitions", &self.definitions)
            .field("chains", &self.chains)
            .field("request_timeout", &self.request_timeout)
            .field("cache", &self.cache)
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}
