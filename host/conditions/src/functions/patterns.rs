//! `matches`, `find` and `findAll`.

use super::{Library, Style};
use crate::{
    machine::{Fault, Machine, Outcome},
    pattern::Pattern,
    types::{Type, list as list_of},
    value::Value,
};

/// What it costs to compile a pattern that is not written out in the condition.
const COMPILING: u64 = 10_000;

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Int, String};
    library.global("matches", matches, &[(&[String, String], Bool)]);
    library.member("matches", matches, &[(&[String, String], Bool)]);
    library.member("find", find, &[(&[String, String], String)]);
    library.member(
        "findAll",
        find_all,
        &[
            (&[String, String], list_of(String)),
            (&[String, String, Int], list_of(String)),
        ],
    );
    library.with_pattern("matches", Style::Global);
    library.with_pattern("matches", Style::Member);
    library.with_pattern("find", Style::Member);
    library.with_pattern("findAll", Style::Member);
}

/// Run this with the text and the pattern, when what it costs is paid.
fn with<'a>(
    machine: &mut Machine<'a>,
    text: &Value<'a>,
    pattern: &Value<'a>,
    run: impl FnOnce(&str, &Pattern) -> Value<'a>,
) -> Outcome<'a> {
    let Value::String(text) = text else {
        return Err(Fault::no_overload());
    };
    match pattern {
        Value::Pattern(pattern) => {
            machine.pay(pattern.cost(text.len()))?;
            Ok(run(text, pattern))
        }
        Value::String(source) => {
            machine.pay(COMPILING)?;
            machine.pay_bytes(source.len())?;
            let pattern = Pattern::dynamic(source).map_err(Fault::Error)?;
            machine.pay(pattern.cost(text.len()))?;
            Ok(run(text, &pattern))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn matches<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [text, pattern] => with(machine, text, pattern, |text, pattern| {
            Value::Bool(pattern.is_match(text))
        }),
        _ => Err(Fault::no_overload()),
    }
}

fn find<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [text, pattern] => with(machine, text, pattern, |text, pattern| {
            Value::string(pattern.find(text).unwrap_or_default())
        }),
        _ => Err(Fault::no_overload()),
    }
}

fn find_all<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern, limit) = match arguments {
        [text, pattern] => (text, pattern, usize::MAX),
        [text, pattern, Value::Int(limit)] => (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX)),
        _ => return Err(Fault::no_overload()),
    };
    // At worst, every character is found by itself.
    let most = match text {
        Value::String(text) => text.len().saturating_add(1).min(limit),
        _ => 0,
    };
    machine.pay_items(most.saturating_mul(3))?;
    with(machine, text, pattern, |text, pattern| {
        Value::list(
            pattern
                .find_all(text, limit)
                .into_iter()
                .map(Value::string)
                .collect(),
        )
    })
}
