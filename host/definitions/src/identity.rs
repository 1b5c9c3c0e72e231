//! The names of definitions, chains and stages.

use std::{fmt, str::FromStr};

use admittance_admission::{Phase, as_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Share;

/// The kind and name of a definition. As text: `AdmissionChain/pods` or `admissionwebhook/bcs-system/inject`.
///
/// Two native chains of different phases may have the same ID.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, derive_more::Display,
)]
#[display("{kind}/{name}")]
pub struct DefinitionId {
    /// The kind as it is written in the document, such as `AdmissionChain`.
    pub kind: String,
    /// The name, which is `metadata.name` or, in a namespace, `{namespace}/{name}`.
    pub name: String,
}

/// The phase and name of a chain. As text: `Mutating:pods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{}:{name}", phase.as_str())]
pub struct ChainId {
    /// The phase of the identified chain.
    pub phase: Phase,
    /// The name of the identified chain. No other chain of the same phase has this name.
    pub name: String,
}

/// The name of a stage. As text: `pods/images`, or `Mutating:pods/images` if chains of both phases are named `pods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId {
    /// The phase of the stage's chain. It may be `None` if there is only one chain of this name.
    pub phase: Option<Phase>,
    /// The name of the stage's chain.
    pub chain: String,
    /// The name of the stage in its chain.
    pub stage: String,
}

/// The reason why a text is not the name of a definition, chain or stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The text is not the name of a definition.
    #[error("`{0}` is not the name of a definition; write its kind and its name, `AdmissionChain/pods`")]
    Definition(String),
    /// The text is not the name of a chain.
    #[error("`{0}` is not the name of a chain; write its phase and its name, `Mutating:pods`")]
    Chain(String),
    /// The text is not the name of a stage.
    #[error("`{0}` is not the name of a stage; write the chain and the stage, `pods/images` or `Mutating:pods/images`")]
    Stage(String),
}

/// Returns the full name of a definition: `{namespace}/{name}`, or `name` if the namespace is empty.
pub fn definition_name(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        _ => format!("{namespace}/{name}"),
    }
}

impl DefinitionId {
    /// Returns whether both IDs identify the same definition. Kinds are compared without regard to case, as in BCS.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.kind.eq_ignore_ascii_case(&other.kind)
    }
}

impl FromStr for DefinitionId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok(Self {
                kind: kind.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(InvalidId::Definition(text.to_owned())),
        }
    }
}

impl FromStr for ChainId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match split_phase(text) {
            Some((phase, name)) if !name.is_empty() => Ok(Self {
                phase,
                name: name.to_owned(),
            }),
            _ => Err(InvalidId::Chain(text.to_owned())),
        }
    }
}

fn split_phase(text: &str) -> Option<(Phase, &str)> {
    let phase_and_rest = |phase: Phase| Some((phase, text.strip_prefix(phase.as_str())?.strip_prefix(':')?));
    Phase::ALL.into_iter().find_map(phase_and_rest)
}

impl StageId {
    /// Returns whether this ID identifies the stage `stage` of the chain `chain`. In BCS, names may contain `/`, so the
    /// text `ns/a/b` may mean the stage `b` of the chain `ns/a`, or the stage `a/b` of the chain `ns`. Therefore only
    /// the joined text of both names is compared.
    pub fn identifies(&self, phase: Phase, chain: &str, stage: &str) -> bool {
        let joined_name = |chain: &str, stage: &str| format!("{chain}/{stage}");
        self.phase.is_none_or(|expected| expected == phase)
            && joined_name(&self.chain, &self.stage) == joined_name(chain, stage)
    }
}

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(phase) = self.phase {
            write!(f, "{}:", phase.as_str())?;
        }
        write!(f, "{}/{}", self.chain, self.stage)
    }
}

impl FromStr for StageId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (phase, name) = match split_phase(text) {
            Some((phase, name)) => (Some(phase), name),
            None => (None, text),
        };
        match name.rsplit_once('/') {
            Some((chain, stage)) if !chain.is_empty() && !stage.is_empty() => Ok(Self {
                phase,
                chain: chain.to_owned(),
                stage: stage.to_owned(),
            }),
            _ => Err(InvalidId::Stage(text.to_owned())),
        }
    }
}

as_text!(ChainId, StageId, Share);

#[cfg(test)]
mod tests;
