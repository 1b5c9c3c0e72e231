use std::{fmt, sync::Arc};

use admittance_definitions::{BadDefinition, Location, Mistakes, StoreError};
use tokio::task::JoinError;

use crate::HistoryError;

/// Why a host cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Definitions are wrong: every mistake of every file.
    #[error("{0}")]
    Definitions(#[from] Mistakes),
    /// Stores of definitions cannot be read: each of them, and what is wrong besides.
    #[error("{}", lines(.0))]
    Stores(Vec<StoreError>),
    /// Definitions in stores that cannot be used: each of them. Everything else is live.
    #[error("{}", lines(.0))]
    BadDefinitions(Vec<BadDefinition>),
    /// Stages cannot be made: each of them.
    #[error("{}", lines(.0))]
    Stages(Vec<StageError>),
    /// The sandbox cannot be made.
    #[error("the sandbox cannot be started: {0}")]
    Sandbox(#[source] admittance_sandbox::Error),
    /// The store for modules cannot be used, or they cannot be asked for.
    #[error(transparent)]
    Catalog(#[from] admittance_catalog::Error),
    /// The directory of earlier tables cannot be used.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A change of definitions that a kill interrupted cannot be completed.
    #[error(
        "the change of definitions to revision {revision} was interrupted, and cannot be completed: {source}"
    )]
    IncompleteChange {
        /// The revision that it comes to.
        revision: u64,
        /// Why.
        source: StoreError,
    },
    /// Requests still use so many earlier tables that there is no room for another.
    #[error("requests in flight still use {0} tables, and no other is made until some of them end")]
    TooManyTables(usize),
    /// The addresses of webhooks are wrong.
    #[error("webhooks.resolve: {0}")]
    Resolve(#[source] admittance_webhook::Error),
    /// The runtime is shutting down.
    #[error("loading broke off: {0}")]
    Interrupted(#[source] JoinError),
}

impl Error {
    /// Whether it may help itself: another attempt is worth while though nothing was changed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Stages(errors) => errors.iter().any(StageError::is_transient),
            Self::BadDefinitions(bad) => bad.iter().any(|bad| bad.is_transient),
            Self::Catalog(error) => error.is_transient(),
            Self::TooManyTables(_) => true,
            // What is wrong in them waits for a change; a right may be given without one.
            Self::Stores(errors) => errors
                .iter()
                .any(|error| !matches!(error, StoreError::Mistakes(_))),
            _ => false,
        }
    }
}

/// A stage that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("{location}: stage {stage} of chain {chain}: {}", one_line(.cause))]
pub struct StageError {
    /// Its chain.
    pub chain: Arc<str>,
    /// Its name.
    pub stage: Arc<str>,
    /// Where it is defined.
    pub location: Location,
    /// Why.
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
            location,
            cause,
        }
    }
}

/// Why a stage cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageErrorCause {
    /// Its module cannot be had.
    #[error(transparent)]
    Module(#[from] admittance_catalog::Error),
    /// Its module is not a plugin that runs here, or refuses its settings.
    #[error(transparent)]
    Plugin(#[from] admittance_sandbox::Error),
    /// Its webhook cannot be called.
    #[error(transparent)]
    Webhook(#[from] admittance_webhook::Error),
    /// The runtime is shutting down.
    #[error("loading broke off: {0}")]
    Interrupted(#[source] JoinError),
    /// The host is being dropped.
    #[error("loading broke off: the host stops")]
    Stopped,
}

impl StageErrorCause {
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Module(error) if error.is_transient())
    }

    /// Whether no server was asked for the module.
    pub(crate) fn is_not_fetched(&self) -> bool {
        matches!(self, Self::Module(admittance_catalog::Error::NotFetched { .. }))
    }
}

/// What a plugin says may have several lines, and a mistake has one.
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
