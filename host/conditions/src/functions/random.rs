//! Kyverno's `random`, which returns random strings that match a regular expression.

use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind},
};

use crate::{
    machine::{Fault, Machine},
    value::CelText,
};

/// The maximum length of a random text, in bytes.
const MAX_TEXT_LENGTH: usize = 4096;
/// In a random text, an operator such as `*`, `+` or `{n,}` repeats its operand at least as often as it must, and at
/// most this many times more. The operators themselves set no maximum.
const MAX_REPETITIONS: u32 = 32;

pub(super) fn generate_text<'a>(machine: &mut Machine<'_>, pattern: &str) -> Result<CelText<'a>, Fault> {
    machine.charge_bytes(pattern.len().saturating_mul(16))?;
    let parse_result = ParserBuilder::new().nest_limit(50).build().parse(pattern);
    let parsed =
        parse_result.map_err(|error| Fault::error(format!("{pattern:?} is not a regular expression: {error}")))?;
    let mut text = String::new();
    generate(machine, &parsed, &mut text)?;
    Ok(text.into())
}

fn generate(machine: &mut Machine<'_>, pattern: &Hir, text: &mut String) -> Result<(), Fault> {
    machine.charge(1)?;
    if text.len() > MAX_TEXT_LENGTH {
        return Err(Fault::error(format!(
            "the random text has more than {MAX_TEXT_LENGTH} bytes"
        )));
    }
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => text.extend(choose(machine, class)?),
        HirKind::Capture(group) => generate(machine, &group.sub, text)?,
        HirKind::Repetition(repetition) => {
            let min_repetition = repetition.min;
            let max_repetition = repetition.max.unwrap_or(min_repetition.saturating_add(MAX_REPETITIONS));
            for _ in 0..fastrand::u32(min_repetition..=max_repetition.max(min_repetition)) {
                generate(machine, &repetition.sub, text)?;
            }
        }
        HirKind::Concat(parts) => {
            for part in parts {
                generate(machine, part, text)?;
            }
        }
        HirKind::Alternation(choices) => {
            if let Some(choice) = fastrand::choice(choices) {
                generate(machine, choice, text)?;
            }
        }
    }
    Ok(())
}

fn choose(machine: &mut Machine<'_>, class: &Class) -> Result<Option<char>, Fault> {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => class.iter().map(|range| (range.start(), range.end())).collect(),
        Class::Bytes(class) => class
            .iter()
            .map(|range| (range.start().into(), range.end().into()))
            .collect(),
    };
    machine.charge_items(ranges.len())?;
    let printable: Vec<char> = ranges
        .iter()
        .flat_map(|&(start, end)| start.max(' ')..=end.min('~'))
        .collect();
    let any_character = || fastrand::choice(&ranges).map(|&(start, end)| fastrand::char(start..=end));
    Ok(fastrand::choice(&printable).copied().or_else(any_character))
}
