//! Kubernetes' functions of lists, CEL's sets, and optional values.

use std::{cmp::Ordering, sync::Arc};

use super::{
    Library, Style,
    operators::order,
    some_or,
    typed::{A, Dyn, ListOf, OptionalOf},
};
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{Type, list as list_of},
    value::{List, Value},
};

pub(super) fn register(library: &mut Library) {
    lists(library);
    library.member::<(ListOf<A>, A), i64>("indexOf", |machine, (list, wanted)| {
        let found = machine.position(&wanted, list.iter())?;
        Ok(found.map_or(-1, |place| place as i64))
    });
    library.member::<(ListOf<A>, A), i64>("lastIndexOf", |machine, (list, wanted)| {
        let mut found = -1;
        for (place, item) in (0_i64..).zip(list.iter()) {
            machine.charge(1)?;
            if machine.equal(&item, &wanted)? {
                found = place;
            }
        }
        Ok(found)
    });
    library.global::<(ListOf<A>, ListOf<A>), bool>("sets.contains", |machine, (list, others)| {
        contains_all(machine, &list, &others)
    });
    library.global::<(ListOf<A>, ListOf<A>), bool>("sets.equivalent", |machine, (one, other)| {
        Ok(contains_all(machine, &one, &other)? && contains_all(machine, &other, &one)?)
    });
    library.global::<(ListOf<A>, ListOf<A>), bool>("sets.intersects", |machine, (one, other)| {
        for item in one.iter() {
            if machine.position(&item, other.iter())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    });
    optional_values(library);
}

/// `isSorted`, `min`, `max` and `sum`. The item types of a dynamic list are known only at evaluation.
fn lists(library: &mut Library) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let ordered = [
        Bool,
        Int,
        Uint,
        Double,
        String,
        Bytes,
        Duration,
        Timestamp,
        Type::Dyn,
    ];
    let of_items = |kinds: &[Type]| -> Vec<_> {
        let signature = |kind: &Type| (vec![list_of(kind.clone())], kind.clone());
        kinds.iter().map(signature).collect()
    };
    let tests = of_items(&ordered).into_iter().map(|(list, _)| (list, Bool));
    library.polymorphic("isSorted", Style::Member, tests, |machine, arguments| {
        is_sorted(machine, only_list(arguments)?)
    });
    let extremes: [(&str, &str, fn(Ordering) -> bool); 2] = [
        ("min", "min called on empty list", Ordering::is_lt),
        ("max", "max called on empty list", Ordering::is_gt),
    ];
    for (name, empty, better) in extremes {
        library.polymorphic(
            name,
            Style::Member,
            of_items(&ordered),
            move |machine, arguments| {
                let mut best: Option<Value<'_>> = None;
                for item in only_list(arguments)?.iter() {
                    machine.charge(1)?;
                    best = match best {
                        Some(best) if !order(machine, &item, &best)?.is_some_and(better) => Some(best),
                        _ => Some(item),
                    };
                }
                some_or(best, empty)
            },
        );
    }
    let summands = of_items(&[Int, Uint, Double, Duration, Type::Dyn]);
    library.polymorphic("sum", Style::Member, summands, |machine, arguments| {
        sum(machine, only_list(arguments)?)
    });
}

fn only_list<'v, 'a>(arguments: &'v [Value<'a>]) -> Result<&'v List<'a>, Fault> {
    match arguments {
        [Value::List(list)] => Ok(list),
        _ => Err(Fault::no_overload()),
    }
}

fn is_sorted<'a>(machine: &mut Machine<'a>, list: &List<'a>) -> Outcome<'a> {
    let mut before: Option<Value<'a>> = None;
    for item in list.iter() {
        machine.charge(1)?;
        if let Some(before) = &before
            && order(machine, before, &item)?.is_none_or(Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(machine: &mut Machine<'a>, list: &List<'a>) -> Outcome<'a> {
    const OVERFLOW: &str = "integer overflow";
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        machine.charge(1)?;
        total = Some(match (total, item) {
            (None, item @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_))) => item,
            (Some(Value::Int(one)), Value::Int(other)) => {
                Value::Int(some_or(one.checked_add(other), OVERFLOW)?)
            }
            (Some(Value::Uint(one)), Value::Uint(other)) => {
                Value::Uint(some_or(one.checked_add(other), OVERFLOW)?)
            }
            (Some(Value::Double(one)), Value::Double(other)) => Value::Double(one + other),
            (Some(Value::Duration(one)), Value::Duration(other)) => {
                Value::Duration(some_or(one.checked_add(other), OVERFLOW)?)
            }
            _ => return Err(Fault::no_overload()),
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn contains_all<'a>(machine: &mut Machine<'a>, list: &List<'a>, others: &List<'a>) -> Result<bool, Fault> {
    for other in others.iter() {
        if machine.position(&other, list.iter())?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn optional_values(library: &mut Library) {
    library.global::<(A,), OptionalOf<A>>("optional.of", |_, (value,)| Ok(Some(Arc::new(value))));
    library.global::<(A,), OptionalOf<A>>("optional.ofNonZeroValue", |_, (value,)| {
        Ok((!value.is_zero()).then(|| Arc::new(value)))
    });
    library.global::<(), OptionalOf<Dyn>>("optional.none", |_, ()| Ok(None));
    library.member::<(OptionalOf<A>,), bool>("hasValue", |_, (value,)| Ok(value.is_some()));
    library.member::<(OptionalOf<A>,), A>("value", |_, (value,)| match value {
        Some(value) => Ok((*value).clone()),
        None => Err(Fault::error("optional.none() dereference")),
    });
    library
        .member::<(OptionalOf<A>, OptionalOf<A>), OptionalOf<A>>("or", |_, (one, other)| Ok(one.or(other)));
    library.member::<(OptionalOf<A>, A), A>("orValue", |_, (value, other)| {
        Ok(value.map_or(other, |value| (*value).clone()))
    });
}
