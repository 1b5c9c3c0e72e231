use serde::{Deserialize, Serialize};

/// The description that a plugin gives of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Short, in lower case with hyphens.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// One or two sentences for the operator who chooses it.
    pub summary: String,
    /// Whether it may answer with a patch or a replacement.
    pub mutates: bool,
    /// The resources that it is for: a hint, not a filter.
    pub resources: Vec<ResourceHint>,
    /// JSON Schema of its settings, as the plugin wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settings_schema: Option<String>,
    /// The capabilities that it asks for. They are not granted automatically.
    pub capabilities: Vec<Capability>,
}

/// Resources that a plugin is made for. `*` stands for any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceHint {
    /// API groups; the empty string is the core group.
    pub api_groups: Vec<String>,
    /// API versions.
    pub api_versions: Vec<String>,
    /// Plural names.
    pub resources: Vec<String>,
}

/// A capability that a plugin asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Capability {
    /// Read a kind of resource of the control plane: `v1/Node`.
    Cluster(String),
    /// Send requests to an origin; `*` for one from its settings.
    Http(String),
    /// Read an environment value of this name.
    Environment(String),
}

/// How a plugin is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Configured {
    /// Once, during preparation: every call starts from a copy of the resulting memory.
    Snapshot,
    /// In every call, because its memory cannot be snapshotted. Such calls are slower.
    PerCall {
        /// Why it cannot.
        reason: String,
    },
}
