use std::{fmt, ops::Deref, str::FromStr};

use admittance_admission::{HttpAnswer, Patch, REDACTED, Request, unescaped_token};
use base64::{Engine, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A part of a request or its response after redaction. All that is recorded has this type, and only redaction creates
/// it, so nothing is recorded without being redacted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Redacted<T = Value>(T);

impl<T> Redacted<T> {
    /// Returns the redacted value without the type that proves the redaction, for code that does not record the value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Redacted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Redacted {
    pub(crate) fn remove_patch_values(&mut self) {
        for operation in self.0.as_array_mut().into_iter().flatten() {
            if let Some(operation) = operation.as_object_mut() {
                operation.remove("value");
            }
        }
    }

    /// Shortens a patch to about `max_size` bytes. Returns the number of operations that were cut off its end.
    pub(crate) fn shorten_patch(&mut self, max_size: usize) -> usize {
        if self.0.to_string().len() <= max_size {
            return 0;
        }
        self.remove_patch_values();
        let Some(operations) = self.0.as_array_mut() else {
            return 0;
        };
        let (operation_count, mut bytes) = (operations.len(), 0);
        let fits = |operation: &&Value| {
            bytes += operation.to_string().len();
            bytes <= max_size
        };
        let kept_count = operations.iter().take_while(fits).count();
        operations.truncate(kept_count);
        operation_count - kept_count
    }
}

/// Selects values in objects that are redacted. It is a JSON Pointer in which `*` stands for every key or index, such
/// as `/spec/containers/*/env/*/value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction(Vec<PointerToken>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PointerToken {
    Any,
    Key(String),
}

/// The text is not a valid path for a redaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid field: write a JSON Pointer, with `*` for every key or index, `/spec/containers/*/env/*/value`"
)]
pub struct InvalidRedaction(pub String);

impl FromStr for Redaction {
    type Err = InvalidRedaction;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = text
            .strip_prefix('/')
            .filter(|path| !path.is_empty())
            .ok_or_else(|| InvalidRedaction(text.to_owned()))?;
        Ok(Self(path.split('/').map(PointerToken::read).collect()))
    }
}

impl fmt::Display for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| match token {
            PointerToken::Any => f.write_str("/*"),
            PointerToken::Key(key) => write!(f, "/{}", key.replace('~', "~0").replace('/', "~1")),
        })
    }
}

impl PointerToken {
    fn read(text: &str) -> Self {
        match text {
            "*" => Self::Any,
            key => Self::Key(unescaped_token(key)),
        }
    }

    fn matches(&self, key: &str) -> bool {
        match self {
            Self::Any => true,
            // A patch that appends an item to a list has `-` in its path instead of the item's index. If the redaction
            // names an index, the new item may have this index, so the item is redacted.
            Self::Key(own) => own == key || key == "-",
        }
    }
}

pub(crate) fn redact_object(request: &Request, redactions: &[Redaction], mut object: Value) -> Redacted {
    apply_redactions(&mut object, is_secret(request), redactions);
    Redacted(object)
}

/// Redacts a patch of a request's object; returns `None` if the patch is empty.
pub(crate) fn redact_patch(request: &Request, redactions: &[Redaction], patch: &Patch) -> Option<Redacted> {
    let mut operations = serde_json::to_value(patch).ok().filter(|_| !patch.is_empty())?;
    apply_redactions_to_patch(request, redactions, &mut operations);
    let mut patch = Redacted(operations);
    if is_secret(request) {
        patch.remove_patch_values();
    }
    Some(patch)
}

pub(super) fn redact_lookup(mut object: Value, is_secret: bool, redactions: &[Redaction]) -> (Redacted, usize) {
    let count = apply_redactions(&mut object, is_secret, redactions);
    (Redacted(object), count)
}

/// Redacts the answer to an HTTP request. Returns it with the number of redacted values.
pub(super) fn redact_answer(mut answer: HttpAnswer, redactions: &[Redaction]) -> (Redacted<HttpAnswer>, usize) {
    let body = &mut answer.body;
    let count = apply_redactions(body, false, redactions) + redact_secrets(body, "") + answer.redact_queries();
    (Redacted(answer), count)
}

/// Redacts a review's request and response. Returns both with the number of redacted values.
pub(super) fn redact_review(
    request: &Request,
    redactions: &[Redaction],
    mut review_request: Value,
    mut review_response: Value,
) -> (Redacted, Redacted, usize) {
    let is_secret = is_secret(request);
    let mut count = 0;
    for name in ["object", "oldObject"] {
        if let Some(object) = review_request.get_mut(name) {
            count += apply_redactions(object, is_secret, redactions);
        }
    }
    if let Some(patch) = review_response.get_mut("patch") {
        let decoded = patch.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        let operations = decoded.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if let Some(mut operations) = operations {
            count += apply_redactions_to_patch(request, redactions, &mut operations);
            *patch = Value::String(BASE64_STANDARD.encode(operations.to_string()));
        }
    }
    (Redacted(review_request), Redacted(review_response), count)
}

pub(crate) fn is_secret(request: &Request) -> bool {
    request.kind.group.is_empty() && request.kind.kind.eq_ignore_ascii_case("secret")
}

fn apply_redactions_to_patch(request: &Request, redactions: &[Redaction], operations: &mut Value) -> usize {
    let extra_redactions = secret_redactions(is_secret(request));
    let combined = redactions.iter().chain(&extra_redactions);
    combined
        .map(|redaction| redact_operations(operations, &redaction.0))
        .sum()
}

fn apply_redactions(value: &mut Value, is_secret: bool, redactions: &[Redaction]) -> usize {
    let extra_redactions = secret_redactions(is_secret);
    let combined = redactions.iter().chain(&extra_redactions);
    combined.map(|redaction| redact(value, &redaction.0)).sum()
}

/// Redacts the Secrets in a value, and returns the number of redacted values. If the value is an item of a list, `list`
/// is the kind of that list, such as `SecretList`.
fn redact_secrets(value: &mut Value, list: &str) -> usize {
    let kind = match value.get("kind") {
        Some(kind) => kind.as_str().unwrap_or_default().to_owned(),
        None => list.strip_suffix("List").unwrap_or_default().to_owned(),
    };
    let is_core = value.get("apiVersion").is_none_or(|version| version == "v1");
    let is_secret = kind == "Secret" && is_core;
    let count = if is_secret {
        apply_redactions(value, true, &[])
    } else {
        0
    };
    let nested_count: usize = match value {
        Value::Object(fields) => fields
            .iter_mut()
            .map(|(key, value)| match (key.as_str(), value) {
                ("items", Value::Array(items)) => items.iter_mut().map(|item| redact_secrets(item, &kind)).sum(),
                (_, value) => redact_secrets(value, ""),
            })
            .sum(),
        Value::Array(entries) => entries.iter_mut().map(|entry| redact_secrets(entry, "")).sum(),
        _ => 0,
    };
    count + nested_count
}

fn secret_redactions(is_secret: bool) -> Vec<Redaction> {
    if !is_secret {
        return Vec::new();
    }
    [
        "/data/*",
        "/stringData/*",
        // BlueKing's BCS stores Secrets, too. Their content is in `datas`.
        "/datas/*",
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
    ]
    .iter()
    .filter_map(|text| text.parse().ok())
    .collect()
}

fn redact(value: &mut Value, path: &[PointerToken]) -> usize {
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

/// Redacts the values in a patch that `path` selects. An operation may write exactly a selected value, a part of it, or
/// an object that contains it. Returns the number of redacted values.
fn redact_operations(operations: &mut Value, path: &[PointerToken]) -> usize {
    operations
        .as_array_mut()
        .map(Vec::as_mut_slice)
        .unwrap_or_default()
        .iter_mut()
        .map(|operation| {
            let pointer = operation.get("path").and_then(Value::as_str).unwrap_or_default();
            let target: Vec<String> = pointer.split('/').skip(1).map(unescaped_token).collect();
            let is_on_the_way = path.iter().zip(&target).all(|(token, key)| token.matches(key));
            match operation.get_mut("value") {
                Some(value) if is_on_the_way => redact(value, path.get(target.len()..).unwrap_or_default()),
                _ => 0,
            }
        })
        .sum()
}

#[cfg(test)]
mod tests;
