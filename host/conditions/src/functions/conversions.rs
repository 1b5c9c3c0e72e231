//! The functions `int`, `uint`, `double`, `string`, `bytes`, `bool`, `type`, `dyn` and `size`.

use std::{str::FromStr, sync::Arc};

use ::time::OffsetDateTime;

use super::{
    Library, Style,
    time::{duration_text, timestamp_text},
    typed::{A, B, Bytes, Dyn, ListOf, MapOf, Str, TypeMarker},
    value_or_error,
};
use crate::{
    machine::{Fault, Machine},
    value::{CelText, Value},
};

const OVERFLOW: &str = "integer overflow";

pub(super) fn register(library: &mut Library) {
    library.add_global::<(i64,), i64>("int", |_, (value,)| Ok(value));
    library.add_global::<(u64,), i64>("int", |_, (value,)| value_or_error(value.try_into().ok(), OVERFLOW));
    library.add_global::<(f64,), i64>("int", |_, (value,)| {
        // As a double, `i64::MAX` is rounded up to 2^63. This number is already too large for an integer, so the double
        // must be smaller than 2^63.
        value_or_error((value.abs() < i64::MAX as f64).then_some(value as i64), OVERFLOW)
    });
    library.add_global::<(Str,), i64>("int", |machine, (text,)| parse(machine, &text, "ParseInt"));
    library.add_global::<(OffsetDateTime,), i64>("int", |_, (time,)| Ok(time.unix_timestamp()));

    library.add_global::<(u64,), u64>("uint", |_, (value,)| Ok(value));
    library.add_global::<(i64,), u64>("uint", |_, (value,)| value_or_error(value.try_into().ok(), OVERFLOW));
    library.add_global::<(f64,), u64>("uint", |_, (value,)| {
        let fits = value >= 0.0 && value < u64::MAX as f64;
        value_or_error(fits.then_some(value as u64), OVERFLOW)
    });
    library.add_global::<(Str,), u64>("uint", |machine, (text,)| parse(machine, &text, "ParseUint"));

    library.add_global::<(f64,), f64>("double", |_, (value,)| Ok(value));
    library.add_global::<(i64,), f64>("double", |_, (value,)| Ok(value as f64));
    library.add_global::<(u64,), f64>("double", |_, (value,)| Ok(value as f64));
    library.add_global::<(Str,), f64>("double", |machine, (text,)| parse(machine, &text, "ParseFloat"));

    library.add_global::<(Str,), Str>("string", |_, (text,)| Ok(text));
    library.add_global::<(bool,), Str>("string", |_, (value,)| Ok(value.to_string().into()));
    library.add_global::<(i64,), Str>("string", |_, (value,)| Ok(value.to_string().into()));
    library.add_global::<(u64,), Str>("string", |_, (value,)| Ok(value.to_string().into()));
    library.add_global::<(f64,), Str>("string", |_, (value,)| Ok(go_float(value).into()));
    library.add_global::<(Bytes,), Str>("string", |machine, (bytes,)| utf8(machine, &bytes));

    library.add_global::<(Bytes,), Bytes>("bytes", |_, (bytes,)| Ok(bytes));
    library.add_global::<(Str,), Bytes>("bytes", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(Arc::from(text.as_bytes()))
    });

    library.add_global::<(bool,), bool>("bool", |_, (value,)| Ok(value));
    library.add_global::<(Str,), bool>("bool", |_, (text,)| match &*text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(Fault::error("type conversion error from 'string' to 'bool'")),
    });

    library.add_global::<(A,), TypeMarker>("type", |_, (value,)| Ok(value.kind()));
    library.add_global::<(A,), Dyn>("dyn", |_, (value,)| Ok(value));

    for style in [Style::Global, Style::Member] {
        library.add::<(Str,), i64>("size", style, |machine, (text,)| {
            machine.charge_bytes(text.len())?;
            Ok(text.chars().count() as i64)
        });
        library.add::<(Bytes,), i64>("size", style, |_, (bytes,)| Ok(bytes.len() as i64));
        library.add::<(ListOf<A>,), i64>("size", style, |_, (list,)| Ok(list.len() as i64));
        library.add::<(MapOf<A, B>,), i64>("size", style, |_, (map,)| Ok(map.len() as i64));
    }
}

pub(super) fn text_of<'a>(machine: &mut Machine<'a>, value: &Value<'a>) -> Result<Option<CelText<'a>>, Fault> {
    Ok(Some(match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string().into(),
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Double(value) => go_float(*value).into(),
        Value::Bytes(bytes) => utf8(machine, bytes)?,
        Value::Timestamp(time) => timestamp_text(*time)?.into(),
        Value::Duration(duration) => duration_text(*duration).into(),
        _ => return Ok(None),
    }))
}

fn utf8<'a>(machine: &mut Machine<'a>, bytes: &[u8]) -> Result<CelText<'a>, Fault> {
    machine.charge_bytes(bytes.len())?;
    let text = std::str::from_utf8(bytes).ok();
    value_or_error(
        text.map(|text| text.to_owned().into()),
        "invalid UTF-8 in bytes, cannot convert to string",
    )
}

/// Formats a double as Go does in its shortest form, such as `1.5` or `1e+06`.
pub(super) fn go_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..6) => number.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => text,
    }
}

/// Parses a number. The error is worded as in Go's package `strconv`. It contains `function`, the name of the Go
/// function that does the same, such as `ParseInt`.
fn parse<T: FromStr>(machine: &mut Machine<'_>, text: &str, function: &str) -> Result<T, Fault> {
    machine.charge_bytes(text.len())?;
    text.parse()
        .map_err(|_| Fault::error(format!("strconv.{function}: parsing {text:?}: invalid syntax")))
}
