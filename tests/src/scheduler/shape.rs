//! The types that the original scheduler can decode from JSON.

use http::{
    HeaderMap,
    header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST},
};
use serde_json::Value;

/// A type of JSON values. As in Go, null is a value of every type, and an object may have members that are not listed.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyShape {
    Text,
    Whole,
    Number,
    Flag,
    OneOf(&'static [&'static str]),
    StringMap,
    List(&'static Self),
    Object(&'static [ObjectField]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectField(pub(super) &'static str, pub(super) ShapeMember);

#[derive(Clone, Copy, Debug)]
pub(super) enum ShapeMember {
    Must(&'static BodyShape),
    May(&'static BodyShape),
}

pub(super) const fn must(shape: &'static BodyShape) -> ShapeMember {
    ShapeMember::Must(shape)
}

pub(super) const fn may(shape: &'static BodyShape) -> ShapeMember {
    ShapeMember::May(shape)
}

impl BodyShape {
    pub(super) fn check(&self, path: &str, value: &Value, problems: &mut Vec<String>) {
        let is = match (self, value) {
            (_, Value::Null) => true,
            (Self::Text, value) => value.is_string(),
            (Self::Whole, value) => value.is_i64() || value.is_u64(),
            (Self::Number, value) => value.is_number(),
            (Self::Flag, value) => value.is_boolean(),
            (Self::OneOf(texts), value) => value.as_str().is_some_and(|text| texts.contains(&text)),
            (Self::StringMap, Value::Object(members)) => members.values().all(Value::is_string),
            (Self::List(shape), Value::Array(elements)) => {
                for (index, element) in elements.iter().enumerate() {
                    shape.check(&format!("{path}[{index}]"), element, problems);
                }
                true
            }
            (Self::Object(fields), Value::Object(members)) => {
                for ObjectField(name, member) in *fields {
                    match (member, members.get(*name)) {
                        (ShapeMember::Must(shape) | ShapeMember::May(shape), Some(value)) => {
                            shape.check(&format!("{path}.{name}"), value, problems);
                        }
                        (ShapeMember::Must(_), None) => problems.push(format!("{path}.{name} is not there")),
                        (ShapeMember::May(_), None) => {}
                    }
                }
                true
            }
            (Self::StringMap | Self::List(_) | Self::Object(_), _) => false,
        };
        if !is {
            problems.push(format!("{path} is {value}, not {self:?}"));
        }
    }
}

/// Checks the headers of a request that a driver has sent, and returns the problems. The real driver does not forward
/// the headers of its own clients, so each header that the driver would not set itself is a problem.
pub(super) fn header_problems(headers: &HeaderMap, body: &[u8]) -> Vec<String> {
    let mut problems = Vec::new();
    for name in headers.keys() {
        if ![ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST].contains(name) {
            problems.push(format!("it has the header {name}"));
        }
    }
    for name in [ACCEPT, CONTENT_TYPE] {
        let values: Vec<_> = headers.get_all(&name).iter().collect();
        if values != ["application/json"] {
            problems.push(format!("{name} is {values:?}"));
        }
    }
    let encodings: Vec<_> = headers.get_all(ACCEPT_ENCODING).iter().collect();
    if !encodings.is_empty() && encodings != ["identity"] {
        problems.push(format!("{ACCEPT_ENCODING} is {encodings:?}"));
    }
    let length = headers.get(CONTENT_LENGTH);
    let expected = body.len().to_string();
    if length.is_some_and(|length| length.as_bytes() != expected.as_bytes()) {
        problems.push(format!("Content-Length is {length:?} for {expected} bytes"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::types::VERSION, *};

    #[test]
    fn a_body_that_the_scheduler_cannot_decode_is_reported() {
        const SHAPE: BodyShape = BodyShape::Object(&[
            ObjectField("name", must(&BodyShape::Text)),
            ObjectField("count", may(&BodyShape::Whole)),
            ObjectField("mode", may(&BodyShape::OneOf(&["RW", "R"]))),
            ObjectField("labels", may(&BodyShape::StringMap)),
            ObjectField("many", may(&BodyShape::List(&BodyShape::Number))),
            ObjectField("is", may(&BodyShape::Flag)),
        ]);
        for (value, expected) in [
            (json!({"name": "a", "other": 1}), ""),
            (json!({"name": null, "count": null}), ""),
            (
                json!({"name": "a", "count": 2, "mode": "R", "labels": {"a": "b"}, "many": [1, 2.5], "is": true}),
                "",
            ),
            (json!({}), "b.name is not there"),
            (json!({"name": 1}), "b.name is 1, not Text"),
            (json!({"name": "a", "count": 1.5}), "b.count is 1.5, not Whole"),
            (
                json!({"name": "a", "mode": "W"}),
                "b.mode is \"W\", not OneOf([\"RW\", \"R\"])",
            ),
            (
                json!({"name": "a", "labels": {"a": 1}}),
                "b.labels is {\"a\":1}, not StringMap",
            ),
            (json!({"name": "a", "many": [1, "2"]}), "b.many[1] is \"2\", not Number"),
            (json!({"name": "a", "is": 0}), "b.is is 0, not Flag"),
        ] {
            let mut problems = Vec::new();
            SHAPE.check("b", &value, &mut problems);
            assert_eq!(problems.join("; "), expected, "{value}");
        }
        let mut problems = Vec::new();
        VERSION.check(
            "b",
            &json!({"kind": "application", "metadata": {"name": "a"}}),
            &mut problems,
        );
        assert!(problems.contains(&"b.ID is not there".to_owned()), "{problems:?}");
    }
}
