//! Resolves plain scalars as YAML 1.1, like gopkg.in/yaml.v2.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    /// As JSON.
    Number(String),
    String(String),
    /// The merge key.
    Merge,
}

impl Scalar {
    pub(super) fn json(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(json) => json.clone(),
            Self::String(text) => serde_json::Value::from(text.as_str()).to_string(),
            Self::Merge => r#""<<""#.to_owned(),
        }
    }
}

/// A number that JSON cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoJson;

const NULL: [&str; 5] = ["", "~", "null", "Null", "NULL"];
const TRUE: [&str; 11] = [
    "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
];
const FALSE: [&str; 11] = [
    "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
];
const NOT_FINITE: [&str; 3] = [".inf", ".Inf", ".INF"];
const NOT_A_NUMBER: [&str; 3] = [".nan", ".NaN", ".NAN"];

/// Resolve a scalar without quotes and without a tag.
pub(super) fn plain(text: &str) -> Result<Scalar, NoJson> {
    if NULL.contains(&text) {
        return Ok(Scalar::Null);
    }
    if let Some(value) = boolean(text) {
        return Ok(Scalar::Bool(value));
    }
    if text == "<<" {
        return Ok(Scalar::Merge);
    }
    Ok(match number(text)? {
        Some(json) => Scalar::Number(json),
        None => Scalar::String(text.to_owned()),
    })
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    match (TRUE.contains(&text), FALSE.contains(&text)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// A number as JSON, exact for any number of digits; none if it is not a number.
pub(super) fn number(text: &str) -> Result<Option<String>, NoJson> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if NOT_FINITE.contains(&unsigned) || NOT_A_NUMBER.contains(&text) {
        return Err(NoJson);
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
fn of_base(digits: &str) -> Option<Result<u64, NoJson>> {
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
    Some(u64::from_str_radix(rest, base).map_err(|_| NoJson))
}

/// A number with a fraction or an exponent, as it is written where JSON has it so.
fn float(unsigned: &str) -> Result<Option<String>, NoJson> {
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
        return Err(NoJson);
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    let exponent = exponent.map_or(String::new(), |exponent| format!("e{exponent}"));
    Ok(Some(format!("{whole}{point}{fraction}{exponent}")))
}
