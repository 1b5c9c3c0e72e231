use std::path::PathBuf;

use admittance_admission::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Moment;

/// A table that is or was live, as the history keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Revision {
    /// The number of the revision. The first revision has number 1.
    pub number: u64,
    /// The content hash of the revision's table, which is the same on every replica; absent if an older version of the
    /// program wrote the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub hash: Option<Digest>,
    /// The time at which the revision first went live.
    pub at: Moment,
    /// The action that created the revision.
    pub origin: Origin,
    /// The user who requested the change that created the revision; absent if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The number of chains in the revision's table.
    pub chains: usize,
    /// The plugins in the revision's table, with their modules.
    pub modules: Vec<RevisionModule>,
}

/// The action that created a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Origin {
    /// The program was started.
    Start,
    /// Stored definitions or module files were changed.
    Files,
    /// A scheduled refresh of a module found that the module had changed.
    Refreshed,
    /// The command `apply` wrote definitions.
    Applied,
    /// The command `delete` removed a definition.
    Deleted,
    /// The command `promote` replaced the plugin of a stage by its candidate.
    Promoted {
        /// The stage whose candidate was promoted, by phase, chain and name: `Mutating:pods/images`.
        stage: String,
    },
    /// The command `rollback` restored an earlier revision, which is live until the definitions change.
    RolledBack {
        /// The number of the restored revision.
        to: u64,
    },
}

/// A plugin in the table of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RevisionModule {
    /// The stage that the plugin belongs to, by phase, chain and name: `Mutating:pods/images`.
    pub stage: String,
    /// Whether the plugin is the stage's candidate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub candidate: bool,
    /// The source of the plugin's module.
    pub source: String,
    /// The sha256 digest of the plugin's module.
    pub digest: String,
    /// The name that the plugin gives itself.
    pub plugin: String,
    /// The version that the plugin gives itself.
    pub version: String,
}

/// A revision, with its definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RevisionDetail {
    /// The revision, without its definitions.
    #[serde(flatten)]
    pub revision: Revision,
    /// The definition files of the revision, as they were then.
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
    /// The path of the definition file.
    pub path: PathBuf,
    /// The content that the definition file had in this revision.
    pub text: String,
}

/// The differences between two revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Comparison {
    /// The number of the first of the two revisions, usually the older one.
    pub from: u64,
    /// The number of the second revision.
    pub to: u64,
    /// A unified diff of the definition files; empty if they are the same.
    pub text: String,
    /// The plugins that were changed, added or removed.
    pub modules: Vec<ModuleChange>,
}

/// A plugin that differs between two revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModuleChange {
    /// The stage that the plugin belongs to, by phase, chain and name.
    pub stage: String,
    /// Whether the plugin is the stage's candidate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub candidate: bool,
    /// The plugin in the first revision; absent if it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RevisionModule>,
    /// The plugin in the second revision; absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RevisionModule>,
}
