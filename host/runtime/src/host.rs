use std::{fmt, sync::Arc};

use admittance_admission::{Outcome, Request};
use admittance_watch::{Watch, WatchConfig};
use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use crate::{Error, HostBuilder, Table, source::Source};

/// The door for embedders: holds the live table of chains. Cheap to clone; lives as long as the
/// program.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    table: ArcSwap<Table>,
    /// What the table is made of, and what became of the last attempt to make it anew. One attempt at a
    /// time.
    source: Mutex<Source>,
    last: ArcSwap<Reload>,
}

/// What became of the last attempt to make the table.
#[derive(Clone, Debug)]
pub struct Reload {
    /// How many tables there have been, the live one among them. It begins at 1.
    pub revision: u64,
    /// Why the newest definitions or modules are not live; the table before them is. None: they are.
    pub error: Option<Arc<Error>>,
}

impl Host {
    /// Start to put a host together.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    pub(crate) fn live(source: Source, table: Table) -> Self {
        Self(Arc::new(Inner {
            table: ArcSwap::from_pointee(table),
            source: Mutex::new(source),
            last: ArcSwap::from_pointee(Reload {
                revision: 1,
                error: None,
            }),
        }))
    }

    /// The table as it is now.
    pub fn table(&self) -> Arc<Table> {
        self.0.table.load_full()
    }

    /// Pass a request through the chains that match it.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.table().admit(request).await
    }

    /// What became of the last attempt to make the table.
    pub fn last_reload(&self) -> Arc<Reload> {
        self.0.last.load_full()
    }

    /// Read the definitions and the modules that they name again, and go live with what they say. Requests
    /// in flight end on the table that they began with.
    ///
    /// # Errors
    ///
    /// As [`HostBuilder::build`]; the table stays as it was.
    pub async fn reload(&self) -> Result<Arc<Table>, Arc<Error>> {
        let mut source = self.0.source.lock().await;
        let revision = self.0.last.load().revision;
        match source.table().await {
            Ok(table) => {
                let table = Arc::new(table);
                self.0.table.store(table.clone());
                self.0.last.store(Arc::new(Reload {
                    revision: revision + 1,
                    error: None,
                }));
                Ok(table)
            }
            Err(error) => {
                let error = Arc::new(error);
                self.0.last.store(Arc::new(Reload {
                    revision,
                    error: Some(error.clone()),
                }));
                Err(error)
            }
        }
    }

    /// Watch the definitions and the modules that they name, and [`reload`](Self::reload) whenever what
    /// they hold changes. It does not end; drop it to stop. What fails is logged, counted, and tried again
    /// at the next change.
    pub async fn follow(self) {
        loop {
            // Definitions name modules, and others than before.
            let seen = self.0.source.lock().await.seen.clone();
            Watch::since(seen, WatchConfig::default()).changed().await;
            match self.reload().await {
                Ok(table) => {
                    let revision = self.last_reload().revision;
                    let (chains, plugins) = (table.chains().len(), table.plugins().len());
                    tracing::info!(revision, chains, plugins, "the changed definitions are live");
                }
                Err(error) => {
                    tracing::error!("the changed definitions are not used, those before them stay: {error}");
                }
            }
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("table", &self.table())
            .field("last_reload", &self.last_reload())
            .finish_non_exhaustive()
    }
}
