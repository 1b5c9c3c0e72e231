//! The `math` libraries of cel-go and Kyverno.

use super::{Library, Style};
use crate::{
    machine::{Fault, Machine, Outcome},
    types::Type,
    value::Value,
};

pub(super) fn register(library: &mut Library) {
    for (name, is_greatest) in [("math.greatest", true), ("math.least", false)] {
        library.add_polymorphic(
            name,
            Style::Global,
            (1..=4).map(|count| (vec![Type::Dyn; count], Type::Dyn)),
            move |machine, values| match values {
                [Value::List(list)] => extreme(machine, &list.iter().collect::<Vec<_>>(), is_greatest),
                values => extreme(machine, values, is_greatest),
            },
        );
    }
    let double_functions: [(&str, fn(f64) -> f64); 4] = [
        ("math.ceil", f64::ceil),
        ("math.floor", f64::floor),
        ("math.round", f64::round),
        ("math.trunc", f64::trunc),
    ];
    for (name, function) in double_functions {
        library.add_global::<(f64,), f64>(name, move |_, (value,)| Ok(function(value)));
    }
    library.add_global::<(f64, i64), f64>("math.round", |_, (value, digits)| {
        let shift = 10f64.powi(i32::try_from(digits).unwrap_or(i32::MAX));
        Ok((value * shift).round() / shift)
    });
    let tests: [(&str, fn(f64) -> bool); 3] = [
        ("math.isNaN", f64::is_nan),
        ("math.isInf", f64::is_infinite),
        ("math.isFinite", f64::is_finite),
    ];
    for (name, test) in tests {
        library.add_global::<(f64,), bool>(name, move |_, (value,)| Ok(test(value)));
    }
    library.add_global::<(i64,), i64>("math.abs", |_, (value,)| {
        value.checked_abs().ok_or_else(|| Fault::error("integer overflow"))
    });
    library.add_global::<(f64,), f64>("math.abs", |_, (value,)| Ok(value.abs()));
    library.add_global::<(i64,), i64>("math.sign", |_, (value,)| Ok(value.signum()));
    library.add_global::<(f64,), f64>("math.sign", |_, (value,)| {
        Ok(if value == 0.0 { value } else { value.signum() })
    });
    let bit_functions: [(&str, fn(i64, i64) -> i64); 3] = [
        ("math.bitAnd", |one, other| one & other),
        ("math.bitOr", |one, other| one | other),
        ("math.bitXor", |one, other| one ^ other),
    ];
    for (name, function) in bit_functions {
        library.add_global::<(i64, i64), i64>(name, move |_, (one, other)| Ok(function(one, other)));
    }
    library.add_global::<(i64,), i64>("math.bitNot", |_, (value,)| Ok(!value));
}

fn extreme<'a>(machine: &mut Machine<'a>, values: &[Value<'a>], is_greatest: bool) -> Outcome<'a> {
    machine.charge_items(values.len())?;
    let mut best: Option<&Value<'a>> = None;
    for value in values {
        let number = value.number().ok_or_else(Fault::no_overload)?;
        let is_better = best.and_then(Value::number).is_none_or(|best_number| {
            if is_greatest {
                number > best_number
            } else {
                number < best_number
            }
        });
        if is_better {
            best = Some(value);
        }
    }
    best.cloned()
        .ok_or_else(|| Fault::error("math.@min(list) argument must not be empty"))
}
