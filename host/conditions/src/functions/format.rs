//! The functions `format` and `strings.quote` of CEL's strings extension. Numbers are formatted as Go does for English.

use std::{collections::HashMap, fmt::Write};

use cel::common::ast::{Expr, IdedExpr, LiteralValue};

use super::{
    Library, Style,
    conversions::{go_float, text_of},
    literals::{format_fixed, format_scientific, quote},
    typed::{Dyn, ListOf, Str},
};
use crate::{
    machine::{Fault, Machine},
    types::Type,
    value::{CelList, Map, Value},
};

/// The number of decimals of `%f` and `%e` if the format does not say it.
const PRECISION: usize = 6;

pub(super) fn register(library: &mut Library) {
    library.add::<(Str, ListOf<Dyn>), Str>("format", Style::Member, |machine, (text, arguments)| {
        format(machine, &text, &arguments)
    });
    library.add_global::<(Str,), Str>("strings.quote", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(quote(&text, false).into())
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

enum Piece<'t> {
    Text(&'t str),
    Clause(Clause),
}

fn parse_pieces(format: &str) -> impl Iterator<Item = Result<Piece<'_>, String>> {
    let mut rest = format;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        Some(match rest.strip_prefix('%') {
            None => {
                let (text, after) = rest.split_at(rest.find('%').unwrap_or(rest.len()));
                rest = after;
                Ok(Piece::Text(text))
            }
            Some(after) if after.starts_with('%') => {
                rest = after.get(1..).unwrap_or_default();
                Ok(Piece::Text("%"))
            }
            Some(after) => {
                let clause = parse_clause(after).map(|(clause, remainder)| {
                    rest = remainder;
                    Piece::Clause(clause)
                });
                if clause.is_err() {
                    rest = "";
                }
                clause
            }
        })
    })
}

fn parse_clause(text: &str) -> Result<(Clause, &str), String> {
    let parse_mistake = |why: String| Err(format!("could not parse formatting clause: {why}"));
    let (precision, rest) = match text.strip_prefix('.') {
        None => (PRECISION, text),
        Some(after) => {
            let Some(end) = after.find(|character: char| !character.is_ascii_digit()) else {
                return parse_mistake(
                    "error while parsing precision: could not find end of precision specifier".to_owned(),
                );
            };
            let (digits, rest) = after.split_at(end);
            let Ok(precision) = digits.parse() else {
                return parse_mistake(format!(
                    "error while parsing precision: error while converting precision to integer: {digits:?}"
                ));
            };
            (precision, rest)
        }
    };
    let mut characters = rest.chars();
    let clause = match characters.next() {
        None => return Err("unexpected end of string".to_owned()),
        Some('s') => Clause::String,
        Some('d') => Clause::Decimal,
        Some('f') => Clause::Fixed(precision),
        Some('e') => Clause::Scientific(precision),
        Some('b') => Clause::Binary,
        Some('x') => Clause::Hex { upper: false },
        Some('X') => Clause::Hex { upper: true },
        Some('o') => Clause::Octal,
        Some(other) => return parse_mistake(format!("unrecognized formatting clause \"{other}\"")),
    };
    Ok((clause, characters.as_str()))
}

impl Clause {
    fn refusal(self, kind: &str) -> String {
        let requirement = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("error during formatting: {requirement}, was given {kind}")
    }

    fn accepts(self, kind: &Type) -> bool {
        use Type::{Bool, Bytes, Double, Duration, Dyn, Free, Int, Kind, List, Map, Null, String, Timestamp, Uint};
        if matches!(kind, Dyn | Free) {
            return true;
        }
        match self {
            Self::String => matches!(
                kind,
                Bool | Bytes | Double | Duration | Int | Kind | List(_) | Map(..) | Null | String | Timestamp | Uint
            ),
            Self::Decimal | Self::Octal => matches!(kind, Int | Uint),
            // Strings are also accepted, because `NaN`, `Infinity` and `-Infinity` can be formatted as numbers.
            Self::Fixed(_) | Self::Scientific(_) => matches!(kind, Double | String),
            Self::Binary => matches!(kind, Int | Uint | Bool),
            Self::Hex { .. } => matches!(kind, Int | Uint | String | Bytes),
        }
    }
}

/// Checks a call of `format` during compilation, as kube-apiserver does. `items` has the type of each item in a list
/// literal. The key is the ID of the item's node in the tree.
pub(crate) fn check_arguments(
    target: Option<&IdedExpr>,
    arguments: &[IdedExpr],
    kinds: &[Type],
    items: &HashMap<u64, Type>,
) -> Result<(), String> {
    let [Type::String, _] = kinds else { return Ok(()) };
    let (Some(Expr::Literal(LiteralValue::String(format))), [list]) = (target.map(|node| &node.expr), arguments) else {
        return Ok(());
    };
    let Expr::List(list) = &list.expr else {
        return Ok(());
    };
    let mut argument_count = 0;
    for piece in parse_pieces(format.inner()) {
        let Piece::Clause(clause) = piece? else { continue };
        let Some(argument) = list.elements.get(argument_count) else {
            return Err(format!("index {argument_count} out of range"));
        };
        let kind = items.get(&argument.id).unwrap_or(&Type::Dyn);
        if !clause.accepts(kind) {
            return Err(clause.refusal(&kind.to_string()));
        }
        argument_count += 1;
    }
    if list.elements.len() > argument_count {
        return Err(format!(
            "too many arguments supplied to string.format (expected {argument_count}, got {})",
            list.elements.len()
        ));
    }
    Ok(())
}

fn format<'a>(
    machine: &mut Machine<'a>,
    text: &str,
    arguments: &CelList<'a>,
) -> Result<crate::value::CelText<'a>, Fault> {
    machine.charge_bytes(text.len())?;
    let mut out = String::new();
    let mut argument_index = 0;
    for piece in parse_pieces(text) {
        match piece.map_err(Fault::Error)? {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause(clause) => {
                let argument = arguments
                    .get(argument_index)
                    .ok_or_else(|| Fault::Error(format!("index {argument_index} out of range")))?;
                write_clause(machine, clause, &argument, &mut out)?;
                argument_index += 1;
            }
        }
    }
    Ok(out.into())
}

fn write_clause<'a>(
    machine: &mut Machine<'a>,
    clause: Clause,
    value: &Value<'a>,
    out: &mut String,
) -> Result<(), Fault> {
    let refusal_fault = || Fault::Error(clause.refusal(value.kind()));
    let text = match (clause, value) {
        (Clause::String, value) => return write_value(machine, value, false, out),
        (Clause::Decimal, Value::Int(value)) => value.to_string(),
        (Clause::Decimal, Value::Uint(value)) => value.to_string(),
        (Clause::Fixed(precision) | Clause::Scientific(precision), value) => {
            let number = match value {
                Value::Double(number) => *number,
                Value::String(text) => match &**text {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return Err(refusal_fault()),
                },
                _ => return Err(refusal_fault()),
            };
            machine.charge_bytes(precision)?;
            match clause {
                Clause::Fixed(_) => format_fixed(number, precision),
                _ => format_scientific(number, precision),
            }
        }
        (Clause::Binary, Value::Int(value)) => signed_digits(*value, format!("{:b}", value.unsigned_abs())),
        (Clause::Binary, Value::Uint(value)) => format!("{value:b}"),
        (Clause::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
        (Clause::Hex { .. }, Value::Int(value)) => signed_digits(*value, format!("{:x}", value.unsigned_abs())),
        (Clause::Hex { .. }, Value::Uint(value)) => format!("{value:x}"),
        (Clause::Hex { .. }, Value::String(text)) => hex_digits(machine, text.as_bytes())?,
        (Clause::Hex { .. }, Value::Bytes(bytes)) => hex_digits(machine, bytes)?,
        (Clause::Octal, Value::Int(value)) => signed_digits(*value, format!("{:o}", value.unsigned_abs())),
        (Clause::Octal, Value::Uint(value)) => format!("{value:o}"),
        _ => return Err(refusal_fault()),
    };
    match clause {
        Clause::Hex { upper: true } => out.push_str(&text.to_ascii_uppercase()),
        _ => out.push_str(&text),
    }
    Ok(())
}

fn signed_digits(value: i64, digits: String) -> String {
    if value < 0 { format!("-{digits}") } else { digits }
}

fn hex_digits(machine: &mut Machine<'_>, bytes: &[u8]) -> Result<String, Fault> {
    machine.charge_bytes(2 * bytes.len())?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Formats a value as the placeholder `%s` does. Values inside lists and maps are formatted as CEL literals.
fn write_value<'a>(
    machine: &mut Machine<'a>,
    value: &Value<'a>,
    is_nested: bool,
    out: &mut String,
) -> Result<(), Fault> {
    machine.charge(1)?;
    match value {
        Value::List(list) => {
            out.push('[');
            for (place, item) in list.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                write_value(machine, &item, true, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => write_map(machine, map, out)?,
        Value::Null => out.push_str("null"),
        Value::Type(name) => out.push_str(name),
        Value::Double(number) if is_nested => {
            if number.is_finite() {
                let _ = write!(out, "{number:.PRECISION$}");
            } else {
                out.push_str(&quote(&go_float(*number), true));
            }
        }
        value => {
            let text = text_of(machine, value)?.ok_or_else(|| Fault::Error(Clause::String.refusal(value.kind())))?;
            machine.charge_bytes(text.len())?;
            match value {
                Value::String(_) if is_nested => out.push_str(&quote(&text, true)),
                Value::Bytes(_) if is_nested => {
                    out.push('b');
                    out.push_str(&quote(&text, true));
                }
                Value::Timestamp(_) if is_nested => {
                    let _ = write!(out, "timestamp({})", quote(&text, true));
                }
                Value::Duration(_) if is_nested => {
                    let _ = write!(out, "duration({})", quote(&text, true));
                }
                _ => out.push_str(&text),
            }
        }
    }
    Ok(())
}

fn write_map<'a>(machine: &mut Machine<'a>, map: &Map<'a>, out: &mut String) -> Result<(), Fault> {
    let mut pairs = Vec::with_capacity(map.len());
    for (key, value) in map.entries() {
        let (mut key_text, mut value_text) = (String::new(), String::new());
        write_value(machine, &key, true, &mut key_text)?;
        write_value(machine, &value, true, &mut value_text)?;
        pairs.push((key_text, value_text));
    }
    pairs.sort();
    let entries: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    let text = entries.join(", ");
    machine.charge_bytes(text.len())?;
    let _ = write!(out, "{{{text}}}");
    Ok(())
}
