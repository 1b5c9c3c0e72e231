use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use crate::{Object, Patch};

/// The fields that say who an object is. A verdict may not change them. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFields(Fields);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fields {
    Kubernetes,
    Custom(Arc<[String]>),
}

const KUBERNETES: [&str; 5] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
];

/// A text that is not a JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no JSON Pointer: it must start with `/`, as in `/metadata/name`")]
pub struct InvalidPointer(pub String);

impl IdentityFields {
    /// `apiVersion`, `kind`, `metadata.name`, `metadata.namespace` and `metadata.uid`: the identity of
    /// objects in Kubernetes and in BCS.
    pub fn kubernetes() -> Self {
        Self(Fields::Kubernetes)
    }

    /// Fields of another kind of object, as JSON Pointers (RFC 6901).
    ///
    /// # Errors
    ///
    /// When a pointer does not start with `/`.
    pub fn new(pointers: impl IntoIterator<Item = String>) -> Result<Self, InvalidPointer> {
        pointers
            .into_iter()
            .map(|pointer| {
                if pointer.starts_with('/') {
                    Ok(pointer)
                } else {
                    Err(InvalidPointer(pointer))
                }
            })
            .collect::<Result<Vec<_>, _>>()
            .map(|pointers| Self(Fields::Custom(pointers.into())))
    }

    fn pointers(&self) -> impl Iterator<Item = &str> {
        let (fixed, custom): (&[&str], &[String]) = match &self.0 {
            Fields::Kubernetes => (&KUBERNETES, &[]),
            Fields::Custom(pointers) => (&[], pointers),
        };
        fixed.iter().copied().chain(custom.iter().map(String::as_str))
    }

    /// The first field that differs between the two objects, as a sentence. With the patch that leads
    /// from one to the other, the objects are only compared when it reaches such a field.
    pub(crate) fn change(&self, before: &Object, after: &Object, patch: Option<&Patch>) -> Option<String> {
        if patch.is_some_and(|patch| !self.pointers().any(|field| patch.may_reach(field))) {
            return None;
        }
        let (before, after) = (before.value(), after.value());
        self.pointers().find_map(|pointer| {
            let (old, new) = (before.pointer(pointer), after.pointer(pointer));
            (old != new).then(|| format!("{pointer} changed from {} to {}", show(old), show(new)))
        })
    }
}

fn show(value: Option<&Value>) -> Cow<'static, str> {
    match value {
        None => "absent".into(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(80) {
                Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()).into(),
                None => text.into(),
            }
        }
    }
}
