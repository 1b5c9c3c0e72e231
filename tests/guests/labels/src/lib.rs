//! The Kubewarden policy of `tests/policies` as a plugin: it requires a label and adds others.

use std::collections::BTreeMap;

use admittance_sdk::prelude::*;

/// The settings of the policy in `tests/policies`.
#[settings]
#[derive(Debug)]
pub struct Settings {
    /// The label that every object must have.
    pub required: Option<String>,
    /// Labels to add.
    #[serde(default)]
    pub add: BTreeMap<String, String>,
}

/// The configured plugin.
#[derive(Debug)]
pub struct Labels(Settings);

#[view]
struct LabeledObject {
    metadata: LabelMetadata,
}

#[view]
struct LabelMetadata {
    labels: Option<BTreeMap<String, String>>,
}

#[plugin(mutates)]
impl Plugin for Labels {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self(settings))
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        let Some(object) = request.object::<LabeledObject>()? else {
            return Ok(Response::allow());
        };
        let labels = object.metadata.labels;
        if let Some(required) = &self.0.required
            && labels.as_ref().is_none_or(|labels| !labels.contains_key(required))
        {
            return Ok(Response::deny(format!("the label `{required}` is missing")));
        }
        let mut patch = Patch::new();
        patch.ensure_object(pointer!["metadata", "labels"], labels.is_some());
        for (label, value) in &self.0.add {
            patch.add(pointer!["metadata", "labels", label], value)?;
        }
        Ok(Response::patch(patch))
    }
}
