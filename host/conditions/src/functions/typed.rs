//! Maps the CEL types in the signatures of functions to Rust types.

use std::{marker::PhantomData, net::IpAddr, sync::Arc};

use ::time::OffsetDateTime;
use ipnet::IpNet;

use super::{authorizer::Answer, formats::Format, image::ImageName, quantity::Quantity, url::Url};
use crate::{
    types::{self, Type},
    value::{CelList, CelText, Map, Value},
};

/// A CEL type that a function's argument or result can have, with the Rust type of its values.
///
/// Every implementation must declare `write` with the bound `'a: 'a`, which has no meaning of its own. Without this
/// bound, the compiler reports that the lifetime parameters of the implementation and of the trait differ.
pub(super) trait CelType {
    type Rust<'a>;
    /// Whether an argument of this type is a regular expression, so that a literal is compiled in advance.
    const IS_PATTERN: bool = false;
    fn cel() -> Type;
    fn read<'a>(value: &Value<'a>) -> Option<Self::Rust<'a>>;
    fn write<'a>(value: Self::Rust<'a>) -> Value<'a>;
}

pub(super) trait Arguments {
    type Rust<'a>;
    fn types() -> Vec<Type>;
    fn pattern() -> Option<usize>;
    fn read<'a>(values: &[Value<'a>]) -> Option<Self::Rust<'a>>;
}

macro_rules! arguments {
    ($($name:ident $value:ident),*) => {
        impl<$($name: CelType),*> Arguments for ($($name,)*) {
            type Rust<'a> = ($($name::Rust<'a>,)*);

            fn types() -> Vec<Type> {
                vec![$($name::cel()),*]
            }

            fn pattern() -> Option<usize> {
                [$($name::IS_PATTERN),*].iter().position(|is_pattern: &bool| *is_pattern)
            }

            fn read<'a>(values: &[Value<'a>]) -> Option<Self::Rust<'a>> {
                let [$($value),*] = values else { return None };
                Some(($($name::read($value)?,)*))
            }
        }
    };
}

arguments!();
arguments!(A a);
arguments!(A a, B b);
arguments!(A a, B b, C c);
arguments!(A a, B b, C c, D d);

macro_rules! cel_types {
    ($($marker:ty: $rust:ty = $cel:expr, $variant:ident $(, [$($name:ident),*])?;)*) => {$(
        impl$(<$($name: CelType),*>)? CelType for $marker {
            type Rust<'a> = $rust;

            fn cel() -> Type {
                $cel
            }

            fn read<'a>(value: &Value<'a>) -> Option<$rust> {
                match value {
                    Value::$variant(value) => Some(<$rust>::clone(value)),
                    _ => None,
                }
            }

            fn write<'a>(value: $rust) -> Value<'a>
            where
                'a: 'a,
            {
                Value::$variant(value)
            }
        }
    )*};
}

cel_types! {
    bool: bool = Type::Bool, Bool;
    i64: i64 = Type::Int, Int;
    u64: u64 = Type::Uint, Uint;
    f64: f64 = Type::Double, Double;
    Str: CelText<'a> = Type::String, String;
    Bytes: Arc<[u8]> = Type::Bytes, Bytes;
    Duration: i64 = Type::Duration, Duration;
    OffsetDateTime: OffsetDateTime = Type::Timestamp, Timestamp;
    TypeMarker: &'static str = Type::Kind, Type;
    IpAddr: IpAddr = types::IP, Ip;
    IpNet: IpNet = types::CIDR, Cidr;
    Quantity: Arc<Quantity> = types::QUANTITY, Quantity;
    DecisionMarker: Arc<Answer> = types::DECISION, Decision;
    FormatMarker: &'static Format = types::FORMAT, Format;
    UrlMarker: Arc<Url> = types::URL, Url;
    Semver: Arc<semver::Version> = types::SEMVER, Semver;
    ImageMarker: Arc<ImageName> = types::IMAGE, Image;
    ListOf<T>: CelList<'a> = types::list(T::cel()), List, [T];
    MapOf<K, V>: Map<'a> = types::map(K::cel(), V::cel()), Map, [K, V];
    OptionalOf<T>: Option<Arc<Value<'a>>> = types::optional(T::cel()), Optional, [T];
}

pub(super) struct Str;
pub(super) struct Bytes;
pub(super) struct Duration;
pub(super) struct TypeMarker;
pub(super) struct DecisionMarker;
pub(super) struct FormatMarker;
pub(super) struct Semver;
pub(super) struct ImageMarker;
pub(super) struct UrlMarker;
/// A type parameter of a signature. It stands for one type in the whole signature.
pub(super) struct A;
pub(super) struct B;
pub(super) struct Dyn;
pub(super) struct ListOf<T>(PhantomData<T>);
pub(super) struct MapOf<K, V>(PhantomData<(K, V)>);
pub(super) struct OptionalOf<T>(PhantomData<T>);

macro_rules! any_type {
    ($($marker:ty = $cel:expr;)*) => {$(
        impl CelType for $marker {
            type Rust<'a> = Value<'a>;

            fn cel() -> Type {
                $cel
            }

            fn read<'a>(value: &Value<'a>) -> Option<Value<'a>> {
                Some(value.clone())
            }

            fn write<'a>(value: Value<'a>) -> Value<'a>
            where
                'a: 'a,
            {
                value
            }
        }
    )*};
}

any_type! {
    A = Type::Any(0);
    B = Type::Any(1);
    Dyn = Type::Dyn;
}
