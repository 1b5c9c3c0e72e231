//! Kubernetes' library of quantities, such as `500m` or `2Gi`.

use std::sync::Arc;

use super::{Library, typed::Str, value_or_error};

/// A quantity as a multiple of 10^-9. As in Kubernetes, smaller fractions are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

const ONE: i128 = 1_000_000_000;
const INVALID_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// The maximum length of a quantity's text, in bytes. A longer quantity is too large or needlessly precise.
const MAX_LENGTH: usize = 64;

impl Quantity {
    fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH {
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
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if integer.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        // For example, `1.5Ki` is 15, times 2^10 (from the suffix `Ki`), times 10^-1 (from the decimal point). A suffix
        // such as `k` also stands for a power of ten.
        let (twos, tens) = scale(suffix)?;
        let all_digits = format!("{integer}{fraction}");
        let digits = all_digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self(0));
        }
        let digits: i128 = digits.parse().ok()?;
        let digits = digits.checked_mul(1_i128.checked_shl(twos)?)?;
        let exponent = tens + 9 - i32::try_from(fraction.len()).ok()?;
        let amount = match u32::try_from(exponent) {
            Ok(positive_exponent) => digits.checked_mul(10_i128.checked_pow(positive_exponent)?)?,
            Err(_) => match 10_i128.checked_pow(exponent.unsigned_abs()) {
                Some(power) => digits / power + i128::from(digits % power != 0),
                None => 1,
            },
        };
        Some(Self(amount * sign))
    }

    fn to_integer(self) -> Option<i64> {
        if self.0 % ONE == 0 {
            i64::try_from(self.0 / ONE).ok()
        } else {
            None
        }
    }
}

/// Returns the exponents of two and ten that the suffix of a quantity means, such as 10 and 0 for `Ki`.
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
            let power: i32 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            if !(-100..=100).contains(&power) {
                return None;
            }
            (0, power)
        }
    })
}

pub(super) fn register(library: &mut Library) {
    library.add_global::<(Str,), bool>("isQuantity", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(Quantity::read(&text).is_some())
    });
    library.add_global::<(Str,), Quantity>("quantity", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        value_or_error(Quantity::read(&text).map(Arc::new), INVALID_QUANTITY)
    });
    // In Kubernetes, `sign` is a global function, unlike the rest of the library's functions.
    library.add_global::<(Quantity,), i64>("sign", |_, (amount,)| Ok(amount.0.signum() as i64));
    library.add_member::<(Quantity,), bool>("isInteger", |_, (amount,)| Ok(amount.to_integer().is_some()));
    library.add_member::<(Quantity,), i64>("asInteger", |_, (amount,)| {
        value_or_error(amount.to_integer(), "cannot convert value to integer")
    });
    library.add_member::<(Quantity,), f64>("asApproximateFloat", |_, (amount,)| Ok(amount.0 as f64 / ONE as f64));
    library.add_member::<(Quantity, Quantity), i64>("compareTo", |_, (one, other)| Ok(one.cmp(&other) as i64));
    library.add_member::<(Quantity, Quantity), bool>("isLessThan", |_, (one, other)| Ok(one < other));
    library.add_member::<(Quantity, Quantity), bool>("isGreaterThan", |_, (one, other)| Ok(one > other));
    let sums: [(&str, fn(i128, i128) -> Option<i128>); 2] = [("add", i128::checked_add), ("sub", i128::checked_sub)];
    for (name, sum) in sums {
        let sum = move |one: i128, other| {
            value_or_error(sum(one, other).map(|sum| Arc::new(Quantity(sum))), "quantity overflow")
        };
        library.add_member::<(Quantity, Quantity), Quantity>(name, move |_, (one, other)| sum(one.0, other.0));
        library
            .add_member::<(Quantity, i64), Quantity>(name, move |_, (one, other)| sum(one.0, i128::from(other) * ONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_and_rounded_as_in_kubernetes() {
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
            assert_eq!(Quantity::read(text).map(|quantity| quantity.0), expected, "{text}");
        }
    }
}
