use std::path::PathBuf;

use admittance_admission::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Moment;

/// A table that is or was live. It exists as long as the history keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Revision {
    /// The number of the revision, from 1.
    pub number: u64,
    /// The content hash of its table, which is the same on every replica; absent if an older version of the program
    /// wrote the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub hash: Option<Digest>,
    /// The time at which the revision first went live.
    pub at: Moment,
    /// The action that created the revision.
    pub origin: Origin,
    /// The user who requested the change; absent if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The number of chains in the table.
    pub chains: usize,
    /// The plugins in the table, with their modules.
    pub modules: Vec<RevisionModule>,
}

/// The action that created a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Origin {
    /// The program's start.
    Start,
    /// A change of stored definitions or of module files.
    Files,
    /// A module that is refreshed on a schedule has changed.
    Refreshed,
    /// `apply`: definitions were written.
    Applied,
    /// `delete`: a definition was removed.
    Deleted,
    /// `promote`: a candidate became the plugin.
    Promoted {
        /// The stage, by phase, chain and name: `Mutating:pods/images`.
        stage: String,
    },
    /// `rollback`: an earlier revision went live again, until the files change.
    RolledBack {
        /// The earlier revision.
        to: u64,
    },
}

/// A plugin of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RevisionModule {
    /// The stage, by phase, chain and name: `Mutating:pods/images`.
    pub stage: String,
    /// Whether the plugin is the stage's candidate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub candidate: bool,
    /// The source of the module.
    pub source: String,
    /// The sha256 digest of the module.
    pub digest: String,
    /// The plugin's own name.
    pub plugin: String,
    /// The plugin's own version.
    pub version: String,
}

/// A revision with its definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RevisionDetail {
    /// The revision without its definitions.
    #[serde(flatten)]
    pub revision: Revision,
    /// The definition files of the revision.
    pub files: Vec<RevisionFile>,
}

impl RevisionDetail {
    /// Returns the differences from this revision to another one.
    pub fn compare(&self, to: &Self) -> Comparison {
        super::compare(self, to)
    }
}

/// A definition file of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RevisionFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
}

/// The differences between two revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Comparison {
    /// The number of the first revision, usually the older one.
    pub from: u64,
    /// The number of the second revision.
    pub to: u64,
    /// The definition files, as a unified diff; empty when they are the same.
    pub text: String,
    /// The plugins that were changed, added or removed.
    pub modules: Vec<ModuleChange>,
}

/// A plugin that was changed, added or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModuleChange {
    /// Phase, chain and stage.
    pub stage: String,
    /// Whether the plugin is the stage's candidate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub candidate: bool,
    /// The plugin before the change; absent if it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RevisionModule>,
    /// The plugin after the change; absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RevisionModule>,
}
