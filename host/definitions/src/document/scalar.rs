//! Converts scalars like kubectl: by go-yaml v2's rules for YAML 1.1 (`resolve.go`), then to JSON as sigs.k8s.io/yaml.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use granit_parser::Tag;
use serde_json::Number;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(Number),
    /// A finite number not written as an integer, such as `1.5` or `1e3`. A whole value becomes an integer in JSON.
    Float(f64),
    String,
    /// The decoded text of a scalar with the tag `!!binary`.
    Binary(String),
    /// The key `<<`, whose value is merged into the surrounding map.
    Merge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidScalar {
    /// The text does not match the tag before it, as in `!!int x`.
    Tag,
    /// The number is infinite or not a number, which JSON cannot represent.
    Number,
}

const NULL_TEXTS: [&str; 5] = ["", "~", "null", "Null", "NULL"];
/// The words that are booleans in both YAML 1.1 and YAML 1.2. Other words, such as `yes` and `off`, are booleans only
/// in YAML 1.1.
const CORE_BOOL: [&str; 6] = ["true", "True", "TRUE", "false", "False", "FALSE"];
const TRUE_TEXTS: [&str; 8] = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON"];
const FALSE_TEXTS: [&str; 8] = ["n", "N", "no", "No", "NO", "off", "Off", "OFF"];
const INFINITY_TEXTS: [&str; 3] = [".inf", ".Inf", ".INF"];
const NOT_A_NUMBER: [&str; 3] = [".nan", ".NaN", ".NAN"];

pub(super) fn resolve(text: &str, is_plain: bool, tag: Option<&Tag>) -> Result<Scalar, InvalidScalar> {
    let Some(tag) = tag else {
        return if is_plain {
            resolve_plain(text)
        } else {
            Ok(Scalar::String)
        };
    };
    let name = tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or_default();
    match (&*name, resolve_plain(text)) {
        ("null" | "bool" | "int" | "float", Err(error)) => Err(error),
        ("null", Ok(Scalar::Null)) => Ok(Scalar::Null),
        ("bool", Ok(value @ Scalar::Bool(_))) => Ok(value),
        ("int" | "float", Ok(value @ Scalar::Integer(_))) => Ok(value),
        ("float", Ok(value @ Scalar::Float(_))) => Ok(value),
        ("null" | "bool" | "int" | "float", Ok(_)) => Err(InvalidScalar::Tag),
        ("binary", _) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|_| InvalidScalar::Tag)?;
            Ok(Scalar::Binary(String::from_utf8_lossy(&bytes).into_owned()))
        }
        ("merge", Ok(Scalar::Merge)) => Ok(Scalar::Merge),
        // A text with any other tag becomes a string. This includes `!!timestamp`, because JSON has no timestamp type.
        _ => Ok(Scalar::String),
    }
}

fn resolve_plain(text: &str) -> Result<Scalar, InvalidScalar> {
    if NULL_TEXTS.contains(&text) {
        return Ok(Scalar::Null);
    }
    if let Some(value) = parse_boolean(text) {
        return Ok(Scalar::Bool(value));
    }
    if text == "<<" {
        return Ok(Scalar::Merge);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if INFINITY_TEXTS.contains(&unsigned) || NOT_A_NUMBER.contains(&text) {
        return Err(InvalidScalar::Number);
    }
    Ok(parse_number(text).unwrap_or(Scalar::String))
}

fn parse_boolean(text: &str) -> Option<bool> {
    if CORE_BOOL.contains(&text) || TRUE_TEXTS.contains(&text) {
        return Some(!text.starts_with(['f', 'F']));
    }
    FALSE_TEXTS.contains(&text).then_some(false)
}

/// Parses a number of YAML 1.1. Returns `None` for other texts and for too large numbers, which stay strings.
fn parse_number(text: &str) -> Option<Scalar> {
    // Underscores between digits are dropped, but only in a number that begins with a digit or sign.
    let digits = match text.as_bytes().first()? {
        b'.' => Cow::Borrowed(text),
        b'0'..=b'9' | b'+' | b'-' => Cow::Owned(text.replace('_', "")),
        _ => return None,
    };
    parse_integer(&digits)
        .map(Scalar::Integer)
        .or_else(|| parse_float(&digits).map(Scalar::Float))
}

fn parse_integer(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefixes = [
        ("0x", 16),
        ("0X", 16),
        ("0b", 2),
        ("0B", 2),
        ("0o", 8),
        ("0O", 8),
        ("0", 8),
    ];
    let with_base = prefixes
        .into_iter()
        .find_map(|(prefix, base)| Some((unsigned.strip_prefix(prefix)?, base)));
    let (digits, base) = with_base.filter(|_| unsigned != "0").unwrap_or((unsigned, 10));
    parse_signed(text, digits, base)
}

fn parse_signed(text: &str, digits: &str, base: u32) -> Option<Number> {
    if !digits.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    match text.as_bytes().first()? {
        b'-' => i64::from_str_radix(&format!("-{digits}"), base).ok().map(Number::from),
        b'+' => i64::from_str_radix(digits, base).ok().map(Number::from),
        _ => u64::from_str_radix(digits, base).ok().map(Number::from),
    }
}

fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let has_only_digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !unsigned.chars().all(has_only_digits) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Returns the JSON number that Go writes for a float: an integer if the float is whole and fits into an `i64`.
pub(super) fn number_from_float(number: f64) -> Option<Number> {
    // The lowest float that is too large for an `i64`.
    const LARGEST_INTEGER: f64 = (1_u64 << 63) as f64;
    if number.trunc() == number && number.abs() < LARGEST_INTEGER {
        return Some((number as i64).into());
    }
    Number::from_f64(number)
}

/// Returns the JSON key for a map key that is a float in YAML. The float is rounded to 32 bits, as in sigs.k8s.io/yaml.
pub(super) fn key_of_float(number: f64) -> String {
    let short = number as f32;
    let scientific = format!("{short:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..6 => short.to_string(),
        exponent if exponent < 0 => format!("{digits}e-{:02}", -exponent),
        exponent => format!("{digits}e+{exponent:02}"),
    }
}

/// If a scalar without quotes has different values in YAML 1.1 and in YAML 1.2, returns both values.
pub(super) fn differing_values(text: &str, value: &Scalar) -> Option<(String, String)> {
    let as_text = || format!("{text:?}");
    match value {
        Scalar::Bool(value) => (!CORE_BOOL.contains(&text)).then(|| (value.to_string(), as_text())),
        Scalar::Integer(number) => {
            let core = core_integer(text);
            let other = core.as_ref().map_or_else(as_text, Number::to_string);
            (core.as_ref() != Some(number)).then(|| (number.to_string(), other))
        }
        Scalar::Float(number) => parse_float(text).is_none().then(|| (number.to_string(), as_text())),
        Scalar::Null | Scalar::String | Scalar::Binary(_) | Scalar::Merge => None,
    }
}

fn core_integer(text: &str) -> Option<Number> {
    let with_base = [("0x", 16), ("0o", 8)]
        .into_iter()
        .find_map(|(prefix, base)| Some((text.strip_prefix(prefix)?, base)));
    let (digits, base) = with_base.unwrap_or((text.strip_prefix(['+', '-']).unwrap_or(text), 10));
    parse_signed(text, digits, base)
}
