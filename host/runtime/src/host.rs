use std::sync::Arc;

use admittance_admission::{Outcome, Request};
use arc_swap::ArcSwap;

use crate::{HostBuilder, Table};

/// The door for embedders: holds the live table of chains. Cheap to clone; lives as long as the
/// program.
#[derive(Clone, Debug)]
pub struct Host(Arc<ArcSwap<Table>>);

impl Host {
    /// Start to put a host together.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    pub(crate) fn with_table(table: Table) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(table)))
    }

    /// The table as it is now.
    pub fn table(&self) -> Arc<Table> {
        self.0.load_full()
    }

    /// Pass a request through the chains that match it.
    pub async fn admit(&self, request: Request) -> Outcome {
        self.table().admit(request).await
    }
}
