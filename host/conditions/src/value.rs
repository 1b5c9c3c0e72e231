//! The values of CEL expressions. Values that come from a request borrow from its objects.

use std::{net::IpAddr, ops::Deref, sync::Arc};

use ipnet::IpNet;
use time::OffsetDateTime;

use crate::functions::{
    authorizer::{AccessCheck, Answer},
    formats::Format,
    image::ImageName,
    quantity::Quantity,
    regex::CompiledRegex,
    url::Url,
};

type Tree = serde_json::Value;
type MapMembers = serde_json::Map<String, Tree>;

#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(CelText<'a>),
    Bytes(Arc<[u8]>),
    List(CelList<'a>),
    Map(Map<'a>),
    /// A duration, as its number of nanoseconds.
    Duration(i64),
    Timestamp(OffsetDateTime),
    Type(&'static str),
    Optional(Option<Arc<Value<'a>>>),
    Pattern(Arc<CompiledRegex>),
    AccessCheck(Arc<AccessCheck>),
    Decision(Arc<Answer>),
    Ip(IpAddr),
    Cidr(IpNet),
    Quantity(Arc<Quantity>),
    Format(&'static Format),
    Url(Arc<Url>),
    Semver(Arc<semver::Version>),
    Image(Arc<ImageName>),
    Part(Arc<ObjectPart<'a>>),
}

#[derive(Clone, Debug)]
pub(crate) struct ObjectPart<'a> {
    /// The type name of the part, such as `Object.spec` or `JSONPatch`.
    pub(crate) path: Arc<str>,
    pub(crate) fields: Map<'a>,
}

impl ObjectPart<'_> {
    pub(crate) fn is_json_patch(&self) -> bool {
        &*self.path == "JSONPatch"
    }
}

#[derive(Clone, Debug)]
pub(crate) enum CelText<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl From<String> for CelText<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl Deref for CelText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum CelList<'a> {
    Tree(&'a [Tree]),
    Shared(Arc<[Value<'a>]>),
}

impl<'a> CelList<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Tree(items) => items.len(),
            Self::Shared(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Tree(items) => items.get(index).map(Value::from_tree),
            Self::Shared(items) => items.get(index).cloned(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let list = self.clone();
        (0..self.len()).map_while(move |index| list.get(index))
    }
}

impl<'a> FromIterator<Value<'a>> for CelList<'a> {
    fn from_iter<T: IntoIterator<Item = Value<'a>>>(items: T) -> Self {
        Self::Shared(items.into_iter().collect())
    }
}

/// A map that is part of an object, or that an expression has created. It keeps the order of its entries.
#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Tree(&'a MapMembers),
    Shared(Arc<[(Value<'a>, Value<'a>)]>),
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Tree(members) => members.len(),
            Self::Shared(entries) => entries.len(),
        }
    }

    /// Returns the cost of finding a key in the map. If the map is a part of an object, the cost is 0. If an expression
    /// has created the map, the key is compared with all keys of the map, which costs more.
    pub(crate) fn lookup_cost(&self) -> u64 {
        match self {
            Self::Tree(_) => 0,
            Self::Shared(entries) => (entries.len() / 16) as u64,
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Self::Tree(members) => members.get(name).map(Value::from_tree),
            Self::Shared(entries) => entries.iter().find_map(|(key, value)| match key {
                Value::String(key) if **key == *name => Some(value.clone()),
                _ => None,
            }),
        }
    }

    pub(crate) fn get(&self, map_key: &Value<'a>) -> Option<Value<'a>> {
        match (self, map_key) {
            (_, Value::String(name)) => self.field(name),
            (Self::Tree(_), _) => None,
            (Self::Shared(entries), scalar_key) => entries
                .iter()
                .find(|(key, _)| key.same_scalar(scalar_key))
                .map(|(_, value)| value.clone()),
        }
    }

    pub(crate) fn entries(&self) -> Box<dyn Iterator<Item = (Value<'a>, Value<'a>)> + 'a> {
        match self {
            Self::Tree(members) => Box::new(
                members
                    .iter()
                    .map(|(key, value)| (Value::text(key.as_str()), Value::from_tree(value))),
            ),
            Self::Shared(entries) => {
                let entries = Arc::clone(entries);
                Box::new((0..entries.len()).map_while(move |index| entries.get(index).cloned()))
            }
        }
    }

    pub(crate) fn keys(&self) -> Box<dyn Iterator<Item = Value<'a>> + 'a> {
        Box::new(self.entries().map(|(key, _)| key))
    }
}

impl<'a> Value<'a> {
    /// Creates the value of a part of an object. A whole number becomes an int, and a number with a fraction a double.
    pub(crate) fn from_tree(tree: &'a Tree) -> Self {
        match tree {
            Tree::Null => Self::Null,
            Tree::Bool(value) => Self::Bool(*value),
            Tree::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Tree::String(text) => Self::text(text),
            Tree::Array(items) => Self::List(CelList::Tree(items)),
            Tree::Object(members) => Self::Map(Map::Tree(members)),
        }
    }

    pub(crate) fn owned_from_tree(tree: &Tree) -> Value<'static> {
        match tree {
            Tree::Null => Value::Null,
            Tree::Bool(value) => Value::Bool(*value),
            Tree::Number(number) => match number.as_i64() {
                Some(value) => Value::Int(value),
                None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Tree::String(text) => Value::string(text.as_str()),
            Tree::Array(items) => Value::list(items.iter().map(Self::owned_from_tree).collect()),
            Tree::Object(members) => {
                let owned_entry =
                    |(key, value): (&String, _)| (Value::string(key.as_str()), Self::owned_from_tree(value));
                Value::map(members.iter().map(owned_entry).collect())
            }
        }
    }

    pub(crate) fn text(text: &'a str) -> Self {
        Self::String(CelText::Borrowed(text))
    }

    pub(crate) fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(CelText::Shared(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(CelList::Shared(items.into()))
    }

    pub(crate) fn map(entries: Vec<(Self, Self)>) -> Self {
        Self::Map(Map::Shared(entries.into()))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn lookup_cost(&self) -> u64 {
        match self {
            Self::Map(map) => map.lookup_cost(),
            Self::Optional(Some(inner)) => inner.lookup_cost(),
            _ => 0,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) | Self::Pattern(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::AccessCheck(check) => check.kind(),
            Self::Decision(_) => "kubernetes.authorization.Decision",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Image(_) => "kyverno.image",
            Self::Part(_) => "Object",
        }
    }

    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Self::Int(value) => Some(Number::Whole(i128::from(*value))),
            Self::Uint(value) => Some(Number::Whole(i128::from(*value))),
            Self::Double(value) => Some(Number::Real(*value)),
            _ => None,
        }
    }

    pub(crate) fn same_scalar(&self, other: &Self) -> bool {
        if let (Some(one), Some(other)) = (self.number(), other.number()) {
            return one.partial_cmp(&other).is_some_and(std::cmp::Ordering::is_eq);
        }
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::String(one), Self::String(other)) => **one == **other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::Duration(one), Self::Duration(other)) => one == other,
            (Self::Timestamp(one), Self::Timestamp(other)) => one == other,
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::Ip(one), Self::Ip(other)) => one == other,
            (Self::Cidr(one), Self::Cidr(other)) => one == other,
            (Self::Quantity(one), Self::Quantity(other)) => one == other,
            (Self::Format(one), Self::Format(other)) => one.name == other.name,
            (Self::Url(one), Self::Url(other)) => one == other,
            // Versions that differ only in their build metadata are equal.
            (Self::Semver(one), Self::Semver(other)) => one.cmp_precedence(other).is_eq(),
            (Self::Image(one), Self::Image(other)) => one == other,
            (Self::Decision(one), Self::Decision(other)) => one == other,
            (Self::AccessCheck(one), Self::AccessCheck(other)) => one == other,
            _ => false,
        }
    }

    /// Returns whether it is an error to compare this value with a value of another type. This is so for quantities and
    /// other values of Kubernetes' libraries.
    pub(crate) fn is_only_equal_to_its_kind(&self) -> bool {
        matches!(
            self,
            Self::Ip(_) | Self::Cidr(_) | Self::Quantity(_) | Self::Url(_) | Self::Semver(_)
        )
    }

    /// Returns whether the value is the zero value of its type, which `optional.ofNonZeroValue` drops.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.len() == 0,
            Self::Map(map) => map.len() == 0,
            Self::Duration(value) => *value == 0,
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(i128),
    Real(f64),
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(std::cmp::Ordering::Equal)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (*self, *other) {
            (Self::Whole(one), Self::Whole(other)) => Some(one.cmp(&other)),
            (Self::Whole(one), Self::Real(other)) => (one as f64).partial_cmp(&other),
            (Self::Real(one), Self::Whole(other)) => one.partial_cmp(&(other as f64)),
            (Self::Real(one), Self::Real(other)) => one.partial_cmp(&other),
        }
    }
}
