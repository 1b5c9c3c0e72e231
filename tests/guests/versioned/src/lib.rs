//! A plugin that tests can turn into any number of versions without a compiler. Its version is a string of fixed length
//! in its data, which tests overwrite in the component's bytes. Each version is a module with its own digest, and
//! writes its version into every answer.
//!
//! It uses the contract directly, because the SDK's `#[plugin]` needs a version that the compiler knows.

#[cfg(target_family = "wasm")]
mod component;
pub mod names;

use self::names::{GENERATION_OF, VERSION_OF};
use admittance_sdk::{
    serde::{Deserialize, de::IgnoredAny},
    serde_json,
};

/// The settings: what the patch writes besides the version of the plugin.
#[derive(Debug, Deserialize)]
#[serde(crate = "admittance_sdk::serde", deny_unknown_fields)]
pub struct Settings {
    /// The stage's name, which is part of the annotations' names.
    pub name: String,
    /// A number that a test chooses for its definitions. If it is set, the patch writes it into the object besides the
    /// version. From this number, the test can tell which definitions were used.
    pub generation: Option<u64>,
}

#[derive(Deserialize)]
#[serde(crate = "admittance_sdk::serde")]
struct VersionedObject {
    metadata: VersionMetadata,
}

#[derive(Deserialize)]
#[serde(crate = "admittance_sdk::serde")]
struct VersionMetadata {
    annotations: Option<IgnoredAny>,
}

/// Returns a JSON Patch that writes the version into the annotations of an object.
pub fn patch(settings: &Settings, version: &str, object: &str) -> Result<String, String> {
    let object: VersionedObject = serde_json::from_str(object).map_err(|error| error.to_string())?;
    let Settings { name, generation } = settings;
    let mut operations = Vec::new();
    if object.metadata.annotations.is_none() {
        operations.push(r#"{"op":"add","path":"/metadata/annotations","value":{}}"#.to_owned());
    }
    let mut annotate = |prefix: &str, value: &str| {
        operations.push(format!(
            r#"{{"op":"add","path":"/metadata/annotations/{prefix}~1{name}","value":"{value}"}}"#
        ));
    };
    annotate(VERSION_OF, version);
    if let Some(generation) = generation {
        annotate(GENERATION_OF, &generation.to_string());
    }
    Ok(format!("[{}]", operations.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_writes_the_version_and_the_generation_into_the_object() {
        let settings = |text| serde_json::from_str::<Settings>(text).expect("the settings are right");
        let table = [
            (
                r#"{"name":"a"}"#,
                r#"{"metadata":{"annotations":{}}}"#,
                r#"[{"op":"add","path":"/metadata/annotations/version.admittance.dev~1a","value":"v"}]"#,
            ),
            (
                r#"{"name":"a","generation":7}"#,
                r#"{"metadata":{}}"#,
                concat!(
                    r#"[{"op":"add","path":"/metadata/annotations","value":{}},"#,
                    r#"{"op":"add","path":"/metadata/annotations/version.admittance.dev~1a","value":"v"},"#,
                    r#"{"op":"add","path":"/metadata/annotations/generation.admittance.dev~1a","value":"7"}]"#,
                ),
            ),
        ];
        for (written, object, expected) in table {
            assert_eq!(patch(&settings(written), "v", object).as_deref(), Ok(expected));
        }
        assert!(patch(&settings(r#"{"name":"a"}"#), "v", "{").is_err());
    }
}
