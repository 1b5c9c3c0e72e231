use std::{fmt, sync::Arc};

use admittance_definitions::{BadDefinition, HookError, Location, Mistakes, StoreError};
use tokio::task::JoinError;

use crate::HistoryError;

/// The reason why a host or a table could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Definitions are invalid. Contains all mistakes in all files.
    #[error("{0}")]
    Definitions(#[from] Mistakes),
    /// Definition stores cannot be read. Contains the error of each, and mistakes in the stores that were read.
    #[error("{}", lines(.0))]
    Stores(Vec<StoreError>),
    /// Some definitions in stores are invalid. All valid definitions are live.
    #[error("{}", lines(.0))]
    BadDefinitions(Vec<BadDefinition>),
    /// Some stages cannot be built. Contains the error of each of them.
    #[error("{}", lines(.0))]
    Stages(Vec<StageError>),
    /// The sandbox cannot be started.
    #[error("the sandbox cannot be started: {0}")]
    Sandbox(#[source] admittance_sandbox::Error),
    /// The store of modules cannot be used, or modules cannot be fetched.
    #[error(transparent)]
    Catalog(#[from] admittance_catalog::Error),
    /// The directory of the history cannot be used.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A change of definitions was interrupted and cannot be completed.
    #[error("the change of definitions to revision {revision} was interrupted, and cannot be completed: {source}")]
    IncompleteChange {
        /// The number of the revision that the interrupted change would have created.
        revision: u64,
        /// The error of the store in which the change could not be completed.
        source: StoreError,
    },
    /// No further table can be built, because requests in flight still use too many earlier tables.
    #[error("requests in flight still use {0} tables; no other table is built until some of them end")]
    TooManyTables(usize),
    /// The addresses that are configured for webhooks are invalid.
    #[error(transparent)]
    Resolve(admittance_webhook::Error),
    /// The runtime is shutting down.
    #[error("loading was interrupted: {0}")]
    Interrupted(#[source] JoinError),
}

impl Error {
    /// Returns whether the error is temporary, so that a retry may succeed although no definition is changed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Stages(errors) => errors.iter().any(StageError::is_transient),
            Self::BadDefinitions(bad) => bad.iter().any(|bad| bad.is_transient),
            Self::Catalog(error) => error.is_transient(),
            Self::TooManyTables(_) => true,
            // An error of a store, such as a missing permission, may be temporary. A mistake in a definition never is.
            Self::Stores(errors) => errors.iter().any(|error| !matches!(error, StoreError::Mistakes(_))),
            _ => false,
        }
    }
}

/// A stage that cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("{location}: {}stage {stage} of chain {chain}: {}", if *.candidate { "the candidate of " } else { "" }, one_line(.cause))]
#[non_exhaustive]
pub struct StageError {
    /// The name of the chain that contains the stage.
    pub chain: Arc<str>,
    /// The name of the stage that cannot be built.
    pub stage: Arc<str>,
    /// Whether it is the stage's candidate that cannot be built. If this is `false`, the stage itself cannot be built.
    pub candidate: bool,
    /// The location of the stage's definition.
    pub location: Location,
    /// The error in the stage's module, plugin or hook.
    #[source]
    pub cause: StageErrorCause,
}

impl StageError {
    pub(crate) fn is_transient(&self) -> bool {
        self.cause.is_transient()
    }

    pub(crate) fn new(chain: &str, stage: &str, location: Location, cause: StageErrorCause) -> Self {
        Self {
            chain: chain.into(),
            stage: stage.into(),
            candidate: false,
            location,
            cause,
        }
    }
}

/// The reason why a stage cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageErrorCause {
    /// The stage's module is not available.
    #[error(transparent)]
    Module(#[from] admittance_catalog::Error),
    /// The stage's module is not a valid plugin, or rejected its settings.
    #[error(transparent)]
    Plugin(#[from] admittance_sandbox::Error),
    /// The stage's hook cannot be prepared, for example because the configuration of a webhook is invalid.
    #[error(transparent)]
    Hook(HookError),
    /// The runtime is shutting down.
    #[error("loading was interrupted: {0}")]
    Interrupted(#[source] JoinError),
    /// The host was dropped.
    #[error("loading was interrupted: the host is shutting down")]
    Stopped,
}

impl StageErrorCause {
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Module(error) if error.is_transient())
    }

    /// Returns whether the module is not in the store, and the table's build was not allowed to fetch it from a server.
    pub(crate) fn is_not_fetched(&self) -> bool {
        matches!(self, Self::Module(admittance_catalog::Error::NotFetched { .. }))
    }
}

/// Joins the lines of a plugin's message, because each mistake is printed on one line.
fn one_line(cause: &StageErrorCause) -> String {
    cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines<T: fmt::Display>(errors: &[T]) -> impl fmt::Display + '_ {
    fmt::from_fn(|f| {
        for (index, error) in errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    })
}
