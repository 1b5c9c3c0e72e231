use admittance_admission::Grants;
use serde::{Deserialize, Serialize};

/// A plugin's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// The name of the plugin: short, lower case, with hyphens.
    pub name: String,
    /// The version of the plugin itself, not of the contract.
    pub version: String,
    /// One or two sentences about the plugin, which help an operator to choose it.
    pub summary: String,
    /// Whether the plugin may answer with a patch or a replacement.
    pub mutates: bool,
    /// The resources that the plugin is made for. They are a hint to operators, and filter no requests.
    pub resources: Vec<ResourceHint>,
    /// The JSON Schema of the plugin's settings, exactly as the plugin returns it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settings_schema: Option<String>,
    /// The capabilities that the plugin requests. They are not granted automatically.
    pub capabilities: Vec<Capability>,
}

/// Resources that a plugin is made for. In each list, `*` stands for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceHint {
    /// The API groups of the resources; the empty string is the core group.
    pub api_groups: Vec<String>,
    /// The API versions of the resources, such as `v1`.
    pub api_versions: Vec<String>,
    /// The plural names of the resources, such as `pods`.
    pub resources: Vec<String>,
}

/// A capability that a plugin requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "camelCase")]
pub enum Capability {
    /// Reads a kind of resource from the control plane, such as `v1/Node`.
    #[display("allow.cluster: [{_0}]")]
    Cluster(String),
    /// Sends requests to an origin. `*` stands for any origin that the plugin's settings contain.
    #[display("allow.http: [{_0}]")]
    Http(String),
    /// Reads the environment variable with this name.
    #[display("allow.environment: {{{_0}: ...}}")]
    Environment(String),
}

impl Description {
    /// Lists the capability types that the stage grants although the plugin does not declare them. Only the types are
    /// compared: if the plugin declares an HTTP request to some origin, grants for other origins count as declared too.
    pub fn undeclared_capabilities(&self, grants: &Grants) -> Vec<&'static str> {
        let declares = |is_it: fn(&Capability) -> bool| self.capabilities.iter().any(is_it);
        let granted = [
            (
                "cluster",
                grants.cluster.is_empty() || declares(|capability| matches!(capability, Capability::Cluster(_))),
            ),
            (
                "http",
                grants.http.is_empty() || declares(|capability| matches!(capability, Capability::Http(_))),
            ),
            (
                "environment",
                grants.environment.is_empty()
                    || declares(|capability| matches!(capability, Capability::Environment(_))),
            ),
        ];
        let undeclared = granted.into_iter().filter(|(_, is_declared)| !is_declared);
        undeclared.map(|(name, _)| name).collect()
    }
}

/// The grant that a plugin needs for using an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// No grant: every plugin may use the interface.
    #[display("always available")]
    None,
    /// The grant `allow.cluster` of the stage.
    #[display("needs `allow.cluster`")]
    Cluster,
    /// The grant `allow.http` of the stage.
    #[display("needs `allow.http`")]
    Http,
    /// The grant `allow.environment` of the stage. Without it, the plugin's environment is empty.
    #[display("empty without `allow.environment`")]
    Environment,
    /// No stage can grant the interface: each call to it fails with `capability-denied`.
    #[display("never granted: a call that uses it fails")]
    Never,
}

/// The time at which a plugin is configured: once, or in every call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigurationTime {
    /// `configure` runs once, during preparation, and every call starts with a copy of the resulting memory.
    Snapshot,
    /// `configure` runs in every call, because a snapshot of the memory is impossible. Such calls are slower.
    PerCall {
        /// The reason why a snapshot is impossible.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_capabilities_of_undeclared_kinds_are_listed() {
        let mut description = Description {
            name: "a".into(),
            version: "1.0.0".into(),
            summary: String::new(),
            mutates: false,
            resources: Vec::new(),
            settings_schema: None,
            capabilities: Vec::new(),
        };
        let mut grants: Grants = "cluster=v1/Node".parse().unwrap();
        grants.extend("environment=A=b".parse().unwrap());
        assert_eq!(description.undeclared_capabilities(&grants), ["cluster", "environment"]);
        let declared = [Capability::Cluster("v1/Pod".into()), Capability::Http("*".into())];
        description.capabilities = declared.into();
        assert_eq!(description.undeclared_capabilities(&grants), ["environment"]);
        assert!(description.undeclared_capabilities(&Grants::default()).is_empty());
    }
}
