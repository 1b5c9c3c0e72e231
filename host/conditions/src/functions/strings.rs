//! Functions of texts: CEL's own and its strings extension. Places are counted in characters.

use super::{Library, lists};
use crate::{
    machine::{Fault, Machine, Outcome, as_list},
    types::{Type, list as list_of},
    value::{Text, Value},
};

const A: Type = Type::Any(0);

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Int, String};
    let tests: [(&[Type], Type); 1] = [(&[String, String], Bool)];
    library.member("startsWith", starts_with, &tests);
    library.member("endsWith", ends_with, &tests);
    library.member("contains", contains, &tests);
    let changes: [(&[Type], Type); 1] = [(&[String], String)];
    library.member("lowerAscii", lower_ascii, &changes);
    library.member("upperAscii", upper_ascii, &changes);
    library.member("trim", trim, &changes);
    library.member("charAt", char_at, &[(&[String, Int], String)]);
    library.member(
        "substring",
        substring,
        &[(&[String, Int], String), (&[String, Int, Int], String)],
    );
    let places: [(&[Type], Type); 3] = [
        (&[String, String], Int),
        (&[String, String, Int], Int),
        (&[list_of(A), A], Int),
    ];
    library.member("indexOf", index_of, &places);
    library.member("lastIndexOf", last_index_of, &places);
    library.member(
        "replace",
        replace,
        &[
            (&[String, String, String], String),
            (&[String, String, String, Int], String),
        ],
    );
    library.member(
        "split",
        split,
        &[
            (&[String, String], list_of(String)),
            (&[String, String, Int], list_of(String)),
        ],
    );
    library.member(
        "join",
        join,
        &[(&[list_of(String)], String), (&[list_of(String), String], String)],
    );
}

fn test<'a>(
    machine: &mut Machine<'a>,
    arguments: &[Value<'a>],
    holds: fn(&str, &str) -> bool,
) -> Outcome<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => {
            machine.pay_bytes(text.len() + part.len())?;
            Ok(Value::Bool(holds(text, part)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn starts_with<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(machine, arguments, |text, part| text.starts_with(part))
}

fn ends_with<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(machine, arguments, |text, part| text.ends_with(part))
}

fn contains<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(machine, arguments, |text, part| text.contains(part))
}

fn change<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>], change: fn(&str) -> String) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            Ok(Value::string(change(text)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn lower_ascii<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    change(machine, arguments, str::to_ascii_lowercase)
}

fn upper_ascii<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    change(machine, arguments, str::to_ascii_uppercase)
}

fn trim<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    change(machine, arguments, |text| text.trim().to_owned())
}

/// Where in the text, in bytes, the character at this place begins; its end for the place behind the last.
fn byte_of(text: &str, place: i64) -> Result<usize, Fault> {
    let outside = || Fault::error(format!("index out of range: {place}"));
    let wanted = usize::try_from(place).map_err(|_| outside())?;
    text.char_indices()
        .map(|(byte, _)| byte)
        .chain([text.len()])
        .nth(wanted)
        .ok_or_else(outside)
}

fn char_at<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text), Value::Int(place)] => {
            machine.pay_bytes(text.len())?;
            let start = byte_of(text, *place)?;
            let character = text.get(start..).and_then(|rest| rest.chars().next());
            Ok(Value::string(character.map(String::from).unwrap_or_default()))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn substring<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, start, end) = match arguments {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(Fault::no_overload()),
    };
    machine.pay_bytes(text.len())?;
    let from = byte_of(text, start)?;
    let to = match end {
        Some(end) => byte_of(text, end)?,
        None => text.len(),
    };
    let Some(part) = text.get(from..to) else {
        return Err(Fault::error(format!(
            "invalid substring range. start: {start}, end: {}",
            end.unwrap_or_default()
        )));
    };
    Ok(Value::string(part))
}

fn index_of<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part, from) = match arguments {
        [Value::List(list), wanted] => return lists::index_of(machine, list, wanted, false),
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return Err(Fault::no_overload()),
    };
    machine.pay_bytes(text.len() + part.len())?;
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = byte_of(text, from)?;
    let found = text.get(start..).and_then(|rest| rest.find(&**part));
    Ok(place_of(text, found.map(|byte| start + byte)))
}

fn last_index_of<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part, from) = match arguments {
        [Value::List(list), wanted] => return lists::index_of(machine, list, wanted, true),
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return Err(Fault::no_overload()),
    };
    machine.pay_bytes(text.len() + part.len())?;
    // The part may begin there at the latest.
    let end = match from {
        Some(from) => (byte_of(text, from)? + part.len()).min(text.len()),
        None => text.len(),
    };
    let found = (0..=end)
        .rev()
        .find_map(|end| text.get(..end))
        .and_then(|front| front.rfind(&**part));
    Ok(place_of(text, found))
}

/// The place of a byte, in characters; -1 for none.
fn place_of<'a>(text: &Text<'_>, byte: Option<usize>) -> Value<'a> {
    let place = byte
        .and_then(|byte| text.get(..byte))
        .and_then(|front| i64::try_from(front.chars().count()).ok());
    Value::Int(place.unwrap_or(-1))
}

/// How often at most; a negative number is as often as there is.
fn limit(times: i64) -> usize {
    usize::try_from(times).unwrap_or(usize::MAX)
}

fn replace<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, old, new, times) = match arguments {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, usize::MAX),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(times),
        ] => (text, old, new, limit(*times)),
        _ => return Err(Fault::no_overload()),
    };
    machine.pay_bytes(text.len() + old.len())?;
    let found = text.matches(&**old).take(times).count();
    machine.pay_bytes(found.saturating_mul(new.len()))?;
    Ok(Value::string(text.replacen(&**old, new, times)))
}

fn split<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, separator, times) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, usize::MAX),
        [Value::String(text), Value::String(separator), Value::Int(times)] => {
            (text, separator, limit(*times))
        }
        _ => return Err(Fault::no_overload()),
    };
    machine.pay_bytes(text.len() + separator.len())?;
    if times == 0 {
        return Ok(Value::list(Vec::new()));
    }
    if separator.is_empty() {
        let count = text.chars().count().min(times);
        machine.pay_items(count)?;
        // Each character by itself, and in the last part all that is left.
        let mut parts = Vec::with_capacity(count);
        let mut rest = &**text;
        while parts.len() + 1 < count
            && let Some(character) = rest.chars().next()
        {
            let (part, after) = rest.split_at(character.len_utf8());
            parts.push(Value::string(part));
            rest = after;
        }
        if count > 0 {
            parts.push(Value::string(rest));
        }
        return Ok(Value::list(parts));
    }
    let count = text.splitn(times, &**separator).count();
    machine.pay_items(count)?;
    Ok(Value::list(
        text.splitn(times, &**separator).map(Value::string).collect(),
    ))
}

fn join<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (list, separator) = match arguments {
        [list] => (as_list(list)?, ""),
        [list, Value::String(separator)] => (as_list(list)?, &**separator),
        _ => return Err(Fault::no_overload()),
    };
    let mut text = String::new();
    for (place, item) in list.iter().enumerate() {
        let Value::String(item) = item else {
            return Err(Fault::no_overload());
        };
        machine.pay(1)?;
        machine.pay_bytes(separator.len() + item.len())?;
        if place > 0 {
            text.push_str(separator);
        }
        text.push_str(&item);
    }
    Ok(Value::string(text))
}
