//! Why a request about definitions is not done, as clients of the original know it.

use admittance::{ChangeError, Error, StageError};
use admittance_definitions::{self as definitions, Location, Mistake, NoBcsObject};

use super::request::Name;
use crate::{reply::Code, translation::PARAMETERS};

/// What stands for the body in mistakes: paths of fields are told, and not the line of a text that the client has
/// not written.
pub(super) const BODY: &str = "body";

/// So many mistakes are told; a body may have a million of them.
const TOLD: usize = 50;

/// Why a request is not done. As text: the message that clients of the original know, with what it leaves out
/// after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Body(#[from] NoBcsObject),
    /// The definition cannot work: every mistake in it.
    #[error("{PARAMETERS}: {}", .0.join("\n"))]
    Unusable(Vec<String>),
    /// One that is to be made is there.
    #[error("admission already exist: {name} is in {location}")]
    AlreadyThere { name: Name, location: Location },
    /// One that is to be changed or removed is not there.
    #[error("admission not exist: there is no {0}")]
    NotThere(Name),
    /// One that is to be seen is not there, for which the original has no code of its own.
    #[error("admission not exist: there is no {0}")]
    NothingToGet(Name),
    /// What is in the place of the one that is to be seen is no definition.
    #[error("what the store holds for {0} is not a definition: replace it with PUT, or DELETE it")]
    Unreadable(Name),
    /// It cannot be done: why.
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Body(NoBcsObject::Json(_)) => Code::JsonDecode,
            Self::Body(NoBcsObject::TypeMeta(_) | NoBcsObject::Kind(_)) => Code::RequestData,
            Self::Unusable(_) => Code::Parameter,
            Self::AlreadyThere { .. } => Code::ResourceExists,
            Self::NotThere(_) => Code::NotFound,
            Self::NothingToGet(_) | Self::Unreadable(_) | Self::Failed(_) => Code::Scheduler,
        }
    }

    pub(super) fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// Why this definition is not changed.
    pub(super) fn of_change(name: &Name, error: ChangeError) -> Self {
        match error {
            ChangeError::Definitions(definitions::ChangeError::Unknown { .. }) => {
                Self::NotThere(name.clone())
            }
            ChangeError::Definitions(definitions::ChangeError::AlreadyThere { location, .. }) => {
                Self::AlreadyThere {
                    name: name.clone(),
                    location,
                }
            }
            ChangeError::Definitions(definitions::ChangeError::Mistakes(mistakes))
            | ChangeError::Table(Error::Definitions(mistakes)) => {
                let is_own = |mistake: &Mistake| mistake.location.file == BODY;
                of_mistakes(
                    mistakes
                        .iter()
                        .map(|mistake| (is_own(mistake), of_mistake(mistake))),
                )
            }
            ChangeError::Table(Error::Stages(errors)) => {
                let chain = name.to_string();
                let is_own = |error: &StageError| *error.chain == *chain;
                of_mistakes(errors.iter().map(|error| {
                    let own = is_own(error);
                    (own, if own { of_stage(error) } else { error.to_string() })
                }))
            }
            error => Self::failed(error),
        }
    }
}

/// What is wrong, and whether it is with the client's own definition.
fn of_mistakes(mistakes: impl Iterator<Item = (bool, String)>) -> Refusal {
    let mut any_is_own = false;
    let mut texts: Vec<String> = mistakes
        .map(|(is_own, text)| {
            any_is_own |= is_own;
            text
        })
        .collect();
    let more = texts.len().saturating_sub(TOLD);
    texts.truncate(TOLD);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    if any_is_own {
        Refusal::Unusable(texts)
    } else {
        let texts = texts.join("\n");
        Refusal::Failed(format!(
            "other definitions are wrong, so nothing was changed: {texts}"
        ))
    }
}

fn of_mistake(mistake: &Mistake) -> String {
    if mistake.location.file != BODY {
        return mistake.to_string();
    }
    let Mistake {
        path, message, fix, ..
    } = mistake;
    let place = if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    };
    if fix.is_empty() {
        format!("{place}{message}")
    } else {
        format!("{place}{message}; {fix}")
    }
}

/// Without the file, which is not there.
fn of_stage(error: &StageError) -> String {
    let text = error.to_string();
    let place = format!("{}: ", error.location);
    text.strip_prefix(&place).unwrap_or(&text).to_owned()
}
