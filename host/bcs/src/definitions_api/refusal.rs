//! Errors of the API for definitions, compatible with bcs-mesos-driver.

use admittance::{ChangeError, Error, StageError};
use admittance_definitions::{self as definitions, Location, Mistake, NoBcsObject};

use crate::{definition_name::DefinitionName, reply::Code, translation::PARAMETERS};

/// The file name under which mistakes in the client's own definition are located. The client sent no file of this name,
/// so messages to the client leave the location out.
pub(super) const BODY_FILE_NAME: &str = "body";

/// The maximum number of mistakes in a reply.
const MAX_REPORTED: usize = 50;

/// The reason why a request about a definition fails. `Display` writes bcs-mesos-driver's message, with details added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DefinitionRefusal {
    #[error(transparent)]
    Body(#[from] NoBcsObject),
    #[error("{PARAMETERS}: {}", .0.join("\n"))]
    Unusable(Vec<String>),
    #[error("admission already exist: {name} is in {location}")]
    AlreadyExists { name: DefinitionName, location: Location },
    #[error("admission not exist: there is no {0}")]
    NotFound(DefinitionName),
    /// bcs-mesos-driver has no error code for this case.
    #[error("admission not exist: there is no {0}")]
    NotFoundOnGet(DefinitionName),
    #[error("the stored document of {0} is not a definition: replace it with PUT, or DELETE it")]
    Unreadable(DefinitionName),
    #[error("{0}")]
    Failed(String),
}

impl DefinitionRefusal {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Body(NoBcsObject::Json(_)) => Code::JsonDecode,
            Self::Body(NoBcsObject::TypeMeta(_) | NoBcsObject::Kind(_)) => Code::RequestData,
            Self::Unusable(_) => Code::Parameter,
            Self::AlreadyExists { .. } => Code::ResourceExists,
            Self::NotFound(_) => Code::NotFound,
            Self::NotFoundOnGet(_) | Self::Unreadable(_) | Self::Failed(_) => Code::Scheduler,
        }
    }

    pub(super) fn from_error(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    pub(super) fn from_change_error(name: &DefinitionName, error: ChangeError) -> Self {
        match error {
            ChangeError::Definitions(definitions::PlanError::Unknown(_)) => Self::NotFound(name.clone()),
            ChangeError::Definitions(definitions::PlanError::AlreadyThere { location, .. }) => Self::AlreadyExists {
                name: name.clone(),
                location,
            },
            ChangeError::Definitions(definitions::PlanError::Mistakes(mistakes))
            | ChangeError::Table(Error::Definitions(mistakes)) => {
                let is_own = |mistake: &Mistake| mistake.location.file == BODY_FILE_NAME;
                refusal_of_mistakes(
                    mistakes
                        .iter()
                        .map(|mistake| (is_own(mistake), mistake_message(mistake))),
                )
            }
            ChangeError::Table(Error::Stages(errors)) => {
                let chain = name.to_string();
                let is_own = |error: &StageError| *error.chain == *chain;
                refusal_of_mistakes(errors.iter().map(|error| {
                    let is_of_chain = is_own(error);
                    (
                        is_of_chain,
                        if is_of_chain {
                            stage_message(error)
                        } else {
                            error.to_string()
                        },
                    )
                }))
            }
            error => Self::from_error(error),
        }
    }
}

/// Returns the refusal of a change that has these mistakes. The flag of a mistake is true if the mistake is in the
/// definition that the client has sent, and false if it is in another definition.
fn refusal_of_mistakes(mistakes: impl Iterator<Item = (bool, String)>) -> DefinitionRefusal {
    let mut any_is_own = false;
    let mut texts: Vec<String> = mistakes
        .map(|(is_own, text)| {
            any_is_own |= is_own;
            text
        })
        .collect();
    let more = texts.len().saturating_sub(MAX_REPORTED);
    texts.truncate(MAX_REPORTED);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    if any_is_own {
        DefinitionRefusal::Unusable(texts)
    } else {
        let texts = texts.join("\n");
        DefinitionRefusal::Failed(format!("other definitions are wrong, so nothing was changed: {texts}"))
    }
}

fn mistake_message(mistake: &Mistake) -> String {
    if mistake.location.file != BODY_FILE_NAME {
        return mistake.to_string();
    }
    let Mistake { path, message, fix, .. } = mistake;
    let path_prefix = if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    };
    if fix.is_empty() {
        format!("{path_prefix}{message}")
    } else {
        format!("{path_prefix}{message}; {fix}")
    }
}

/// Returns the message of an error without the name of a file, which would mean nothing to the client.
fn stage_message(error: &StageError) -> String {
    let text = error.to_string();
    let location_prefix = format!("{}: ", error.location);
    text.strip_prefix(&location_prefix).unwrap_or(&text).to_owned()
}
