//! The types of CEL expressions, as far as they are known before the evaluation.

use std::{collections::BTreeMap, fmt, sync::Arc};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// The type of a value that is a type itself, such as the result of `type(x)`.
    Kind,
    /// The type of an expression whose type is known only during the evaluation, such as a field of `object`.
    Dyn,
    /// A type that nothing determines, such as the type of the items of `[]`, or of the value in `optional.none()`.
    Free,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    /// A record with declared fields: a part of `request` or `namespaceObject`.
    Record(RecordType),
    SchemaObject(Arc<SchemaObject>),
    /// A type that has functions, but no fields.
    Opaque(&'static str),
    /// A part of an object that a mutation applies, with a path such as `Object.spec`. The type says nothing about the
    /// fields of the part.
    Part(Arc<str>),
    /// A type parameter of a function's signature, by index. A signature has at most two.
    Any(usize),
}

pub(crate) const AUTHORIZER: Type = Type::Opaque("kubernetes.authorization.Authorizer");
pub(crate) const RESOURCE_CHECK: Type = Type::Opaque("kubernetes.authorization.ResourceCheck");
pub(crate) const DECISION: Type = Type::Opaque("kubernetes.authorization.Decision");
pub(crate) const IP: Type = Type::Opaque("net.IP");
pub(crate) const CIDR: Type = Type::Opaque("net.CIDR");
pub(crate) const QUANTITY: Type = Type::Opaque("kubernetes.Quantity");
pub(crate) const FORMAT: Type = Type::Opaque("kubernetes.NamedFormat");
pub(crate) const URL: Type = Type::Opaque("kubernetes.URL");
pub(crate) const SEMVER: Type = Type::Opaque("kubernetes.Semver");
pub(crate) const IMAGE: Type = Type::Opaque("kyverno.image");
pub(crate) const JSON_PATCH: Type = Type::Opaque("JSONPatch");

#[derive(Debug, PartialEq)]
pub(crate) struct SchemaObject {
    /// The path of the part, which begins with the kind, such as `Widget.spec`.
    pub(crate) name: String,
    pub(crate) fields: BTreeMap<String, Type>,
}

impl Type {
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Free, _) | (_, Self::Free) => true,
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one.may_be(other),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.may_be(other_key) && value.may_be(other_value)
            }
            (one, other) => one == other,
        }
    }
}

/// The record types that kube-apiserver declares for expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordType {
    Request,
    Kind,
    Resource,
    User,
    Namespace,
    NamespaceMetadata,
    NamespaceSpec,
    NamespaceStatus,
    Exceptions,
}

impl RecordType {
    pub(crate) fn field(self, name: &str) -> Option<Type> {
        let strings = || list(Type::String);
        Some(match (self, name) {
            (Self::Request, "kind" | "requestKind") => Type::Record(Self::Kind),
            (Self::Request, "resource" | "requestResource") => Type::Record(Self::Resource),
            (Self::Request, "subResource" | "requestSubResource" | "name" | "namespace" | "operation")
            | (Self::Kind, "group" | "version" | "kind")
            | (Self::Resource, "group" | "version" | "resource")
            | (Self::User, "username" | "uid")
            | (Self::NamespaceMetadata, "name" | "generateName" | "namespace" | "UID" | "resourceVersion")
            | (Self::NamespaceStatus, "phase") => Type::String,
            (Self::Request, "userInfo") => Type::Record(Self::User),
            (Self::Request, "dryRun") => Type::Bool,
            (Self::Request, "options") => Type::Dyn,
            (Self::Exceptions, "allowedImages" | "allowedValues")
            | (Self::User, "groups")
            | (Self::NamespaceMetadata, "finalizers")
            | (Self::NamespaceSpec, "finalizers") => strings(),
            (Self::User, "extra") => map(Type::String, strings()),
            (Self::Namespace, "metadata") => Type::Record(Self::NamespaceMetadata),
            (Self::Namespace, "spec") => Type::Record(Self::NamespaceSpec),
            (Self::Namespace, "status") => Type::Record(Self::NamespaceStatus),
            (Self::NamespaceMetadata, "labels" | "annotations") => map(Type::String, Type::String),
            (Self::NamespaceMetadata, "creationTimestamp" | "deletionTimestamp") => Type::Timestamp,
            (Self::NamespaceMetadata, "generation" | "deletionGracePeriodSeconds") => Type::Int,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Request => "kubernetes.AdmissionRequest",
            Self::Kind => "kubernetes.GroupVersionKind",
            Self::Resource => "kubernetes.GroupVersionResource",
            Self::User => "kubernetes.UserInfo",
            Self::Namespace => "kubernetes.Namespace",
            Self::NamespaceMetadata => "kubernetes.NamespaceMetadata",
            Self::NamespaceSpec => "kubernetes.NamespaceSpec",
            Self::NamespaceStatus => "kubernetes.NamespaceStatus",
            Self::Exceptions => "libs.Exception",
        }
    }
}

pub(crate) fn list(item: Type) -> Type {
    Type::List(Box::new(item))
}

pub(crate) fn map(key: Type, value: Type) -> Type {
    Type::Map(Box::new(key), Box::new(value))
}

pub(crate) fn optional(value: Type) -> Type {
    Type::Optional(Box::new(value))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TypeBindings([Option<Type>; 2]);

impl TypeBindings {
    pub(crate) fn fits(&mut self, parameter: &Type, argument: &Type) -> bool {
        match (parameter, argument) {
            (Type::Any(index), _) => match self.0.get(*index).cloned() {
                Some(Some(bound)) => match join(&bound, argument) {
                    Some(joined) => {
                        self.bind(*index, joined);
                        true
                    }
                    None => false,
                },
                _ => {
                    self.bind(*index, argument.clone());
                    true
                }
            },
            (Type::Dyn | Type::Free, _) | (_, Type::Dyn | Type::Free) => true,
            (Type::List(parameter_item), Type::List(argument_item))
            | (Type::Optional(parameter_item), Type::Optional(argument_item)) => {
                self.fits(parameter_item, argument_item)
            }
            (Type::Map(parameter_key, parameter_value), Type::Map(argument_key, argument_value)) => {
                self.fits(parameter_key, argument_key) && self.fits(parameter_value, argument_value)
            }
            _ => join(parameter, argument).is_some(),
        }
    }

    fn bind(&mut self, index: usize, to: Type) {
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Some(to);
        }
    }

    /// Replaces the type parameters in a signature's type by the types of a call's arguments.
    pub(crate) fn apply(&self, to: &Type) -> Type {
        match to {
            Type::Any(index) => self.0.get(*index).cloned().flatten().unwrap_or(Type::Free),
            Type::List(item) => list(self.apply(item)),
            Type::Optional(value) => optional(self.apply(value)),
            Type::Map(key, value) => map(self.apply(key), self.apply(value)),
            other => other.clone(),
        }
    }
}

/// Returns the type that includes the values of both types; `None` if the types exclude each other.
pub(crate) fn join(one: &Type, other: &Type) -> Option<Type> {
    let nullable = |kind: &Type| {
        matches!(
            kind,
            Type::Record(_)
                | Type::SchemaObject(_)
                | Type::Duration
                | Type::Timestamp
                | Type::Opaque(_)
                | Type::Optional(_)
                | Type::Part(_)
        )
    };
    match (one, other) {
        _ if one == other => Some(one.clone()),
        (Type::Free, kind) | (kind, Type::Free) => Some(kind.clone()),
        (Type::Dyn, _) | (_, Type::Dyn) => Some(Type::Dyn),
        (Type::Null, kind) | (kind, Type::Null) if nullable(kind) => Some(kind.clone()),
        (Type::List(one), Type::List(other)) => join(one, other).map(list),
        (Type::Optional(one), Type::Optional(other)) => join(one, other).map(optional),
        (Type::Map(one_key, one_value), Type::Map(other_key, other_value)) => {
            Some(map(join(one_key, other_key)?, join(one_value, other_value)?))
        }
        _ => None,
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Kind => f.write_str("type"),
            Self::Dyn | Self::Free => f.write_str("dyn"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Record(record) => f.write_str(record.name()),
            Self::SchemaObject(declared) => f.write_str(&declared.name),
            Self::Opaque(name) => f.write_str(name),
            Self::Part(path) => f.write_str(path),
            Self::Any(0) => f.write_str("A"),
            Self::Any(_) => f.write_str("B"),
        }
    }
}
