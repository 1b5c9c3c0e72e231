//! The operators, except for `&&`, `||`, `?:`, `[]` and field selections, which the machine evaluates itself.

use std::{cmp::Ordering, ops};

use ::time::{Duration as TimeSpan, OffsetDateTime};

use super::{
    Library, Style, some_or,
    typed::{A, B, Bytes, Duration, ListOf, MapOf, Str},
};
use crate::{
    machine::{Fault, Machine},
    types::Type,
    value::{CelList, CelText, Value},
};

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";
/// If a function copies a list of at most this many items, the copy costs nothing extra.
const SHORT_LIST: usize = 64;
const DURATION_OVERFLOW: &str = "duration overflow";
const TIMESTAMP_OVERFLOW: &str = "timestamp overflow";

pub(super) fn register(library: &mut Library) {
    library.global::<(A, A), bool>("_==_", |machine, (one, other)| {
        if one.is_only_equal_to_its_kind() && other.kind() != one.kind() && !matches!(other, Value::Null) {
            return Err(Fault::no_overload());
        }
        machine.charge_comparison(&one, &other)?;
        machine.equal(&one, &other)
    });
    library.global::<(A, A), bool>("_!=_", |machine, (one, other)| {
        machine.charge_comparison(&one, &other)?;
        Ok(!machine.equal(&one, &other)?)
    });
    comparisons(library);
    library.global::<(bool,), bool>("!_", |_, (value,)| Ok(!value));
    arithmetic(library);
    library.global::<(Str, Str), Str>("_+_", |machine, (one, other)| {
        machine.charge_bytes(one.len() + other.len())?;
        Ok(CelText::from([&*one, &*other].concat()))
    });
    library.global::<(Bytes, Bytes), Bytes>("_+_", |machine, (one, other)| {
        machine.charge_bytes(one.len() + other.len())?;
        Ok([&*one, &*other].concat().into())
    });
    library.global::<(ListOf<A>, ListOf<A>), ListOf<A>>("_+_", |machine, (one, other)| {
        // In kube-apiserver, `+` does not copy the lists, so it costs no more than any call of an operator. This
        // program copies the lists, so it also charges for the copies if they are long.
        let length = one.len() + other.len();
        if length > SHORT_LIST {
            machine.charge_items(length)?;
        }
        Ok(CelList::Shared(one.iter().chain(other.iter()).collect()))
    });
    library.global::<(A, ListOf<A>), bool>("@in", |machine, (wanted, list)| {
        machine.charge_items(list.len())?;
        for item in list.iter() {
            if machine.equal(&item, &wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    });
    library.global::<(A, MapOf<A, B>), bool>("@in", |machine, (wanted, map)| {
        machine.charge(map.lookup_cost())?;
        Ok(map.get(&wanted).is_some())
    });
}

fn comparisons(library: &mut Library) {
    use Type::{Bool, Double, Int, String, Timestamp, Uint};
    let numbers = [Int, Uint, Double];
    let mixed = numbers
        .iter()
        .flat_map(|one| numbers.iter().map(|other| vec![one.clone(), other.clone()]));
    let same = [Bool, String, Type::Bytes, Type::Duration, Timestamp].map(|kind| vec![kind.clone(), kind]);
    let signatures: Vec<_> = mixed.chain(same).map(|pair| (pair, Bool)).collect();
    let operators: [(&str, fn(Ordering) -> bool); 4] = [
        ("_<_", Ordering::is_lt),
        ("_<=_", Ordering::is_le),
        ("_>_", Ordering::is_gt),
        ("_>=_", Ordering::is_ge),
    ];
    for (name, holds) in operators {
        library.polymorphic(
            name,
            Style::Global,
            signatures.clone(),
            move |machine, arguments| match arguments {
                [one, other] => {
                    let order = some_or(order(machine, one, other)?, "NaN values cannot be ordered")?;
                    Ok(Value::Bool(holds(order)))
                }
                _ => Err(Fault::no_overload()),
            },
        );
    }
}

fn arithmetic(library: &mut Library) {
    library.global::<(i64,), i64>("-_", |_, (value,)| some_or(value.checked_neg(), INT_OVERFLOW));
    library.global::<(f64,), f64>("-_", |_, (value,)| Ok(-value));
    let ints: [(&str, fn(i64, i64) -> Option<i64>); 3] = [
        ("_+_", i64::checked_add),
        ("_-_", i64::checked_sub),
        ("_*_", i64::checked_mul),
    ];
    for (name, run) in ints {
        library.global::<(i64, i64), i64>(name, move |_, (one, other)| some_or(run(one, other), INT_OVERFLOW));
    }
    let uints: [(&str, fn(u64, u64) -> Option<u64>); 3] = [
        ("_+_", u64::checked_add),
        ("_-_", u64::checked_sub),
        ("_*_", u64::checked_mul),
    ];
    for (name, run) in uints {
        library.global::<(u64, u64), u64>(name, move |_, (one, other)| some_or(run(one, other), UINT_OVERFLOW));
    }
    let doubles: [(&str, fn(f64, f64) -> f64); 4] = [
        ("_+_", ops::Add::add),
        ("_-_", ops::Sub::sub),
        ("_*_", ops::Mul::mul),
        ("_/_", ops::Div::div),
    ];
    for (name, run) in doubles {
        library.global::<(f64, f64), f64>(name, move |_, (one, other)| Ok(run(one, other)));
    }
    for (name, by_zero, int, uint) in [
        (
            "_/_",
            "division by zero",
            i64::checked_div as fn(i64, i64) -> Option<i64>,
            u64::checked_div as fn(u64, u64) -> Option<u64>,
        ),
        ("_%_", "modulus by zero", i64::checked_rem, u64::checked_rem),
    ] {
        library.global::<(i64, i64), i64>(name, move |_, (one, other)| {
            some_or(int(one, other), if other == 0 { by_zero } else { INT_OVERFLOW })
        });
        library.global::<(u64, u64), u64>(name, move |_, (one, other)| some_or(uint(one, other), by_zero));
    }
    times(library);
}

fn times(library: &mut Library) {
    library.global::<(Duration, Duration), Duration>("_+_", |_, (one, other)| {
        some_or(one.checked_add(other), DURATION_OVERFLOW)
    });
    library.global::<(Duration, Duration), Duration>("_-_", |_, (one, other)| {
        some_or(one.checked_sub(other), DURATION_OVERFLOW)
    });
    library.global::<(OffsetDateTime, Duration), OffsetDateTime>("_+_", |_, (time, span)| {
        some_or(time.checked_add(TimeSpan::nanoseconds(span)), TIMESTAMP_OVERFLOW)
    });
    library.global::<(Duration, OffsetDateTime), OffsetDateTime>("_+_", |_, (span, time)| {
        some_or(time.checked_add(TimeSpan::nanoseconds(span)), TIMESTAMP_OVERFLOW)
    });
    library.global::<(OffsetDateTime, Duration), OffsetDateTime>("_-_", |_, (time, span)| {
        some_or(time.checked_sub(TimeSpan::nanoseconds(span)), TIMESTAMP_OVERFLOW)
    });
    library.global::<(OffsetDateTime, OffsetDateTime), Duration>("_-_", |_, (one, other)| {
        some_or((one - other).whole_nanoseconds().try_into().ok(), DURATION_OVERFLOW)
    });
}

/// Returns the order of two values of one type; `None` if one is NaN.
pub(super) fn order<'a>(
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
            machine.charge_bytes(one.len().min(other.len()))?;
            (**one).cmp(&**other)
        }
        (Value::Bytes(one), Value::Bytes(other)) => {
            machine.charge_bytes(one.len().min(other.len()))?;
            one.cmp(other)
        }
        (Value::Duration(one), Value::Duration(other)) => one.cmp(other),
        (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
        _ => return Err(Fault::no_overload()),
    }))
}
