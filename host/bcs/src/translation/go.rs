//! Types that decode JSON as Go's decoder does in bcs-mesos-driver and the scheduler.

use admittance_admission::PointerPattern;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The maximum number of mistakes in a message.
const MAX_REPORTED: usize = 16;

/// A type of a Go program. `null` is accepted for every type, and means the type's zero value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GoType {
    /// `string`, and named types based on it.
    Text,
    /// `time.Time`, in the format of RFC 3339.
    Time,
    Flag,
    /// `int`, `int32` and `int64`, and named types based on them. bcs-mesos-driver truncates values that are too large;
    /// here, they are errors.
    Integer(Width),
    /// `float64`.
    Number,
    /// `map[string]string`.
    Texts,
    /// A slice of Go. No object in it may be `null`: in some lists, that crashes bcs-mesos-driver.
    List(&'static GoType),
    /// A struct of Go. Unknown keys are ignored.
    Struct(&'static [Field]),
    /// `interface{}`.
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    Signed32,
    Signed64,
    Unsigned32,
    Unsigned64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field(pub(crate) &'static str, pub(crate) GoType);

impl GoType {
    /// Checks that a JSON value can be decoded as this type. Its keys must be spelled as in the type, including case.
    pub(crate) fn check_value(&self, value: &Value) -> Result<(), String> {
        let mut mistakes = Vec::new();
        self.check(value, "", &mut mistakes);
        let more = mistakes.len().saturating_sub(MAX_REPORTED);
        mistakes.truncate(MAX_REPORTED);
        match (mistakes.is_empty(), more) {
            (true, _) => Ok(()),
            (false, 0) => Err(mistakes.join("; ")),
            (false, more) => Err(format!("{}; and {more} more mistakes", mistakes.join("; "))),
        }
    }

    /// Returns the path of every key that a value of this type can have, as a pattern.
    pub(crate) fn patterns(&self) -> Vec<PointerPattern> {
        // All paths are valid patterns, as a test checks, so `ok` drops none of them.
        self.key_paths().iter().filter_map(|text| text.parse().ok()).collect()
    }

    pub(crate) fn key_paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_key_paths("", &mut paths);
        paths
    }

    fn check(&self, value: &Value, path: &str, mistakes: &mut Vec<String>) {
        let is_valid = match (self, value) {
            (_, Value::Null) | (Self::Any, _) => true,
            (Self::Text, value) => value.is_string(),
            (Self::Time, value) => {
                let is_time = |text| OffsetDateTime::parse(text, &Rfc3339).is_ok();
                value.as_str().is_some_and(is_time)
            }
            (Self::Flag, value) => value.is_boolean(),
            (Self::Number, value) => value.is_number(),
            (Self::Integer(width), value) => width.can_hold(value),
            (Self::Texts, Value::Object(members)) => {
                for (key, value) in members {
                    Self::Text.check(value, &member_path(path, key), mistakes);
                }
                true
            }
            (Self::List(element), Value::Array(values)) => {
                for (index, value) in values.iter().enumerate() {
                    let item_path = format!("{path}[{index}]");
                    if value.is_null() && matches!(element, Self::Struct(_)) {
                        mistakes.push(format!("{item_path} is null"));
                    }
                    element.check(value, &item_path, mistakes);
                }
                true
            }
            (Self::Struct(fields), Value::Object(members)) => {
                for Field(key, kind) in *fields {
                    if let Some(value) = members.get(*key) {
                        kind.check(value, &member_path(path, key), mistakes);
                    }
                }
                true
            }
            (Self::Texts | Self::List(_) | Self::Struct(_), _) => false,
        };
        if !is_valid {
            let subject = if path.is_empty() { "the body" } else { path };
            mistakes.push(format!("{subject} is not {}", self.expected_text()));
        }
    }

    fn collect_key_paths(&self, parent_path: &str, paths: &mut Vec<String>) {
        match self {
            Self::Struct(fields) => {
                for Field(key, kind) in *fields {
                    let path = format!("{parent_path}/{key}");
                    paths.push(path.clone());
                    kind.collect_key_paths(&path, paths);
                }
            }
            Self::List(element) => element.collect_key_paths(&format!("{parent_path}/*"), paths),
            _ => {}
        }
    }

    fn expected_text(&self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Time => "a time, such as 2024-01-31T12:00:00Z",
            Self::Flag => "true or false",
            Self::Integer(Width::Signed32) => "a 32-bit integer",
            Self::Integer(Width::Signed64) => "an integer",
            Self::Integer(Width::Unsigned32) => "an unsigned 32-bit integer",
            Self::Integer(Width::Unsigned64) => "an unsigned integer",
            Self::Number => "a number",
            Self::Texts => "an object of strings",
            Self::List(_) => "a list",
            Self::Struct(_) => "an object",
            Self::Any => "anything",
        }
    }
}

impl Width {
    fn can_hold(self, value: &Value) -> bool {
        match self {
            Self::Signed32 => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Self::Signed64 => value.is_i64(),
            Self::Unsigned32 => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            Self::Unsigned64 => value.is_u64(),
        }
    }
}

fn member_path(parent_path: &str, key: &str) -> String {
    if parent_path.is_empty() {
        key.to_owned()
    } else {
        format!("{parent_path}.{key}")
    }
}
