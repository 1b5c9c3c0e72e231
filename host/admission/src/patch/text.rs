//! Parses and writes the JSON form of a patch's operations.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IgnoredAny, SeqAccess},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use super::{OPERATIONS_BEFORE_PAUSE, OperationAction, Patch, PatchOperation, beginning, parse_pointer};
use crate::{object::head::check_unique_keys, scheduling::offload::pause_between_items};

#[derive(Deserialize)]
#[serde(expecting = "an operation")]
pub(super) struct Draft<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    value: OperationValue<'a>,
}

/// The operations of a JSON Patch, and their number. Operations beyond the maximum are counted, but not kept.
#[derive(Default)]
pub(super) struct Drafts<'a> {
    pub(super) drafts: Vec<Draft<'a>>,
    pub(super) count: usize,
}

impl<'de> Deserialize<'de> for Drafts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Drafts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut operations: A) -> Result<Self::Value, A::Error> {
                let mut drafts = Vec::new();
                while drafts.len() < Patch::MAX_OPERATIONS
                    && let Some(draft) = operations.next_element()?
                {
                    pause_between_items(drafts.len(), OPERATIONS_BEFORE_PAUSE);
                    drafts.push(draft);
                }
                let mut count = drafts.len();
                while operations.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Drafts { drafts, count })
            }
        }

        deserializer.deserialize_seq(Visitor)
    }
}

/// The field `value` of an operation: `Some` for any value, including null; `None` if the field is absent.
#[derive(Default)]
struct OperationValue<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for OperationValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

impl Draft<'_> {
    pub(super) fn into_operation(self) -> Result<PatchOperation, String> {
        let Self {
            op,
            path,
            from,
            value: OperationValue(value),
        } = self;
        let value = || match value {
            Some(value) => match check_unique_keys(value.get()) {
                Ok(()) => Ok(value.to_owned()),
                Err(error) => Err(format!("`value` cannot be read: {error}")),
            },
            None => Err(format!("`{op}` needs `value`")),
        };
        let from = || {
            from.ok_or_else(|| format!("`{op}` needs `from`"))
                .and_then(parse_pointer)
        };
        let action = match &*op {
            "add" => OperationAction::Add(value()?),
            "replace" => OperationAction::Replace(value()?),
            "test" => OperationAction::Test(value()?),
            "remove" => OperationAction::Remove,
            "move" => OperationAction::Move(from()?),
            "copy" => OperationAction::Copy(from()?),
            other => {
                return Err(format!(
                    "`{}` is not an operation; use add, remove, replace, move, copy or test",
                    beginning(other)
                ));
            }
        };
        Ok(PatchOperation {
            path: parse_pointer(path)?,
            action,
        })
    }
}

impl Serialize for PatchOperation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("op", self.action.name())?;
        map.serialize_entry("path", self.path.as_str())?;
        if let Some(from) = self.action.source_path() {
            map.serialize_entry("from", from.as_str())?;
        }
        if let Some(value) = self.action.value() {
            map.serialize_entry("value", value)?;
        }
        map.end()
    }
}

impl Serialize for Patch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.operations())
    }
}
