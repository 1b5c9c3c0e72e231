//! YAML bodies as JSON.
//!
//! Scalars are YAML 1.1, as in gopkg.in/yaml.v2, the original's parser: `yes` and `on` are true, `0777` is 511. A
//! key is always a string: `on: 1` has the key `on`.
//! Anchors, aliases and merge keys (`<<`) are supported. What the original silently drops or changes is
//! refused here: a duplicate key, a second document, a number that JSON cannot represent.

use admittance_definitions::document::{InvalidScalar, Mistake, Scalar, Schema, yaml_to_json};

/// Why a body cannot be converted to JSON: a sentence with the line and column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidYaml(String);

impl From<Mistake> for InvalidYaml {
    fn from(mistake: Mistake) -> Self {
        let Mistake {
            location,
            message,
            fix,
            ..
        } = mistake;
        let fix = if fix.is_empty() { fix } else { format!(": {fix}") };
        Self(format!(
            "line {}, column {}: {message}{fix}",
            location.line, location.column
        ))
    }
}

/// The one document in this text as JSON; an empty text stays empty. The JSON has at most `limit` bytes, however
/// often aliases repeat something.
pub(super) fn to_json(body: &[u8], limit: usize) -> Result<Vec<u8>, InvalidYaml> {
    let text = std::str::from_utf8(body).map_err(|error| {
        InvalidYaml(format!(
            "the body is not UTF-8 from byte {} on",
            error.valid_up_to()
        ))
    })?;
    Ok(yaml_to_json("body", text, Schema { scalar, limit })?.unwrap_or_default())
}

const NULL: [&str; 5] = ["", "~", "null", "Null", "NULL"];
const TRUE: [&str; 11] = [
    "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
];
const FALSE: [&str; 11] = [
    "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
];
const NOT_FINITE: [&str; 3] = [".inf", ".Inf", ".INF"];
const NOT_A_NUMBER: [&str; 3] = [".nan", ".NaN", ".NAN"];

fn scalar(text: &str, is_plain: bool, tag: Option<&str>) -> Result<Scalar, InvalidScalar> {
    match tag {
        None if is_plain => plain(text),
        None | Some("str") => Ok(Scalar::String),
        Some("null") if NULL.contains(&text) => Ok(Scalar::Null),
        Some("bool") => boolean(text).map(Scalar::Bool).ok_or(InvalidScalar::Tag),
        Some(tag @ ("int" | "float")) => match number(text)? {
            Some(json) if tag == "float" || !json.contains(['.', 'e']) => exact(json),
            _ => Err(InvalidScalar::Tag),
        },
        Some(_) => Err(InvalidScalar::Tag),
    }
}

fn plain(text: &str) -> Result<Scalar, InvalidScalar> {
    if NULL.contains(&text) {
        return Ok(Scalar::Null);
    }
    if let Some(value) = boolean(text) {
        return Ok(Scalar::Bool(value));
    }
    if text == "<<" {
        return Ok(Scalar::Merge);
    }
    number(text)?.map_or(Ok(Scalar::String), exact)
}

fn exact(json: String) -> Result<Scalar, InvalidScalar> {
    let number = serde_json::from_str(&json).map_err(|_| InvalidScalar::Number)?;
    Ok(Scalar::Number(number, json))
}

fn boolean(text: &str) -> Option<bool> {
    match (TRUE.contains(&text), FALSE.contains(&text)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// A number as JSON, exact for any number of digits; none if it is not a number.
fn number(text: &str) -> Result<Option<String>, InvalidScalar> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if NOT_FINITE.contains(&unsigned) || NOT_A_NUMBER.contains(&text) {
        return Err(InvalidScalar::Number);
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let digits = unsigned.replace('_', "");
    if let Some(magnitude) = of_base(&digits) {
        return magnitude.map(|magnitude| Some(format!("{sign}{magnitude}")));
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let magnitude = digits.trim_start_matches('0');
        let magnitude = if magnitude.is_empty() { "0" } else { magnitude };
        return Ok(Some(format!("{sign}{magnitude}")));
    }
    float(unsigned).map(|float| float.map(|float| format!("{sign}{float}")))
}

/// The value of an integer with a base prefix; none without one.
fn of_base(digits: &str) -> Option<Result<u64, InvalidScalar>> {
    let prefixed = [
        ("0x", 16),
        ("0X", 16),
        ("0b", 2),
        ("0B", 2),
        ("0o", 8),
        ("0O", 8),
        ("0", 8),
    ];
    let (rest, base) = prefixed
        .iter()
        .find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, *base)))?;
    // `0` itself, and `08`, which is not a valid octal number.
    if rest.is_empty() || !rest.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    Some(u64::from_str_radix(rest, base).map_err(|_| InvalidScalar::Number))
}

/// A number with a fraction or an exponent, as it is written where JSON has it so.
fn float(unsigned: &str) -> Result<Option<String>, InvalidScalar> {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_exponent = |text: &str| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        !digits.is_empty() && is_digits(digits)
    };
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if !has_digits || !is_digits(whole) || !is_digits(fraction) || !exponent.is_none_or(is_exponent) {
        return Ok(None);
    }
    if !unsigned.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(InvalidScalar::Number);
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    let exponent = exponent.map_or(String::new(), |exponent| format!("e{exponent}"));
    Ok(Some(format!("{whole}{point}{fraction}{exponent}")))
}

#[cfg(test)]
mod tests;
