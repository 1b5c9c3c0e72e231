//! Operators. `&&`, `||`, `?:`, `[]` and selects are not among them: they decide what is evaluated.

use std::{cmp::Ordering, sync::Arc};

use time::OffsetDateTime;

use super::Library;
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{Type, list as list_of, map},
    value::{List, Value},
};

const A: Type = Type::Any(0);
const B: Type = Type::Any(1);

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    library.global("_==_", equals, &[(&[A, A], Bool)]);
    library.global("_!=_", differs, &[(&[A, A], Bool)]);
    let numbers = [Int, Uint, Double];
    let mut ordered: Vec<Vec<Type>> = numbers
        .iter()
        .flat_map(|one| numbers.iter().map(|other| vec![one.clone(), other.clone()]))
        .collect();
    ordered.extend([Bool, String, Bytes, Duration, Timestamp].map(|kind| vec![kind.clone(), kind]));
    let ordered: Vec<(&[Type], Type)> = ordered.iter().map(|pair| (pair.as_slice(), Bool)).collect();
    library.global("_<_", less, &ordered);
    library.global("_<=_", less_or_equal, &ordered);
    library.global("_>_", greater, &ordered);
    library.global("_>=_", greater_or_equal, &ordered);
    library.global("!_", not, &[(&[Bool], Bool)]);
    library.global(
        "-_",
        negate,
        &[(&[Int], Int), (&[Double], Double), (&[Duration], Duration)],
    );
    library.global(
        "_+_",
        add,
        &[
            (&[Int, Int], Int),
            (&[Uint, Uint], Uint),
            (&[Double, Double], Double),
            (&[String, String], String),
            (&[Bytes, Bytes], Bytes),
            (&[list_of(A), list_of(A)], list_of(A)),
            (&[Duration, Duration], Duration),
            (&[Timestamp, Duration], Timestamp),
            (&[Duration, Timestamp], Timestamp),
        ],
    );
    library.global(
        "_-_",
        subtract,
        &[
            (&[Int, Int], Int),
            (&[Uint, Uint], Uint),
            (&[Double, Double], Double),
            (&[Duration, Duration], Duration),
            (&[Timestamp, Duration], Timestamp),
            (&[Timestamp, Timestamp], Duration),
        ],
    );
    let products: [(&[Type], Type); 3] = [
        (&[Int, Int], Int),
        (&[Uint, Uint], Uint),
        (&[Double, Double], Double),
    ];
    library.global("_*_", multiply, &products);
    library.global("_/_", divide, &products);
    library.global("_%_", remainder, &products[..2]);
    library.global("@in", is_in, &[(&[A, list_of(A)], Bool), (&[A, map(A, B)], Bool)]);
}

fn equals<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [one, other] => machine.equal(one, other).map(Value::Bool),
        _ => Err(Fault::no_overload()),
    }
}

fn differs<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [one, other] => machine.equal(one, other).map(|equal| Value::Bool(!equal)),
        _ => Err(Fault::no_overload()),
    }
}

/// How two values are ordered; none for numbers that are not.
pub(crate) fn order<'a>(
    machine: &mut Machine<'a>,
    one: &Value<'a>,
    other: &Value<'a>,
) -> Result<Option<Ordering>, Fault> {
    if let (Some(one), Some(other)) = (one.number(), other.number()) {
        return Ok(one.partial_cmp(&other));
    }
    Ok(Some(match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::String(one), Value::String(other)) => {
            machine.pay_bytes(one.len().min(other.len()))?;
            (**one).cmp(&**other)
        }
        (Value::Bytes(one), Value::Bytes(other)) => {
            machine.pay_bytes(one.len().min(other.len()))?;
            one.cmp(other)
        }
        (Value::Duration(one), Value::Duration(other)) => one.cmp(other),
        (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
        _ => return Err(Fault::no_overload()),
    }))
}

fn compare<'a>(
    machine: &mut Machine<'a>,
    arguments: &[Value<'a>],
    holds: fn(Ordering) -> bool,
) -> Outcome<'a> {
    match arguments {
        [one, other] => {
            let order = order(machine, one, other)?;
            Ok(Value::Bool(order.is_some_and(holds)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn less<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    compare(machine, arguments, Ordering::is_lt)
}

fn less_or_equal<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    compare(machine, arguments, Ordering::is_le)
}

fn greater<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    compare(machine, arguments, Ordering::is_gt)
}

fn greater_or_equal<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    compare(machine, arguments, Ordering::is_ge)
}

fn not<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(Fault::no_overload()),
    }
}

fn whole<'a>(value: Option<i64>) -> Outcome<'a> {
    value
        .map(Value::Int)
        .ok_or_else(|| Fault::error("integer overflow"))
}

fn natural<'a>(value: Option<u64>) -> Outcome<'a> {
    value
        .map(Value::Uint)
        .ok_or_else(|| Fault::error("unsigned integer overflow"))
}

fn span<'a>(value: Option<i64>) -> Outcome<'a> {
    value
        .map(Value::Duration)
        .ok_or_else(|| Fault::error("duration overflow"))
}

fn moment<'a>(value: Option<OffsetDateTime>) -> Outcome<'a> {
    value
        .map(Value::Timestamp)
        .ok_or_else(|| Fault::error("timestamp overflow"))
}

fn negate<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(value)] => whole(value.checked_neg()),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => span(value.checked_neg()),
        _ => Err(Fault::no_overload()),
    }
}

fn add<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let nanoseconds = time::Duration::nanoseconds;
    match arguments {
        [Value::Int(one), Value::Int(other)] => whole(one.checked_add(*other)),
        [Value::Uint(one), Value::Uint(other)] => natural(one.checked_add(*other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one + other)),
        [Value::String(one), Value::String(other)] => {
            machine.pay_bytes(one.len() + other.len())?;
            let mut text = String::with_capacity(one.len() + other.len());
            text.push_str(one);
            text.push_str(other);
            Ok(Value::string(text))
        }
        [Value::Bytes(one), Value::Bytes(other)] => {
            machine.pay_bytes(one.len() + other.len())?;
            let bytes: Arc<[u8]> = one.iter().chain(other.iter()).copied().collect();
            Ok(Value::Bytes(bytes))
        }
        [Value::List(one), Value::List(other)] => {
            machine.pay_items(one.len() + other.len())?;
            let items: Arc<[Value<'a>]> = one.iter().chain(other.iter()).collect();
            Ok(Value::List(List::Shared(items)))
        }
        [Value::Duration(one), Value::Duration(other)] => span(one.checked_add(*other)),
        [Value::Timestamp(one), Value::Duration(other)] | [Value::Duration(other), Value::Timestamp(one)] => {
            moment(one.checked_add(nanoseconds(*other)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn subtract<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(one), Value::Int(other)] => whole(one.checked_sub(*other)),
        [Value::Uint(one), Value::Uint(other)] => natural(one.checked_sub(*other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one - other)),
        [Value::Duration(one), Value::Duration(other)] => span(one.checked_sub(*other)),
        [Value::Timestamp(one), Value::Duration(other)] => {
            moment(one.checked_sub(time::Duration::nanoseconds(*other)))
        }
        [Value::Timestamp(one), Value::Timestamp(other)] => {
            span(i64::try_from((*one - *other).whole_nanoseconds()).ok())
        }
        _ => Err(Fault::no_overload()),
    }
}

fn multiply<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(one), Value::Int(other)] => whole(one.checked_mul(*other)),
        [Value::Uint(one), Value::Uint(other)] => natural(one.checked_mul(*other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one * other)),
        _ => Err(Fault::no_overload()),
    }
}

fn divide<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Fault::error("division by zero"))
        }
        [Value::Int(one), Value::Int(other)] => whole(one.checked_div(*other)),
        [Value::Uint(one), Value::Uint(other)] => natural(one.checked_div(*other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one / other)),
        _ => Err(Fault::no_overload()),
    }
}

fn remainder<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Fault::error("modulus by zero"))
        }
        [Value::Int(one), Value::Int(other)] => whole(one.checked_rem(*other)),
        [Value::Uint(one), Value::Uint(other)] => natural(one.checked_rem(*other)),
        _ => Err(Fault::no_overload()),
    }
}

fn is_in<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [wanted, Value::List(list)] => machine
            .position(wanted, list.iter())
            .map(|place| Value::Bool(place.is_some())),
        [wanted, Value::Map(map)] => {
            machine.pay(map.look())?;
            Ok(Value::Bool(map.get(wanted).is_some()))
        }
        _ => Err(Fault::no_overload()),
    }
}
