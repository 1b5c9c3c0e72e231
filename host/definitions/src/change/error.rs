use admittance_admission::did_you_mean;

use crate::{DefinitionId, Location, Mistakes};

/// The reasons why a change of definitions cannot be planned. In every case, nothing has been written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The definitions have mistakes, or would have mistakes after the change.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// The applied text contains no definition.
    #[error("{0}: it contains no definition")]
    Nothing(String),
    /// The definition exists, although it was expected to be new.
    #[error("{id} already exists in {location}")]
    AlreadyThere {
        /// The kind and name of the definition.
        id: DefinitionId,
        /// The file and the position of the existing definition.
        location: Location,
    },
    /// There is no definition or stage with this name.
    #[error("there is no {0}")]
    Unknown(String),
    /// Several stages have this name, for example in chains of different phases.
    #[error("{0}")]
    AmbiguousStage(String),
    /// These definitions cannot be changed as requested. The text tells why, and where to make the change instead.
    #[error("{0}")]
    Conflict(String),
}

impl PlanError {
    pub(super) fn unknown<T: std::fmt::Display>(
        noun: &str,
        name: &str,
        existing_names: impl Iterator<Item = T>,
    ) -> Self {
        Self::Unknown(format!("{noun}{name}{}", did_you_mean(name, existing_names)))
    }
}
