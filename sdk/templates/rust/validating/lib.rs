//! Refuses objects that do not carry a label.

use std::collections::BTreeMap;

use admittance_sdk::prelude::*;

/// The label that every object must carry.
#[settings]
pub struct Settings {
    /// The label's key.
    label: String,
    /// The allowed values; if there are none, any value is allowed.
    #[serde(default)]
    values: Vec<String>,
}

/// The configured plugin.
pub struct RequireLabel {
    label: String,
    values: Vec<String>,
}

// Only the fields that are needed. The rest of the object is skipped, not parsed.
#[view]
struct Object {
    metadata: Metadata,
}

#[view]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[plugin(resources = ["v1/pods", "apps/v1/deployments"])]
impl Plugin for RequireLabel {
    type Settings = Settings;

    fn configure(Settings { label, values }: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if label.is_empty() {
            errors.push(pointer!["label"], "the label has no name; give one");
        }
        for (index, value) in values.iter().enumerate() {
            if value.is_empty() {
                errors.push(pointer!["values", index], "a value is empty; give one, or remove it");
            }
        }
        errors.check()?;
        Ok(Self { label, values })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        let Some(object) = request.object::<Object>()? else {
            return Ok(Response::allow());
        };
        let key = &self.label;
        match object.metadata.labels.get(key) {
            None => Ok(Response::deny(format!("metadata.labels: `{key}` is missing; add it"))),
            Some(value) if !self.values.is_empty() && !self.values.contains(value) => {
                let values = self.values.join(", ");
                Ok(Response::deny(format!("metadata.labels: `{key}` is `{value}`; use one of: {values}")))
            }
            Some(_) => Ok(Response::allow()),
        }
    }
}

#[cfg(test)]
mod tests {
    use admittance_sdk::{serde_json::json, testing};

    use super::*;

    #[test]
    fn an_object_without_the_label_is_refused() {
        let plugin = testing::configure::<RequireLabel>(json!({"label": "team"})).unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}});
        let outcome = testing::create(pod).namespace("shop").admit(&plugin).unwrap();
        assert_eq!(outcome.denial().unwrap().message, "metadata.labels: `team` is missing; add it");
    }

    #[test]
    fn every_mistake_in_the_settings_is_reported() {
        let errors = testing::configure::<RequireLabel>(json!({"label": "", "values": [""]})).err().unwrap();
        let pointers: Vec<_> = errors.iter().map(|error| error.pointer()).collect();
        assert_eq!(pointers, ["/label", "/values/0"]);
    }
}
