use std::path::PathBuf;

use crate::{DefinitionId, Location, Mistakes, StageId};

/// The reasons why a change cannot be made. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The definitions have mistakes, or would have them after the change.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// The text to apply contains no definition.
    #[error("{0}: it contains no definition")]
    Nothing(String),
    /// The definition is new, and no configured store accepts it.
    #[error(
        "{0} is new, and there is no directory to write it to: only single files and stores that do not accept it are configured; add a directory to `definitions`"
    )]
    NoDirectory(DefinitionId),
    /// The definition is an item of a list.
    #[error("{id} is an item of the list in {location}; edit that file")]
    InList {
        /// The name of the definition.
        id: DefinitionId,
        /// The beginning of the item.
        location: Location,
    },
    /// The definition shares its file with others.
    #[error("{id} is one of several documents in its file, at {location}; edit that file")]
    SharesFile {
        /// The name of the definition.
        id: DefinitionId,
        /// The beginning of the definition.
        location: Location,
    },
    /// The definition exists, although a new one was expected.
    #[error("{id} already exists in {location}")]
    AlreadyThere {
        /// The name of the definition.
        id: DefinitionId,
        /// The beginning of the definition.
        location: Location,
    },
    /// The definition is new, but its path in a store is taken.
    #[error("{id} cannot be written to {path}, which already exists; remove it first")]
    PlaceTaken {
        /// The name of the definition.
        id: DefinitionId,
        /// The path that is taken.
        path: PathBuf,
    },
    /// The definition does not exist.
    #[error("there is no {id}{}", did_you_mean(.near))]
    Unknown {
        /// The requested name.
        id: DefinitionId,
        /// Definitions with similar names.
        near: Vec<DefinitionId>,
    },
    /// There are several definitions of this name.
    #[error("there are several of the name {id}: {}; edit the file", list(.locations))]
    Ambiguous {
        /// The requested name.
        id: DefinitionId,
        /// The locations of the definitions.
        locations: Vec<Location>,
    },
    /// The stage does not exist.
    #[error("there is no stage {id}{}", did_you_mean(.near))]
    UnknownStage {
        /// The requested name.
        id: StageId,
        /// Stages with similar names.
        near: Vec<StageId>,
    },
    /// There are several stages of this name.
    #[error("there are several stages of the name {id}; write {}", list(.meant))]
    AmbiguousStage {
        /// The requested name.
        id: StageId,
        /// The stages that have this name.
        meant: Vec<StageId>,
    },
    /// The stage has no candidate.
    #[error("{location}: the stage {id} has no `candidate`, so there is nothing to promote")]
    NoCandidate {
        /// The name of the stage.
        id: StageId,
        /// The beginning of the stage.
        location: Location,
    },
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    texts.join(" or ")
}

fn did_you_mean<T: std::fmt::Display>(near: &[T]) -> String {
    if near.is_empty() {
        return String::new();
    }
    format!("; did you mean {}?", list(near))
}

/// Returns the items whose text is similar to this one, the most similar first, at most three.
pub(super) fn near<T: std::fmt::Display>(text: &str, all: Vec<T>) -> Vec<T> {
    const LEAST_SIMILARITY: f64 = 0.6;
    let similarity = |item: &T| strsim::normalized_damerau_levenshtein(text, &item.to_string());
    let mut near: Vec<(f64, T)> = all
        .into_iter()
        .map(|item| (similarity(&item), item))
        .filter(|(similarity, _)| *similarity >= LEAST_SIMILARITY)
        .collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.truncate(3);
    near.into_iter().map(|(_, item)| item).collect()
}
