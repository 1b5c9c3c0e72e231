use admittance_admission::did_you_mean;

use crate::{DefinitionId, Location, Mistakes};

/// The reasons why a change cannot be made. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The definitions have mistakes, or would have them after the change.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// The text to apply contains no definition.
    #[error("{0}: it contains no definition")]
    Nothing(String),
    /// The definition exists, although a new one was expected.
    #[error("{id} already exists in {location}")]
    AlreadyThere {
        /// The name of the definition.
        id: DefinitionId,
        /// The beginning of the definition.
        location: Location,
    },
    /// The definition or the stage does not exist.
    #[error("there is no {0}")]
    Unknown(String),
    /// There are several stages of this name.
    #[error("{0}")]
    AmbiguousStage(String),
    /// The definitions do not allow the change here: the text says why, and where to make it.
    #[error("{0}")]
    Conflict(String),
}

impl ChangeError {
    /// Creates the error for a name that none of the others is, with the most similar ones. `noun` stands before the
    /// name in the message.
    pub(super) fn unknown<T: std::fmt::Display>(
        noun: &str,
        name: &str,
        others: impl Iterator<Item = T>,
    ) -> Self {
        Self::Unknown(format!("{noun}{name}{}", did_you_mean(name, others)))
    }
}
