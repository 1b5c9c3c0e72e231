use std::{fmt, str::FromStr};

use admittance_admission::Request;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

/// Values of an object that are redacted: a JSON Pointer in which `*` stands for every key or index,
/// `/spec/containers/*/env/*/value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Any,
    Key(String),
}

/// A text that is not a valid redaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid field: write a JSON Pointer, with `*` for every key or index, `/spec/containers/*/env/*/value`"
)]
pub struct InvalidRedaction(pub String);

/// The placeholder of a redacted value.
const REDACTED: &str = "[redacted]";

impl FromStr for Redaction {
    type Err = InvalidRedaction;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = text
            .strip_prefix('/')
            .filter(|path| !path.is_empty())
            .ok_or_else(|| InvalidRedaction(text.to_owned()))?;
        Ok(Self(path.split('/').map(Token::read).collect()))
    }
}

impl fmt::Display for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| match token {
            Token::Any => f.write_str("/*"),
            Token::Key(key) => write!(f, "/{}", key.replace('~', "~0").replace('/', "~1")),
        })
    }
}

impl Token {
    fn read(text: &str) -> Self {
        match text {
            "*" => Self::Any,
            key => Self::Key(unescape(key)),
        }
    }

    fn matches(&self, key: &str) -> bool {
        match self {
            Self::Any => true,
            // The end of a list, to which a patch appends, may be any index.
            Self::Key(own) => own == key || key == "-",
        }
    }
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Redacts these values, and secrets, in request and response of a review. Returns the number of redacted
/// values.
pub(super) fn apply(
    request: &Request,
    redactions: &[Redaction],
    asked: &mut Value,
    answered: &mut Value,
) -> usize {
    let is_secret = request.kind.group.is_empty() && request.kind.kind == "Secret";
    let own = if is_secret {
        [
            "/data/*",
            "/stringData/*",
            "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        ]
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect()
    } else {
        Vec::new()
    };
    let mut count = 0;
    for redaction in redactions.iter().chain(&own) {
        for name in ["object", "oldObject"] {
            if let Some(object) = asked.get_mut(name) {
                count += redact(object, &redaction.0);
            }
        }
    }
    if let Some(patch) = answered.get_mut("patch") {
        let decoded = patch.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        let operations = decoded.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if let Some(mut operations) = operations {
            for redaction in redactions.iter().chain(&own) {
                count += redact_patch(&mut operations, &redaction.0);
            }
            *patch = Value::String(BASE64_STANDARD.encode(operations.to_string()));
        }
    }
    count
}

/// Replaces the values at the path.
fn redact(value: &mut Value, path: &[Token]) -> usize {
    let Some((token, rest)) = path.split_first() else {
        return match value {
            Value::Null => 0,
            value if value == REDACTED => 0,
            value => {
                *value = Value::String(REDACTED.to_owned());
                1
            }
        };
    };
    match value {
        Value::Object(fields) => fields
            .iter_mut()
            .filter(|(key, _)| token.matches(key))
            .map(|(_, value)| redact(value, rest))
            .sum(),
        Value::Array(entries) => entries
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| token.matches(&index.to_string()))
            .map(|(_, value)| redact(value, rest))
            .sum(),
        _ => 0,
    }
}

/// An operation may write a redacted value, a part of it, or a value that contains it.
fn redact_patch(operations: &mut Value, path: &[Token]) -> usize {
    let operations = operations
        .as_array_mut()
        .map(Vec::as_mut_slice)
        .unwrap_or_default();
    operations
        .iter_mut()
        .map(|operation| {
            let target = operation.get("path").and_then(Value::as_str).unwrap_or_default();
            let target: Vec<String> = target.split('/').skip(1).map(unescape).collect();
            let is_on_the_way = path.iter().zip(&target).all(|(token, key)| token.matches(key));
            match operation.get_mut("value") {
                Some(value) if is_on_the_way => redact(value, path.get(target.len()..).unwrap_or_default()),
                _ => 0,
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use admittance_admission::{GroupVersionKind, Operation};
    use serde_json::json;

    use super::*;

    fn request(kind: &str) -> Request {
        let kind = GroupVersionKind::from_api_version("v1", kind);
        let resource = kind.guess_resource();
        Request::new(Operation::Create, kind, resource)
    }

    #[test]
    fn named_values_are_left_out() {
        let object =
            json!({"a": {"b": "1", "c/d": "2"}, "list": [{"v": 1}, {"v": 2}, {"w": 3}], "null": null});
        for (redaction, expected, count) in [
            ("/a/b", json!({"a": {"b": REDACTED, "c/d": "2"}}), 1),
            ("/a/c~1d", json!({"a": {"b": "1", "c/d": REDACTED}}), 1),
            ("/a", json!({"a": REDACTED}), 1),
            ("/a/*", json!({"a": {"b": REDACTED, "c/d": REDACTED}}), 2),
            (
                "/list/*/v",
                json!({"list": [{"v": REDACTED}, {"v": REDACTED}, {"w": 3}]}),
                2,
            ),
            (
                "/list/1/v",
                json!({"list": [{"v": 1}, {"v": REDACTED}, {"w": 3}]}),
                1,
            ),
            ("/a/b/c", json!({}), 0),
            ("/null", json!({}), 0),
            ("/none", json!({}), 0),
        ] {
            let parsed: Redaction = redaction.parse().unwrap();
            assert_eq!(parsed.to_string(), redaction);
            let mut asked = json!({"object": object, "oldObject": object});
            let found = apply(&request("Pod"), &[parsed], &mut asked, &mut json!({}));
            let mut whole = object.clone();
            for (key, value) in expected.as_object().unwrap() {
                whole[key] = value.clone();
            }
            assert_eq!(asked, json!({"object": whole, "oldObject": whole}), "{redaction}");
            assert_eq!(found, 2 * count, "{redaction}");
        }
        for wrong in ["", "/", "a/b"] {
            assert!(wrong.parse::<Redaction>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn patches_do_not_tell_it_either() {
        let patch = json!([
            {"op": "add", "path": "/a/b", "value": "secret"},
            {"op": "add", "path": "/a", "value": {"b": "secret", "c": "open"}},
            {"op": "replace", "path": "/a/b/deep", "value": "secret"},
            {"op": "add", "path": "/list/-", "value": {"v": "secret"}},
            {"op": "add", "path": "/c", "value": "open"},
            {"op": "remove", "path": "/a/b"},
        ]);
        let redactions = ["/a/b", "/list/*/v"].map(|text| text.parse().unwrap());
        let mut answered = json!({"patch": BASE64_STANDARD.encode(patch.to_string())});
        let count = apply(&request("Pod"), &redactions, &mut json!({}), &mut answered);
        let text = BASE64_STANDARD
            .decode(answered["patch"].as_str().unwrap())
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert_eq!((text.matches("open").count(), count), (2, 4), "{text}");
    }

    #[test]
    fn what_secrets_hold_is_never_told() {
        let secret = json!({"data": {"a": "x"}, "stringData": {"b": "x"}, "type": "Opaque"});
        let mut asked = json!({"object": secret, "oldObject": null});
        assert_eq!(apply(&request("Secret"), &[], &mut asked, &mut json!({})), 2);
        let expected = json!({"data": {"a": REDACTED}, "stringData": {"b": REDACTED}, "type": "Opaque"});
        assert_eq!(asked["object"], expected);
        let mut asked = json!({"object": secret});
        assert_eq!(apply(&request("ConfigMap"), &[], &mut asked, &mut json!({})), 0);
    }
}
