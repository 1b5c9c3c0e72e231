//! Kubernetes' list functions, and CEL's extensions for sets, lists and optional values.

use std::{cmp::Ordering, sync::Arc};

use super::{
    Library, Style,
    operators::compare_values,
    typed::{A, Dyn, ListOf, OptionalOf},
    value_or_error,
};
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{Type, list as list_of},
    value::{CelList, Value},
};

pub(super) fn register(library: &mut Library) {
    register_list_functions(library);
    library.add_member::<(ListOf<A>, A), i64>("indexOf", |machine, (list, value)| {
        let position = machine.position(&value, list.iter())?;
        Ok(position.map_or(-1, |index| index as i64))
    });
    library.add_member::<(ListOf<A>, A), i64>("lastIndexOf", |machine, (list, target)| {
        let mut last_index = -1;
        for (item_index, item) in (0_i64..).zip(list.iter()) {
            machine.charge(1)?;
            if machine.equal(&item, &target)? {
                last_index = item_index;
            }
        }
        Ok(last_index)
    });
    library.add_global::<(ListOf<A>, ListOf<A>), bool>("sets.contains", |machine, (list, required)| {
        contains_all(machine, &list, &required)
    });
    library.add_global::<(ListOf<A>, ListOf<A>), bool>("sets.equivalent", |machine, (one, other)| {
        Ok(contains_all(machine, &one, &other)? && contains_all(machine, &other, &one)?)
    });
    library.add_global::<(ListOf<A>, ListOf<A>), bool>("sets.intersects", |machine, (one, other)| {
        for item in one.iter() {
            if machine.position(&item, other.iter())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    });
    register_list_extension(library);
    register_optional_functions(library);
}

fn charge_list(machine: &mut Machine<'_>, items: usize) -> Result<(), Fault> {
    machine.charge(LIST_COST)?;
    machine.charge_items(items)
}

/// The cost of a function call that creates a list.
const LIST_COST: u64 = 11;

/// Charges for comparing each item of a list with each other item. As in kube-apiserver, item sizes do not matter.
fn charge_comparisons(machine: &mut Machine<'_>, items: usize, first: Option<&Value<'_>>) -> Result<(), Fault> {
    let size = (items as u64).saturating_mul(items as u64);
    let text_cost = match first {
        Some(Value::String(_) | Value::Bytes(_)) => size / 10,
        _ => 0,
    };
    machine.charge(LIST_COST)?;
    machine.charge(size.saturating_mul(2).saturating_add(text_cost))
}

fn register_list_extension(library: &mut Library) {
    library.add_member::<(ListOf<A>, i64, i64), ListOf<A>>("slice", |machine, (list, start, end)| {
        let slice_error = |why: &str| Err(Fault::error(format!("cannot slice({start}, {end}), {why}")));
        let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
            return slice_error("negative indexes not supported");
        };
        if from > to {
            return slice_error("start index must be less than or equal to end index");
        }
        if list.len() < to {
            return slice_error(&format!("list is length {}", list.len()));
        }
        charge_list(machine, to - from)?;
        Ok(list.iter().skip(from).take(to - from).collect())
    });
    library.add_member::<(ListOf<ListOf<A>>,), ListOf<A>>("flatten", |machine, (list,)| flatten(machine, &list, 1));
    library.add_member::<(ListOf<Dyn>, i64), ListOf<Dyn>>("flatten", |machine, (list, depth)| {
        let depth = usize::try_from(depth).ok();
        flatten(machine, &list, value_or_error(depth, "level must be non-negative")?)
    });
    library.add_member::<(ListOf<A>,), ListOf<A>>("reverse", |machine, (list,)| {
        charge_list(machine, list.len())?;
        Ok((0..list.len()).rev().filter_map(|index| list.get(index)).collect())
    });
    library.add_member::<(ListOf<A>,), ListOf<A>>("distinct", |machine, (list,)| {
        charge_comparisons(machine, list.len(), list.get(0).as_ref())?;
        let mut unique: Vec<Value<'_>> = Vec::new();
        'items: for item in list.iter() {
            for unique_item in &unique {
                if machine.equal(unique_item, &item)? {
                    continue 'items;
                }
            }
            unique.push(item);
        }
        Ok(unique.into_iter().collect())
    });
    library.add_global::<(i64,), ListOf<i64>>("lists.range", |machine, (count,)| {
        let count = count.max(0);
        charge_list(machine, usize::try_from(count).unwrap_or(usize::MAX))?;
        Ok((0..count).map(Value::Int).collect())
    });
    let sortable_types = [
        Type::Int,
        Type::Uint,
        Type::Double,
        Type::Bool,
        Type::Duration,
        Type::Timestamp,
        Type::String,
        Type::Bytes,
    ];
    let signatures = sortable_types.map(|kind| (vec![list_of(kind.clone())], list_of(kind)));
    library.add_polymorphic("sort", Style::Member, signatures, |machine, arguments| {
        let items: Vec<_> = only_list(arguments)?.iter().collect();
        let keys = items.clone();
        Ok(Value::list(sort_by_keys(machine, items, &keys)?))
    });
    library.add_member::<(ListOf<A>,), OptionalOf<A>>("first", |_, (list,)| Ok(list.get(0).map(Arc::new)));
    library.add_member::<(ListOf<A>,), OptionalOf<A>>("last", |_, (list,)| {
        Ok(list.len().checked_sub(1).and_then(|last| list.get(last)).map(Arc::new))
    });
    library.add_global::<(ListOf<OptionalOf<A>>,), ListOf<A>>("optional.unwrap", |machine, (list,)| {
        unwrap_items(machine, &list)
    });
    library.add_member::<(ListOf<OptionalOf<A>>,), ListOf<A>>("unwrapOpt", |machine, (list,)| {
        unwrap_items(machine, &list)
    });
}

fn unwrap_items<'a>(machine: &mut Machine<'a>, list: &CelList<'a>) -> Result<CelList<'a>, Fault> {
    machine.charge_items(list.len())?;
    let mut values = Vec::new();
    for item in list.iter() {
        let Value::Optional(value) = item else {
            return Err(Fault::error("value is not optional"));
        };
        values.extend(value.map(|value| (*value).clone()));
    }
    Ok(values.into_iter().collect())
}

/// Replaces lists inside the list with their items, down to this depth. The function keeps the open lists in a vector
/// instead of calling itself, because deeply nested lists would overflow the stack.
fn flatten<'a>(machine: &mut Machine<'a>, list: &CelList<'a>, depth: usize) -> Result<CelList<'a>, Fault> {
    charge_list(machine, list.len())?;
    let mut flat = Vec::new();
    let mut open_lists = vec![(list.clone(), 0)];
    while let Some((list, next_index)) = open_lists.pop() {
        let Some(item) = list.get(next_index) else { continue };
        machine.charge(1)?;
        open_lists.push((list, next_index + 1));
        match item {
            Value::List(inner) if open_lists.len() <= depth => open_lists.push((inner, 0)),
            item => flat.push(item),
        }
    }
    Ok(flat.into_iter().collect())
}

pub(crate) fn sort_by_keys<'a>(
    machine: &mut Machine<'a>,
    items: Vec<Value<'a>>,
    keys: &[Value<'a>],
) -> Result<Vec<Value<'a>>, Fault> {
    let Some(first) = keys.first() else {
        return Ok(items);
    };
    if keys.iter().any(|key| key.kind() != first.kind()) {
        return Err(Fault::error("list elements must have the same type"));
    }
    charge_comparisons(machine, keys.len(), Some(first))?;
    if total_order(first, first).is_none() {
        return Err(Fault::error("list elements must be comparable"));
    }
    let mut pairs: Vec<_> = keys.iter().zip(items).collect();
    pairs.sort_by(|(one, _), (other, _)| total_order(one, other).unwrap_or(Ordering::Equal));
    Ok(pairs.into_iter().map(|(_, item)| item).collect())
}

fn total_order(one: &Value<'_>, other: &Value<'_>) -> Option<Ordering> {
    Some(match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Int(one), Value::Int(other)) => one.cmp(other),
        (Value::Uint(one), Value::Uint(other)) => one.cmp(other),
        (Value::Double(one), Value::Double(other)) => one.total_cmp(other),
        (Value::String(one), Value::String(other)) => (**one).cmp(&**other),
        (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        (Value::Duration(one), Value::Duration(other)) => one.cmp(other),
        (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
        _ => return None,
    })
}

fn register_list_functions(library: &mut Library) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let ordered_types = [Bool, Int, Uint, Double, String, Bytes, Duration, Timestamp];
    let list_signatures = |kinds: &[Type]| -> Vec<_> {
        let signature = |kind: &Type| (vec![list_of(kind.clone())], kind.clone());
        kinds.iter().map(signature).collect()
    };
    let sorted_signatures = list_signatures(&ordered_types)
        .into_iter()
        .map(|(list, _)| (list, Bool));
    library.add_polymorphic("isSorted", Style::Member, sorted_signatures, |machine, arguments| {
        is_sorted(machine, only_list(arguments)?)
    });
    let extremes: [(&str, &str, fn(Ordering) -> bool); 2] = [
        ("min", "min called on empty list", Ordering::is_lt),
        ("max", "max called on empty list", Ordering::is_gt),
    ];
    for (name, empty_message, is_better) in extremes {
        library.add_polymorphic(
            name,
            Style::Member,
            list_signatures(&ordered_types),
            move |machine, arguments| {
                let mut best: Option<Value<'_>> = None;
                for item in only_list(arguments)?.iter() {
                    machine.charge(1)?;
                    best = match best {
                        Some(best) if !compare_values(machine, &item, &best)?.is_some_and(is_better) => Some(best),
                        _ => Some(item),
                    };
                }
                value_or_error(best, empty_message)
            },
        );
    }
    let summands = list_signatures(&[Int, Uint, Double, Duration]);
    library.add_polymorphic("sum", Style::Member, summands, |machine, arguments| {
        sum(machine, only_list(arguments)?)
    });
}

fn only_list<'v, 'a>(arguments: &'v [Value<'a>]) -> Result<&'v CelList<'a>, Fault> {
    match arguments {
        [Value::List(list)] => Ok(list),
        _ => Err(Fault::no_overload()),
    }
}

fn is_sorted<'a>(machine: &mut Machine<'a>, list: &CelList<'a>) -> Outcome<'a> {
    let mut previous: Option<Value<'a>> = None;
    for item in list.iter() {
        machine.charge(1)?;
        if let Some(before) = &previous
            && compare_values(machine, before, &item)?.is_some_and(Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(machine: &mut Machine<'a>, list: &CelList<'a>) -> Outcome<'a> {
    const OVERFLOW: &str = "integer overflow";
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        machine.charge(1)?;
        total = Some(match (total, item) {
            (None, item @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_))) => item,
            (Some(Value::Int(one)), Value::Int(other)) => Value::Int(value_or_error(one.checked_add(other), OVERFLOW)?),
            (Some(Value::Uint(one)), Value::Uint(other)) => {
                Value::Uint(value_or_error(one.checked_add(other), OVERFLOW)?)
            }
            (Some(Value::Double(one)), Value::Double(other)) => Value::Double(one + other),
            (Some(Value::Duration(one)), Value::Duration(other)) => {
                Value::Duration(value_or_error(one.checked_add(other), OVERFLOW)?)
            }
            _ => return Err(Fault::no_overload()),
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn contains_all<'a>(machine: &mut Machine<'a>, list: &CelList<'a>, required: &CelList<'a>) -> Result<bool, Fault> {
    for item in required.iter() {
        if machine.position(&item, list.iter())?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn register_optional_functions(library: &mut Library) {
    library.add_global::<(A,), OptionalOf<A>>("optional.of", |_, (value,)| Ok(Some(Arc::new(value))));
    library.add_global::<(A,), OptionalOf<A>>("optional.ofNonZeroValue", |_, (value,)| {
        Ok((!value.is_zero()).then(|| Arc::new(value)))
    });
    library.add_global::<(), OptionalOf<A>>("optional.none", |_, ()| Ok(None));
    library.add_member::<(OptionalOf<A>,), bool>("hasValue", |_, (value,)| Ok(value.is_some()));
    library.add_member::<(OptionalOf<A>,), A>("value", |_, (value,)| match value {
        Some(value) => Ok((*value).clone()),
        None => Err(Fault::error("optional.none() dereference")),
    });
    library.add_member::<(OptionalOf<A>, OptionalOf<A>), OptionalOf<A>>("or", |_, (one, other)| Ok(one.or(other)));
    library.add_member::<(OptionalOf<A>, A), A>("orValue", |_, (value, other)| {
        Ok(value.map_or(other, |value| (*value).clone()))
    });
}
