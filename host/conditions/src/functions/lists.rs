//! Kubernetes' functions of lists, and of lists as sets.

use super::{Library, operators::order};
use crate::{
    machine::{Fault, Machine, Outcome, as_list},
    types::{Type, list as list_of},
    value::{List, Value},
};

const A: Type = Type::Any(0);

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, String, Timestamp, Uint};
    let ordered = [Bool, Int, Uint, Double, String, Bytes, Duration, Timestamp, Dyn];
    let lists: Vec<[Type; 1]> = ordered.iter().map(|kind| [list_of(kind.clone())]).collect();
    let sorted: Vec<(&[Type], Type)> = lists.iter().map(|kind| (kind.as_slice(), Bool)).collect();
    let extremes: Vec<(&[Type], Type)> = lists
        .iter()
        .zip(&ordered)
        .map(|(list, kind)| (list.as_slice(), kind.clone()))
        .collect();
    library.member("isSorted", is_sorted, &sorted);
    library.member("min", min, &extremes);
    library.member("max", max, &extremes);
    library.member(
        "sum",
        sum,
        &[
            (&[list_of(Int)], Int),
            (&[list_of(Uint)], Uint),
            (&[list_of(Double)], Double),
            (&[list_of(Duration)], Duration),
            (&[list_of(Dyn)], Dyn),
        ],
    );
    let sets: [(&[Type], Type); 1] = [(&[list_of(A), list_of(A)], Bool)];
    library.global("sets.contains", contains, &sets);
    library.global("sets.equivalent", equivalent, &sets);
    library.global("sets.intersects", intersects, &sets);
}

fn is_sorted<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [list] = arguments else {
        return Err(Fault::no_overload());
    };
    let mut before: Option<Value<'a>> = None;
    for item in as_list(list)?.iter() {
        machine.pay(1)?;
        if let Some(before) = &before
            && order(machine, before, &item)?.is_none_or(std::cmp::Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn extreme<'a>(
    machine: &mut Machine<'a>,
    arguments: &[Value<'a>],
    name: &str,
    better: fn(std::cmp::Ordering) -> bool,
) -> Outcome<'a> {
    let [list] = arguments else {
        return Err(Fault::no_overload());
    };
    let mut best: Option<Value<'a>> = None;
    for item in as_list(list)?.iter() {
        machine.pay(1)?;
        best = match best {
            Some(best) if !order(machine, &item, &best)?.is_some_and(better) => Some(best),
            _ => Some(item),
        };
    }
    best.ok_or_else(|| Fault::error(format!("{name} called on empty list")))
}

fn min<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    extreme(machine, arguments, "min", std::cmp::Ordering::is_lt)
}

fn max<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    extreme(machine, arguments, "max", std::cmp::Ordering::is_gt)
}

fn sum<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [list] = arguments else {
        return Err(Fault::no_overload());
    };
    let overflow = || Fault::error("integer overflow");
    let mut total = Value::Int(0);
    for (place, item) in as_list(list)?.iter().enumerate() {
        machine.pay(1)?;
        total = match (total, item) {
            (_, item @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)))
                if place == 0 =>
            {
                item
            }
            (Value::Int(one), Value::Int(other)) => Value::Int(one.checked_add(other).ok_or_else(overflow)?),
            (Value::Uint(one), Value::Uint(other)) => {
                Value::Uint(one.checked_add(other).ok_or_else(overflow)?)
            }
            (Value::Double(one), Value::Double(other)) => Value::Double(one + other),
            (Value::Duration(one), Value::Duration(other)) => {
                Value::Duration(one.checked_add(other).ok_or_else(overflow)?)
            }
            _ => return Err(Fault::no_overload()),
        };
    }
    Ok(total)
}

/// The place of a value, from the front or from the back; -1 when it is not there.
pub(crate) fn index_of<'a>(
    machine: &mut Machine<'a>,
    list: &List<'a>,
    wanted: &Value<'a>,
    last: bool,
) -> Outcome<'a> {
    let mut found = -1;
    for (place, item) in (0_i64..).zip(list.iter()) {
        machine.pay(1)?;
        if machine.equal(&item, wanted)? {
            found = place;
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

/// Whether every item of `others` is in `list`.
fn has_all<'a>(machine: &mut Machine<'a>, list: &List<'a>, others: &List<'a>) -> Result<bool, Fault> {
    for other in others.iter() {
        if machine.position(&other, list.iter())?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::List(list), Value::List(others)] => has_all(machine, list, others).map(Value::Bool),
        _ => Err(Fault::no_overload()),
    }
}

fn equivalent<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::List(one), Value::List(other)] => Ok(Value::Bool(
            has_all(machine, one, other)? && has_all(machine, other, one)?,
        )),
        _ => Err(Fault::no_overload()),
    }
}

fn intersects<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::List(one), Value::List(other)] => {
            for item in one.iter() {
                if machine.position(&item, other.iter())?.is_some() {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        _ => Err(Fault::no_overload()),
    }
}
