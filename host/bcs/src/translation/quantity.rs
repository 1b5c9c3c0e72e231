//! Parses amounts of resources as `strconv.ParseFloat` of Go does.

/// Parses a decimal or hexadecimal number, such as `1_000` or `0x1p-2`; `None` if the text is not a number.
pub(super) fn parse(text: &str) -> Option<f64> {
    let plain = without_underscores(text)?;
    let (sign, digits) = match plain.as_bytes() {
        [b'-', ..] => (-1.0, plain.get(1..)?),
        [b'+', ..] => (1.0, plain.get(1..)?),
        _ => (1.0, plain.as_str()),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => parse_hexadecimal(digits).map(|number| sign * number),
        None => digits
            .starts_with(|first: char| first != '-' && first != '+')
            .then(|| digits.parse::<f64>().ok())?
            .map(|number| sign * number),
    }
}

/// Each underscore must be between two digits, or between `0x` and a digit.
fn without_underscores(text: &str) -> Option<String> {
    if !text.contains('_') {
        return Some(text.to_owned());
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    let is_hexadecimal = unsigned.starts_with("0x") || unsigned.starts_with("0X");
    let is_digit = |byte: u8| {
        if is_hexadecimal {
            byte.is_ascii_hexdigit() || matches!(byte, b'x' | b'X')
        } else {
            byte.is_ascii_digit()
        }
    };
    let bytes = text.as_bytes();
    let is_between = |index: usize| {
        let before = index.checked_sub(1).and_then(|index| bytes.get(index));
        let after = bytes.get(index + 1);
        before.is_some_and(|byte| is_digit(*byte)) && after.is_some_and(|byte| is_digit(*byte) && *byte != b'x')
    };
    text.match_indices('_')
        .all(|(index, _)| is_between(index))
        .then(|| text.replace('_', ""))
}

/// The number of hexadecimal digits that are used. An `f64` cannot hold more.
const MAX_DIGITS: usize = 30;

fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let is_well_formed = !(integer.is_empty() && fraction.is_empty())
        && (integer.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_hexdigit())
        && !unsigned.is_empty()
        && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if !is_well_formed {
        return None;
    }
    let digits: String = format!("{integer}{fraction}").trim_start_matches('0').to_owned();
    let significant_digits = digits.get(..MAX_DIGITS).unwrap_or(&digits);
    let mantissa = u128::from_str_radix(significant_digits, 16).unwrap_or_default();
    if mantissa == 0 {
        return Some(0.0);
    }
    let dropped_count = i64::try_from(digits.len() - significant_digits.len()).ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    // The number is infinite if the exponent is above 10,000, and 0 if it is below -10,000. Exponents beyond these
    // limits need not be told apart.
    let max_exponent = 10_000;
    let clamped_exponent = match (exponent.parse::<i64>(), exponent.starts_with('-')) {
        (Ok(exponent), _) => exponent.clamp(-max_exponent, max_exponent),
        (Err(_), true) => -max_exponent,
        (Err(_), false) => max_exponent,
    };
    let exponent = i32::try_from(clamped_exponent + 4 * (dropped_count - fraction)).ok()?;
    #[expect(clippy::cast_precision_loss, reason = "the nearest number is what is wanted")]
    let number = mantissa as f64;
    let half = exponent / 2;
    Some(number * 2_f64.powi(half) * 2_f64.powi(exponent - half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("", None),
            ("2", Some(2.0)),
            ("+2", Some(2.0)),
            ("-.5", Some(-0.5)),
            ("1.", Some(1.0)),
            ("1e3", Some(1000.0)),
            ("two", None),
            ("--2", None),
            ("+-2", None),
            (" 2", None),
            ("2m", None),
            ("1_0", Some(10.0)),
            ("1_23.50_0_0e+1_2", Some(1.235e14)),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1_.5", None),
            ("1_e3", None),
            ("0x1p-2", Some(0.25)),
            ("0X1.8P1", Some(3.0)),
            ("-0x.8p+1", Some(-1.0)),
            ("0x_1p4", Some(16.0)),
            ("0x1_0p0", Some(16.0)),
            ("0x10", None),
            ("0xp1", None),
            ("0x1p", None),
            ("0x1p1.0", None),
            ("0x1p+-1", None),
            ("0b1", None),
            ("0x1p-2000", Some(0.0)),
            ("0x0p99999999999999999999", Some(0.0)),
        ] {
            let quantity = parse(text).filter(|number| !number.is_nan());
            assert_eq!(quantity, expected, "{text:?}");
        }
        for text in ["inf", "-Infinity", "1e400", "0x1p99999999999999999999"] {
            assert!(parse(text).is_some_and(f64::is_infinite), "{text}");
        }
        assert!(parse("NaN").is_some_and(f64::is_nan));
        assert_eq!(parse(&format!("0x{}p-160", "f".repeat(40))), Some(1.0));
    }
}
