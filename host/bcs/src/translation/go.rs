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
    pub(crate) fn accept(&self, value: &Value) -> Result<(), String> {
        let mut found = Vec::new();
        self.check(value, "", &mut found);
        let more = found.len().saturating_sub(MAX_REPORTED);
        found.truncate(MAX_REPORTED);
        match (found.is_empty(), more) {
            (true, _) => Ok(()),
            (false, 0) => Err(found.join("; ")),
            (false, more) => Err(format!("{}; and {more} more mistakes", found.join("; "))),
        }
    }

    /// Returns the path of every key that a value of this type can have, as a pattern.
    pub(crate) fn patterns(&self) -> Vec<PointerPattern> {
        // All paths are valid patterns, as a test checks, so `ok` drops none of them.
        self.places()
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect()
    }

    pub(crate) fn places(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_places("", &mut found);
        found
    }

    fn check(&self, value: &Value, place: &str, found: &mut Vec<String>) {
        let right = match (self, value) {
            (_, Value::Null) | (Self::Any, _) => true,
            (Self::Text, value) => value.is_string(),
            (Self::Time, value) => {
                let is_time = |text| OffsetDateTime::parse(text, &Rfc3339).is_ok();
                value.as_str().is_some_and(is_time)
            }
            (Self::Flag, value) => value.is_boolean(),
            (Self::Number, value) => value.is_number(),
            (Self::Integer(width), value) => width.holds(value),
            (Self::Texts, Value::Object(members)) => {
                for (key, value) in members {
                    Self::Text.check(value, &below(place, key), found);
                }
                true
            }
            (Self::List(element), Value::Array(values)) => {
                for (index, value) in values.iter().enumerate() {
                    let place = format!("{place}[{index}]");
                    if value.is_null() && matches!(element, Self::Struct(_)) {
                        found.push(format!("{place} is null"));
                    }
                    element.check(value, &place, found);
                }
                true
            }
            (Self::Struct(fields), Value::Object(members)) => {
                for Field(key, kind) in *fields {
                    if let Some(value) = members.get(*key) {
                        kind.check(value, &below(place, key), found);
                    }
                }
                true
            }
            (Self::Texts | Self::List(_) | Self::Struct(_), _) => false,
        };
        if !right {
            let place = if place.is_empty() { "the body" } else { place };
            found.push(format!("{place} is not {}", self.expected()));
        }
    }

    fn collect_places(&self, place: &str, found: &mut Vec<String>) {
        match self {
            Self::Struct(fields) => {
                for Field(key, kind) in *fields {
                    let place = format!("{place}/{key}");
                    found.push(place.clone());
                    kind.collect_places(&place, found);
                }
            }
            Self::List(element) => element.collect_places(&format!("{place}/*"), found),
            _ => {}
        }
    }

    fn expected(&self) -> &'static str {
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
    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Signed32 => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Self::Signed64 => value.is_i64(),
            Self::Unsigned32 => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            Self::Unsigned64 => value.is_u64(),
        }
    }
}

fn below(place: &str, key: &str) -> String {
    if place.is_empty() {
        key.to_owned()
    } else {
        format!("{place}.{key}")
    }
}
