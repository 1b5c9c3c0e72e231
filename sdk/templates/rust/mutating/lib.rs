//! Adds a label to objects without it.

use std::collections::BTreeMap;

use admittance_sdk::prelude::*;

/// The label that objects get.
#[settings]
pub struct Settings {
    /// The label's key.
    label: String,
    /// The value for objects without the label.
    value: String,
}

/// The configured plugin.
pub struct DefaultLabel {
    label: String,
    value: String,
}

// Only the fields that are needed. The rest of the object is skipped, not parsed.
#[view]
struct Object {
    metadata: Metadata,
}

#[view]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
}

#[plugin(mutates, resources = ["v1/pods", "apps/v1/deployments"])]
impl Plugin for DefaultLabel {
    type Settings = Settings;

    fn configure(Settings { label, value }: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if label.is_empty() {
            errors.push(pointer!["label"], "the label has no name; give one");
        }
        errors.check()?;
        Ok(Self { label, value })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        let Some(object) = request.object::<Object>()? else {
            return Ok(Response::allow());
        };
        let labels = object.metadata.labels;
        let mut patch = Patch::new();
        if !labels.as_ref().is_some_and(|labels| labels.contains_key(&self.label)) {
            patch.ensure_object(pointer!["metadata", "labels"], labels.is_some());
            patch.add(pointer!["metadata", "labels", &self.label], &self.value)?;
        }
        Ok(Response::patch(patch))
    }
}

#[cfg(test)]
mod tests {
    use admittance_sdk::{serde_json::json, testing};

    use super::*;

    #[test]
    fn an_object_without_the_label_gets_it() {
        let plugin = testing::configure::<DefaultLabel>(json!({"label": "team", "value": "unknown"})).unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}});
        let outcome = testing::create(pod).namespace("shop").admit(&plugin).unwrap();
        assert_eq!(outcome.at("/metadata/labels/team"), Some(&json!("unknown")));
    }

    #[test]
    fn a_label_keeps_its_value() {
        let plugin = testing::configure::<DefaultLabel>(json!({"label": "team", "value": "unknown"})).unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"team": "shop"}}});
        let outcome = testing::create(pod).namespace("shop").admit(&plugin).unwrap();
        assert_eq!(outcome.at("/metadata/labels/team"), Some(&json!("shop")));
    }
}
