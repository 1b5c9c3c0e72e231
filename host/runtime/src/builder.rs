use std::{sync::Arc, time::Duration};

use admittance_admission::{Chain, NamespaceSource, StaticNamespaces};

use crate::{Error, Host, Table};

/// Puts a [`Host`] together.
#[derive(Debug)]
pub struct HostBuilder {
    chains: Vec<Chain>,
    request_timeout: Duration,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            chains: Vec::new(),
            request_timeout: Duration::from_secs(10),
        }
    }
}

impl HostBuilder {
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

    /// Build the host.
    ///
    /// # Errors
    ///
    /// When a definition is wrong or a plugin does not load.
    pub async fn build(self) -> Result<Host, Error> {
        let chains = self.chains.into_iter().map(Arc::new).collect();
        let namespaces: Arc<dyn NamespaceSource> = Arc::new(StaticNamespaces::default());
        Ok(Host::with_table(Table::new(
            chains,
            namespaces,
            self.request_timeout,
        )))
    }
}
