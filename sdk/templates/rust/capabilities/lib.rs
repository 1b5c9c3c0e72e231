//! Refuses objects whose label differs from their namespace's.

use std::collections::BTreeMap;

use admittance_sdk::{cluster, prelude::*};

/// The label that must be the same as in the namespace.
#[settings]
pub struct Settings {
    /// The label's key.
    label: String,
}

/// The configured plugin.
pub struct NamespaceLabel {
    label: String,
}

// Only the fields that are needed, of the object and of its namespace.
#[view]
struct Object {
    metadata: Metadata,
}

#[view]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[plugin(resources = ["v1/pods", "apps/v1/deployments"], capabilities = [cluster("v1/Namespace")])]
impl Plugin for NamespaceLabel {
    type Settings = Settings;

    fn configure(Settings { label }: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if label.is_empty() {
            errors.push(pointer!["label"], "the label has no name; give one");
        }
        errors.check()?;
        Ok(Self { label })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        let (Some(object), Some(name)) = (request.object::<Object>()?, request.namespace()) else {
            return Ok(Response::allow());
        };
        // If a lookup fails, the stage fails, and its `failurePolicy` decides.
        let namespace = cluster::get::<Object>("v1", "Namespace", None, name)?;
        let key = &self.label;
        let expected = namespace.as_ref().and_then(|namespace| namespace.metadata.labels.get(key));
        match expected {
            Some(expected) if object.metadata.labels.get(key) != Some(expected) => Ok(Response::deny(format!(
                "metadata.labels: `{key}` must be `{expected}`, as in the namespace `{name}`"
            ))),
            _ => Ok(Response::allow()),
        }
    }
}

#[cfg(test)]
mod tests {
    use admittance_sdk::{serde_json::json, testing};

    use super::*;

    #[test]
    fn an_object_has_the_label_of_its_namespace() {
        let plugin = testing::configure::<NamespaceLabel>(json!({"label": "team"})).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}});
        testing::with_cluster([namespace], || {
            for (team, is_allowed) in [("a", true), ("b", false)] {
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"team": team}}});
                let outcome = testing::create(pod).namespace("shop").admit(&plugin).unwrap();
                assert_eq!(outcome.is_allowed(), is_allowed);
            }
        });
    }

    #[test]
    fn mistakes_in_the_settings_are_reported() {
        let errors = testing::configure::<NamespaceLabel>(json!({"label": ""})).err().unwrap();
        let pointers: Vec<_> = errors.iter().map(|error| error.pointer()).collect();
        assert_eq!(pointers, ["/label"]);
    }
}
