//! Formats numbers as Go does for English, and quotes strings.

use std::{fmt::Write, iter::repeat_n};

/// The maximum number of decimals for which Rust's formatter is used. If an expression wants more, zeros are appended.
const MAX_EXACT_DIGITS: usize = 1100;

/// Formats a number in decimal notation, with commas between thousands.
pub(super) fn format_fixed(number: f64, precision: usize) -> String {
    if let Some(text) = non_finite_text(number) {
        return text;
    }
    let exact = precision.min(MAX_EXACT_DIGITS);
    let mut text = format!("{:.exact$}", number.abs());
    text.extend(repeat_n('0', precision - exact));
    let (integer, decimals) = match text.split_once('.') {
        Some((digits, decimals)) => (digits, format!(".{decimals}")),
        None => (text.as_str(), String::new()),
    };
    let mut grouped = String::new();
    for (index, digit) in integer.chars().enumerate() {
        if index > 0 && (integer.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{grouped}{decimals}")
}

/// Formats a number in scientific notation, such as `1.052033×10⁰³`.
pub(super) fn format_scientific(number: f64, precision: usize) -> String {
    if let Some(text) = non_finite_text(number) {
        // `NaN` and the infinities have no decimals. Go uses the requested number of decimals as the minimum width of
        // their text instead, and puts blanks before a shorter text.
        return format!("{text:>width$}", width = precision.min(MAX_EXACT_DIGITS));
    }
    let exact = precision.min(MAX_EXACT_DIGITS);
    // Negative zero is written without a sign.
    let number = if number == 0.0 { 0.0 } else { number };
    let text = format!("{number:.exact$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let zeros = "0".repeat(precision - exact);
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ("\u{207b}", digits),
        None => ("", exponent),
    };
    let raised: String = format!("{digits:0>2}")
        .chars()
        .map(|digit| match digit {
            '1' => '\u{b9}',
            '2' => '\u{b2}',
            '3' => '\u{b3}',
            '4' => '\u{2074}',
            '5' => '\u{2075}',
            '6' => '\u{2076}',
            '7' => '\u{2077}',
            '8' => '\u{2078}',
            '9' => '\u{2079}',
            _ => '\u{2070}',
        })
        .collect();
    format!("{mantissa}{zeros}\u{d7}10{sign}{raised}")
}

fn non_finite_text(number: f64) -> Option<String> {
    if number.is_nan() {
        Some("NaN".to_owned())
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" }.to_owned())
    } else {
        None
    }
}

/// Puts a text in double quotes. Go's `%q` (`as_go`) escapes all unprintable characters, `strings.quote` some of them.
pub(super) fn quote(text: &str, as_go: bool) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other if as_go && other.escape_debug().len() > 1 && other != '\'' => {
                let code = u32::from(other);
                let _ = match code {
                    0..0x80 => write!(quoted, "\\x{code:02x}"),
                    0x80..0x10000 => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
