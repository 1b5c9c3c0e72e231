//! Quantities of resources, as `500m` and `2Gi`: Kubernetes' `quantity`.

use super::Library;
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{QUANTITY, Type},
    value::Value,
};

/// An amount, in units of 10^-9: Kubernetes keeps no smaller ones, and rounds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

const ONE: i128 = 1_000_000_000;
/// The longest text of a number that can be one; longer ones are too large or needlessly fine.
const LONGEST: usize = 64;

impl Quantity {
    fn read(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return None;
        }
        // The number is its digits, so many places behind the point, times two to a power.
        let (twos, tens) = scale(suffix)?;
        let digits = format!("{whole}{part}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self(0));
        }
        let digits: i128 = digits.parse().ok()?;
        let digits = digits.checked_mul(1_i128.checked_shl(twos)?)?;
        let places = tens + 9 - i32::try_from(part.len()).ok()?;
        let amount = match u32::try_from(places) {
            Ok(places) => digits.checked_mul(10_i128.checked_pow(places)?)?,
            Err(_) => match 10_i128.checked_pow(places.unsigned_abs()) {
                // Away from zero, as Kubernetes rounds.
                Some(power) => digits / power + i128::from(digits % power != 0),
                None => 1,
            },
        };
        Some(Self(amount * sign))
    }

    fn whole(self) -> Option<i64> {
        if self.0 % ONE == 0 {
            i64::try_from(self.0 / ONE).ok()
        } else {
            None
        }
    }
}

/// What a suffix stands for: a power of two and one of ten.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        other => {
            let power = other.strip_prefix(['e', 'E'])?;
            let power: i32 = power.parse().ok()?;
            if !(-100..=100).contains(&power) {
                return None;
            }
            (0, power)
        }
    })
}

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Double, Int, String};
    library.global("isQuantity", is_quantity, &[(&[String], Bool)]);
    library.global("quantity", quantity, &[(&[String], QUANTITY)]);
    library.member("sign", sign, &[(&[QUANTITY], Int)]);
    library.member("isInteger", is_integer, &[(&[QUANTITY], Bool)]);
    library.member("asInteger", as_integer, &[(&[QUANTITY], Int)]);
    library.member("asApproximateFloat", as_float, &[(&[QUANTITY], Double)]);
    let pairs = |result: Type| -> [(&'static [Type], Type); 1] { [(&[QUANTITY, QUANTITY], result)] };
    library.member("compareTo", compare_to, &pairs(Int));
    library.member("isLessThan", is_less_than, &pairs(Bool));
    library.member("isGreaterThan", is_greater_than, &pairs(Bool));
    let sums: [(&[Type], Type); 2] = [(&[QUANTITY, QUANTITY], QUANTITY), (&[QUANTITY, Int], QUANTITY)];
    library.member("add", add, &sums);
    library.member("sub", sub, &sums);
}

fn is_quantity<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            Ok(Value::Bool(Quantity::read(text).is_some()))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn quantity<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            Quantity::read(text)
                .map(made)
                .ok_or_else(|| Fault::error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn made<'a>(quantity: Quantity) -> Value<'a> {
    Value::Quantity(std::sync::Arc::new(quantity))
}

fn sign<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(quantity)] => Ok(Value::Int(quantity.0.signum() as i64)),
        _ => Err(Fault::no_overload()),
    }
}

fn is_integer<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(quantity)] => Ok(Value::Bool(quantity.whole().is_some())),
        _ => Err(Fault::no_overload()),
    }
}

fn as_integer<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(quantity)] => quantity
            .whole()
            .map(Value::Int)
            .ok_or_else(|| Fault::error("cannot convert value to integer")),
        _ => Err(Fault::no_overload()),
    }
}

fn as_float<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(quantity)] => Ok(Value::Double(quantity.0 as f64 / ONE as f64)),
        _ => Err(Fault::no_overload()),
    }
}

fn compare_to<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(Value::Int(one.cmp(other) as i64)),
        _ => Err(Fault::no_overload()),
    }
}

fn is_less_than<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(Value::Bool(one < other)),
        _ => Err(Fault::no_overload()),
    }
}

fn is_greater_than<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(Value::Bool(one > other)),
        _ => Err(Fault::no_overload()),
    }
}

fn amounts(arguments: &[Value<'_>]) -> Result<(i128, i128), Fault> {
    match arguments {
        [Value::Quantity(one), Value::Quantity(other)] => Ok((one.0, other.0)),
        [Value::Quantity(one), Value::Int(other)] => Ok((one.0, i128::from(*other) * ONE)),
        _ => Err(Fault::no_overload()),
    }
}

fn add<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (one, other) = amounts(arguments)?;
    one.checked_add(other)
        .map(|sum| made(Quantity(sum)))
        .ok_or_else(|| Fault::error("quantity overflow"))
}

fn sub<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (one, other) = amounts(arguments)?;
    one.checked_sub(other)
        .map(|difference| made(Quantity(difference)))
        .ok_or_else(|| Fault::error("quantity overflow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(ONE)),
            ("500m", Some(ONE / 2)),
            ("-1.5", Some(-ONE * 3 / 2)),
            ("1Ki", Some(1024 * ONE)),
            ("0.5Ki", Some(512 * ONE)),
            ("1e3", Some(1000 * ONE)),
            ("1E3", Some(1000 * ONE)),
            ("1E", Some(1_000_000_000_000_000_000 * ONE)),
            (".5", Some(ONE / 2)),
            ("5.", Some(5 * ONE)),
            ("0.1n", Some(1)),
            ("-0.1n", Some(-1)),
            ("1e-50", Some(1)),
            ("", None),
            ("m", None),
            (".", None),
            ("1 Gi", None),
            ("1gi", None),
            ("1.2.3", None),
            ("1e", None),
            ("1e999999", None),
            ("200m m", None),
            ("99999999999999999999999999999999999999999999Ei", None),
        ] {
            assert_eq!(
                Quantity::read(text).map(|quantity| quantity.0),
                expected,
                "{text}"
            );
        }
    }
}
