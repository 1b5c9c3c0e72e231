//! The string functions of CEL and its strings extension. They count positions in characters.

use super::{
    Library,
    typed::{ListOf, Str},
};
use crate::{
    machine::{Fault, Machine},
    value::{CelList, CelText, Value},
};

pub(super) fn register(library: &mut Library) {
    let tests: [(&str, fn(&str, &str) -> bool); 3] = [
        ("startsWith", |text, part| text.starts_with(part)),
        ("endsWith", |text, part| text.ends_with(part)),
        ("contains", |text, part| text.contains(part)),
    ];
    for (name, test) in tests {
        library.add_member::<(Str, Str), bool>(name, move |machine, (text, part)| {
            machine.charge_bytes(text.len() + part.len())?;
            Ok(test(&text, &part))
        });
    }
    let changes: [(&str, fn(&str) -> String); 3] = [
        ("lowerAscii", str::to_ascii_lowercase),
        ("upperAscii", str::to_ascii_uppercase),
        ("trim", |text| text.trim().to_owned()),
    ];
    for (name, change) in changes {
        library.add_member::<(Str,), Str>(name, move |machine, (text,)| {
            machine.charge_bytes(text.len())?;
            Ok(change(&text).into())
        });
    }
    library.add_member::<(Str, i64), Str>("charAt", |machine, (text, index)| {
        machine.charge_bytes(text.len())?;
        let start = byte_index(&text, index)?;
        let character = text.get(start..).and_then(|rest| rest.chars().next());
        Ok(character.map(String::from).unwrap_or_default().into())
    });
    library.add_member::<(Str, i64), Str>("substring", |machine, (text, start)| {
        machine.charge_bytes(text.len())?;
        let from = byte_index(&text, start)?;
        Ok(text.get(from..).unwrap_or_default().to_owned().into())
    });
    library.add_member::<(Str, i64, i64), Str>("substring", |machine, (text, start, end)| {
        machine.charge_bytes(text.len())?;
        let range = byte_index(&text, start)?..byte_index(&text, end)?;
        let invalid = || Fault::error(format!("invalid substring range. start: {start}, end: {end}"));
        Ok(text.get(range).ok_or_else(invalid)?.to_owned().into())
    });
    library.add_member::<(Str, Str), i64>("indexOf", |machine, (text, part)| index_of(machine, &text, &part, 0));
    library.add_member::<(Str, Str, i64), i64>("indexOf", |machine, (text, part, from)| {
        index_of(machine, &text, &part, from)
    });
    library.add_member::<(Str, Str), i64>("lastIndexOf", |machine, (text, part)| {
        last_index_of(machine, &text, &part, None)
    });
    library.add_member::<(Str, Str, i64), i64>("lastIndexOf", |machine, (text, part, from)| {
        last_index_of(machine, &text, &part, Some(from))
    });
    library.add_member::<(Str, Str, Str), Str>("replace", |machine, (text, old, new)| {
        replace(machine, &text, &old, &new, usize::MAX)
    });
    library.add_member::<(Str, Str, Str, i64), Str>("replace", |machine, (text, old, new, times)| {
        replace(machine, &text, &old, &new, occurrence_limit(times))
    });
    library.add_member::<(Str, Str), ListOf<Str>>("split", |machine, (text, separator)| {
        split(machine, &text, &separator, usize::MAX)
    });
    library.add_member::<(Str, Str, i64), ListOf<Str>>("split", |machine, (text, separator, times)| {
        split(machine, &text, &separator, occurrence_limit(times))
    });
    // Only mutations can call this function: in other expressions, the checker refuses it.
    library.add_global::<(Str,), Str>("jsonpatch.escapeKey", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(text.replace('~', "~0").replace('/', "~1").into())
    });
    library.add_member::<(ListOf<Str>,), Str>("join", |machine, (list,)| join(machine, &list, ""));
    library
        .add_member::<(ListOf<Str>, Str), Str>("join", |machine, (list, separator)| join(machine, &list, &separator));
}

/// Returns the position of the character with this index, in bytes. The index may also be equal to the number of
/// characters; the result is then the length of the text.
fn byte_index(text: &str, index: i64) -> Result<usize, Fault> {
    let mut bytes = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
    let byte = usize::try_from(index).ok().and_then(|index| bytes.nth(index));
    byte.ok_or_else(|| Fault::error(format!("index out of range: {index}")))
}

fn char_index(text: &str, byte: Option<usize>) -> i64 {
    let front = byte.and_then(|byte| text.get(..byte));
    front.map_or(-1, |front| front.chars().count() as i64)
}

fn index_of(machine: &mut Machine<'_>, text: &str, part: &str, from: i64) -> Result<i64, Fault> {
    machine.charge_bytes(text.len() + part.len())?;
    if part.is_empty() {
        return Ok(from);
    }
    let start = byte_index(text, from)?;
    let offset = text.get(start..).and_then(|rest| rest.find(part));
    Ok(char_index(text, offset.map(|byte| start + byte)))
}

fn last_index_of(machine: &mut Machine<'_>, text: &str, part: &str, from: Option<i64>) -> Result<i64, Fault> {
    machine.charge_bytes(text.len() + part.len())?;
    let end = match from {
        Some(from) => (byte_index(text, from)? + part.len()).min(text.len()),
        None => text.len(),
    };
    let front = (0..=end).rev().find_map(|end| text.get(..end));
    Ok(char_index(text, front.and_then(|front| front.rfind(part))))
}

/// Converts a maximum number of matches, which is an argument of functions such as `split` and `replace`. A negative
/// number means that there is no limit.
pub(super) fn occurrence_limit(times: i64) -> usize {
    usize::try_from(times).unwrap_or(usize::MAX)
}

fn replace<'a>(
    machine: &mut Machine<'_>,
    text: &str,
    old: &str,
    new: &str,
    times: usize,
) -> Result<CelText<'a>, Fault> {
    machine.charge_bytes(text.len() + old.len())?;
    let match_count = text.matches(old).take(times).count();
    machine.charge_bytes(match_count.saturating_mul(new.len()))?;
    Ok(text.replacen(old, new, times).into())
}

fn split<'a>(machine: &mut Machine<'_>, text: &str, separator: &str, times: usize) -> Result<CelList<'a>, Fault> {
    machine.charge_bytes(text.len() + separator.len())?;
    let parts = || -> Box<dyn Iterator<Item = &str>> {
        match separator {
            // With an empty separator, each character is a part. If `times` limits the number of parts, the last part
            // is the rest of the text.
            "" => {
                let starts = text.char_indices().skip(1).map(|(byte, _)| byte);
                let ends = starts.take(times.saturating_sub(1)).chain([text.len()]);
                let mut start = 0;
                let parts = ends.filter_map(move |end| text.get(std::mem::replace(&mut start, end)..end));
                Box::new(parts.filter(|part| !part.is_empty()).take(times))
            }
            separator => Box::new(text.splitn(times, separator)),
        }
    };
    machine.charge_items(parts().count())?;
    Ok(parts().map(Value::string).collect())
}

fn join<'a>(machine: &mut Machine<'_>, list: &CelList<'_>, separator: &str) -> Result<CelText<'a>, Fault> {
    let mut text = String::new();
    for (place, item) in list.iter().enumerate() {
        let Value::String(item) = item else {
            return Err(Fault::no_overload());
        };
        machine.charge(1)?;
        machine.charge_bytes(separator.len() + item.len())?;
        if place > 0 {
            text.push_str(separator);
        }
        text.push_str(&item);
    }
    Ok(text.into())
}
