//! Values that may not be there.

use super::Library;
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{Type, optional},
    value::Value,
};

const A: Type = Type::Any(0);

pub(super) fn list(library: &mut Library) {
    library.global("optional.of", of, &[(&[A], optional(A))]);
    library.global("optional.ofNonZeroValue", of_non_zero, &[(&[A], optional(A))]);
    library.global("optional.none", none, &[(&[], optional(Type::Dyn))]);
    library.member("hasValue", has_value, &[(&[optional(A)], Type::Bool)]);
    library.member("value", value, &[(&[optional(A)], A)]);
    library.member("or", or, &[(&[optional(A), optional(A)], optional(A))]);
    library.member("orValue", or_value, &[(&[optional(A), A], A)]);
}

fn of<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(Fault::no_overload()),
    }
}

fn of_non_zero<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] if value.is_zero() => Ok(Value::Optional(None)),
        [value] => Ok(Value::some(value.clone())),
        _ => Err(Fault::no_overload()),
    }
}

fn none<'a>(_: &mut Machine<'a>, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Optional(None))
}

fn has_value<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(Fault::no_overload()),
    }
}

fn value<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(Fault::error("optional.none() dereference")),
        _ => Err(Fault::no_overload()),
    }
}

fn or<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [one @ Value::Optional(value), other @ Value::Optional(_)] => {
            Ok(if value.is_some() { one } else { other }.clone())
        }
        _ => Err(Fault::no_overload()),
    }
}

fn or_value<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Optional(Some(value)), _] => Ok((**value).clone()),
        [Value::Optional(None), other] => Ok(other.clone()),
        _ => Err(Fault::no_overload()),
    }
}
