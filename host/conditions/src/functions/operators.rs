//! The operators, except for `&&`, `||`, `?:`, `[]` and field selections, which the machine evaluates itself.

use std::{cmp::Ordering, ops};

use ::time::{Duration as TimeSpan, OffsetDateTime};

use super::{
    Library, Style,
    typed::{A, B, Bytes, Duration, ListOf, MapOf, Str},
    value_or_error,
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
    library.add_global::<(A, A), bool>("_==_", |machine, (one, other)| {
        if one.is_only_equal_to_its_kind() && other.kind() != one.kind() && !matches!(other, Value::Null) {
            return Err(Fault::no_overload());
        }
        machine.charge_comparison(&one, &other)?;
        machine.equal(&one, &other)
    });
    library.add_global::<(A, A), bool>("_!=_", |machine, (one, other)| {
        machine.charge_comparison(&one, &other)?;
        Ok(!machine.equal(&one, &other)?)
    });
    register_comparisons(library);
    library.add_global::<(bool,), bool>("!_", |_, (value,)| Ok(!value));
    register_arithmetic(library);
    library.add_global::<(Str, Str), Str>("_+_", |machine, (one, other)| {
        machine.charge_bytes(one.len() + other.len())?;
        Ok(CelText::from([&*one, &*other].concat()))
    });
    library.add_global::<(Bytes, Bytes), Bytes>("_+_", |machine, (one, other)| {
        machine.charge_bytes(one.len() + other.len())?;
        Ok([&*one, &*other].concat().into())
    });
    library.add_global::<(ListOf<A>, ListOf<A>), ListOf<A>>("_+_", |machine, (one, other)| {
        // In kube-apiserver, `+` does not copy the lists, so it costs no more than any call of an operator. This
        // program copies the lists, so it also charges for the copies if they are long.
        let length = one.len() + other.len();
        if length > SHORT_LIST {
            machine.charge_items(length)?;
        }
        Ok(CelList::Shared(one.iter().chain(other.iter()).collect()))
    });
    library.add_global::<(A, ListOf<A>), bool>("@in", |machine, (wanted, list)| {
        machine.charge_items(list.len())?;
        for item in list.iter() {
            if machine.equal(&item, &wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    });
    library.add_global::<(A, MapOf<A, B>), bool>("@in", |machine, (wanted, map)| {
        machine.charge(map.lookup_cost())?;
        Ok(map.get(&wanted).is_some())
    });
}

fn register_comparisons(library: &mut Library) {
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
        library.add_polymorphic(
            name,
            Style::Global,
            signatures.clone(),
            move |machine, arguments| match arguments {
                [one, other] => {
                    let order = value_or_error(compare_values(machine, one, other)?, "NaN values cannot be ordered")?;
                    Ok(Value::Bool(holds(order)))
                }
                _ => Err(Fault::no_overload()),
            },
        );
    }
}

fn register_arithmetic(library: &mut Library) {
    library.add_global::<(i64,), i64>("-_", |_, (value,)| value_or_error(value.checked_neg(), INT_OVERFLOW));
    library.add_global::<(f64,), f64>("-_", |_, (value,)| Ok(-value));
    let ints: [(&str, fn(i64, i64) -> Option<i64>); 3] = [
        ("_+_", i64::checked_add),
        ("_-_", i64::checked_sub),
        ("_*_", i64::checked_mul),
    ];
    for (name, run) in ints {
        library.add_global::<(i64, i64), i64>(name, move |_, (one, other)| {
            value_or_error(run(one, other), INT_OVERFLOW)
        });
    }
    let uints: [(&str, fn(u64, u64) -> Option<u64>); 3] = [
        ("_+_", u64::checked_add),
        ("_-_", u64::checked_sub),
        ("_*_", u64::checked_mul),
    ];
    for (name, run) in uints {
        library.add_global::<(u64, u64), u64>(name, move |_, (one, other)| {
            value_or_error(run(one, other), UINT_OVERFLOW)
        });
    }
    let doubles: [(&str, fn(f64, f64) -> f64); 4] = [
        ("_+_", ops::Add::add),
        ("_-_", ops::Sub::sub),
        ("_*_", ops::Mul::mul),
        ("_/_", ops::Div::div),
    ];
    for (name, run) in doubles {
        library.add_global::<(f64, f64), f64>(name, move |_, (one, other)| Ok(run(one, other)));
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
        library.add_global::<(i64, i64), i64>(name, move |_, (one, other)| {
            value_or_error(int(one, other), if other == 0 { by_zero } else { INT_OVERFLOW })
        });
        library.add_global::<(u64, u64), u64>(name, move |_, (one, other)| value_or_error(uint(one, other), by_zero));
    }
    register_time_arithmetic(library);
}

fn register_time_arithmetic(library: &mut Library) {
    library.add_global::<(Duration, Duration), Duration>("_+_", |_, (one, other)| {
        value_or_error(one.checked_add(other), DURATION_OVERFLOW)
    });
    library.add_global::<(Duration, Duration), Duration>("_-_", |_, (one, other)| {
        value_or_error(one.checked_sub(other), DURATION_OVERFLOW)
    });
    library.add_global::<(OffsetDateTime, Duration), OffsetDateTime>("_+_", |_, (time, span)| {
        value_or_error(time.checked_add(TimeSpan::nanoseconds(span)), TIMESTAMP_OVERFLOW)
    });
    library.add_global::<(Duration, OffsetDateTime), OffsetDateTime>("_+_", |_, (span, time)| {
        value_or_error(time.checked_add(TimeSpan::nanoseconds(span)), TIMESTAMP_OVERFLOW)
    });
    library.add_global::<(OffsetDateTime, Duration), OffsetDateTime>("_-_", |_, (time, span)| {
        value_or_error(time.checked_sub(TimeSpan::nanoseconds(span)), TIMESTAMP_OVERFLOW)
    });
    library.add_global::<(OffsetDateTime, OffsetDateTime), Duration>("_-_", |_, (one, other)| {
        value_or_error((one - other).whole_nanoseconds().try_into().ok(), DURATION_OVERFLOW)
    });
}

/// Returns the order of two values of one type; `None` if one is NaN.
pub(super) fn compare_values<'a>(
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
