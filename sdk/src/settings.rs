//! Settings: parses JSON into the plugin's type, or reports every mistake with its path.

use std::fmt;

use jsonptr::Pointer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::pointer;

pub use crate::bindings::admittance::plugin::types::SettingsError;

/// A type that can be the settings of a plugin, such as a type with [`#[settings]`](macro@crate::settings). The traits
/// that a type must implement are not supertraits of this one, because then the compiler's errors would name them
/// instead of this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the settings of a plugin",
    label = "put `#[settings]` on `{Self}`",
    note = "settings own their values: a type with a lifetime cannot be settings, use `String` instead of `&str`",
    note = "a plugin without settings has `type Settings = NoSettings;`"
)]
pub trait Settings: Sized {
    /// Parses the operator's settings.
    ///
    /// # Errors
    /// Returns the mistakes in the settings.
    #[doc(hidden)]
    fn parse(json: &str) -> Result<Self, SettingsErrors>;

    /// Returns the JSON Schema of the settings.
    #[doc(hidden)]
    fn schema() -> Option<String>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> Settings for T {
    fn parse(json: &str) -> Result<Self, SettingsErrors> {
        parse(json)
    }

    fn schema() -> Option<String> {
        serde_json::to_string(&schemars::schema_for!(T)).ok()
    }
}

/// The settings of a plugin that has none. Anything but `{}` is a mistake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

impl SettingsError {
    /// Returns the place of the mistake in the settings, as a JSON Pointer; empty for the settings as a whole.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the message of the mistake: the problem, and how to fix it.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// All mistakes in the settings. The operator gets all of them at once.
///
/// ```
/// use admittance_sdk::{SettingsErrors, pointer};
///
/// fn check(names: &[&str]) -> Result<(), SettingsErrors> {
///     let mut errors = SettingsErrors::new();
///     for (index, name) in names.iter().enumerate() {
///         if name.is_empty() {
///             errors.push(pointer!["names", index], "a name is empty; give one, or remove the element");
///         }
///     }
///     errors.check()
/// }
/// assert!(check(&["a", "b"]).is_ok());
/// assert_eq!(check(&["", "b", ""]).unwrap_err().len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettingsErrors(Vec<SettingsError>);

impl SettingsErrors {
    /// Returns a list without mistakes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a list with one mistake: `Err(SettingsErrors::one(pointer!["registry"], "..."))`.
    pub fn one(pointer: impl AsRef<Pointer>, message: impl Into<String>) -> Self {
        let mut errors = Self::new();
        errors.push(pointer, message);
        errors
    }

    /// Adds a mistake: its path, and a message that says what is wrong and how to fix it.
    pub fn push(&mut self, pointer: impl AsRef<Pointer>, message: impl Into<String>) {
        self.0.push(SettingsError {
            pointer: pointer.as_ref().as_str().to_owned(),
            message: message.into(),
        });
    }

    /// Returns whether there are no mistakes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of mistakes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the mistakes, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, SettingsError> {
        self.0.iter()
    }

    /// Returns `Ok` if there are no mistakes, and otherwise the list. End a validation with `errors.check()?`.
    pub fn check(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }

    pub(crate) fn into_contract(self) -> Vec<SettingsError> {
        self.0
    }
}

impl<'a> IntoIterator for &'a SettingsErrors {
    type Item = &'a SettingsError;
    type IntoIter = std::slice::Iter<'a, SettingsError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for SettingsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, SettingsError { pointer, message }) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}settings at \"{pointer}\": {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsErrors {}

fn parse<S: DeserializeOwned>(json: &str) -> Result<S, SettingsErrors> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let settings = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| SettingsErrors::one(pointer::from_path(error.path()), pointer::message(error.inner())))?;
    deserializer
        .end()
        .map_err(|error| SettingsErrors::one(jsonptr::PointerBuf::new(), pointer::message(&error)))?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Sample {
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        by_key: std::collections::BTreeMap<String, ReadMode>,
        required: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum ReadMode {
        Fast,
    }

    #[test]
    fn an_error_of_serde_is_reported_with_its_path() {
        let table = [
            (
                "wrong type in a list",
                r#"{"required":1,"names":["a",5]}"#,
                "/names/1",
                "invalid type: integer `5`",
            ),
            ("wrong type", r#"{"required":"x"}"#, "/required", "invalid type: string"),
            (
                "out of range",
                r#"{"required":300}"#,
                "/required",
                "invalid value: integer `300`",
            ),
            ("missing", "{}", "", "missing field `required`"),
            (
                "unknown field",
                r#"{"required":1,"nmaes":[]}"#,
                "/nmaes",
                "unknown field `nmaes`",
            ),
            (
                "key to escape",
                r#"{"required":1,"byKey":{"a/b":"slow"}}"#,
                "/byKey/a~1b",
                "unknown variant `slow`",
            ),
            ("not an object", "5", "", "invalid type: integer `5`"),
            ("not JSON", "{", "", "EOF while parsing"),
            ("two values", r#"{"required":1} {}"#, "", "trailing characters"),
        ];
        for (name, json, pointer, message) in table {
            let errors = parse::<Sample>(json).expect_err(name);
            let error = errors.iter().next().expect(name);
            assert_eq!(error.pointer(), pointer, "{name}: {error:?}");
            assert!(error.message().starts_with(message), "{name}: {error:?}");
            assert!(!error.message().contains(" line "), "{name}: {error:?}");
        }
    }

    #[test]
    fn a_plugin_without_settings_accepts_only_an_empty_object() {
        assert_eq!(parse::<NoSettings>("{}"), Ok(NoSettings {}));
        assert!(parse::<NoSettings>(r#"{"a":1}"#).is_err());
    }
}
