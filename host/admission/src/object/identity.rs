use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use crate::{Object, Patch, Pointer, shortened};

/// The fields that identify an object. A stage may not change them. Clones share the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFields(FieldSet);

#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldSet {
    Kubernetes,
    Custom(Arc<[Pointer]>),
}

const KUBERNETES_FIELDS: [&str; 5] = [
    "/apiVersion",
    "/kind",
    NAME_POINTER,
    "/metadata/namespace",
    "/metadata/uid",
];

const NAME_POINTER: &str = "/metadata/name";
const GENERATE_NAME: &str = "/metadata/generateName";

impl IdentityFields {
    /// Returns the fields that identify objects of Kubernetes and BCS: `apiVersion`, `kind`, `metadata.name`,
    /// `metadata.namespace` and `metadata.uid`.
    pub fn kubernetes() -> Self {
        Self(FieldSet::Kubernetes)
    }

    /// Creates a list of identity fields at these pointers, for the objects of a control plane with its own format.
    pub fn new(pointers: impl IntoIterator<Item = Pointer>) -> Self {
        Self(FieldSet::Custom(pointers.into_iter().collect()))
    }

    fn pointers(&self) -> impl Iterator<Item = &str> {
        let (fixed, custom): (&[&str], &[Pointer]) = match &self.0 {
            FieldSet::Kubernetes => (&KUBERNETES_FIELDS, &[]),
            FieldSet::Custom(pointers) => (&[], pointers),
        };
        fixed.iter().copied().chain(custom.iter().map(Pointer::as_str))
    }

    /// Compares the identity fields of two objects. Returns a sentence about the first field that differs, if any.
    ///
    /// The caller may pass the patch that turns `before` into `after`. If this patch cannot affect an identity field,
    /// the objects are not compared, which saves time.
    ///
    /// As in kube-apiserver, a stage may set the name of an object if it would otherwise be generated from
    /// `metadata.generateName`.
    pub fn describe_change(&self, before: &Object, after: &Object, patch: Option<&Patch>) -> Option<String> {
        if patch.is_some_and(|patch| !self.pointers().any(|field| patch.may_reach(field))) {
            return None;
        }
        let (before, after) = (before.value(), after.value());
        self.pointers().find_map(|pointer| {
            let (old, new) = (before.pointer(pointer), after.pointer(pointer));
            let is_given = matches!(self.0, FieldSet::Kubernetes)
                && pointer == NAME_POINTER
                && is_empty(old)
                && !is_empty(before.pointer(GENERATE_NAME))
                && new.is_some_and(Value::is_string);
            (old != new && !is_given).then(|| {
                format!(
                    "{pointer} changed from {} to {}",
                    describe_value(old),
                    describe_value(new)
                )
            })
        })
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_none_or(str::is_empty)
}

fn describe_value(value: Option<&Value>) -> Cow<'static, str> {
    match value {
        None => "absent".into(),
        Some(value) => shortened(&value.to_string(), 80).into_owned().into(),
    }
}
