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

/// Joins the items as a choice: `a or b`.
pub(super) fn either_of<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(" or ")
}

/// Returns the end of a message about an unknown `name`: `; did you mean a or b?`, with at most three of the `others`,
/// the most similar first. Empty if none is similar.
pub fn did_you_mean<T: std::fmt::Display>(name: &str, others: impl IntoIterator<Item = T>) -> String {
    const LEAST_SIMILARITY: f64 = 0.6;
    let similarity = |other: &String| strsim::normalized_damerau_levenshtein(name, other);
    let mut near: Vec<(f64, String)> = others
        .into_iter()
        .map(|other| other.to_string())
        .map(|other| (similarity(&other), other))
        .filter(|(similarity, _)| *similarity >= LEAST_SIMILARITY)
        .collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.dedup();
    near.truncate(3);
    if near.is_empty() {
        return String::new();
    }
    format!(
        "; did you mean {}?",
        either_of(near.iter().map(|(_, other)| other))
    )
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
