//! Changes of a text that keep how it is written.

use std::ops::Range;

use serde_json::Value as Json;

use crate::document::{BYTE_ORDER_MARK, Node, Part};

/// The byte order mark that a text begins with, if it does, and the rest.
pub(super) fn split_mark(text: &str) -> (&str, &str) {
    let mark = if text.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len_utf8()
    } else {
        0
    };
    text.split_at(mark)
}

/// How the lines of this text end.
pub(super) fn line_end_of(text: &str) -> &'static str {
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    if first.ends_with("\r\n") { "\r\n" } else { "\n" }
}

/// `text` with the line ends of `file`.
pub(super) fn with_lines_of(file: &str, text: &str) -> String {
    let plain = text.replace("\r\n", "\n");
    match line_end_of(file) {
        "\n" => plain,
        end => plain.replace('\n', end),
    }
}

/// A JSON text for a file of its own.
pub(super) fn pretty_json(value: &Json) -> String {
    format!("{value:#}\n")
}

/// The line that holds this offset, with its end.
fn line_at(text: &str, offset: usize) -> Option<Range<usize>> {
    let (before, after) = text.split_at_checked(offset)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let end = after.find('\n').map_or(text.len(), |end| offset + end + 1);
    Some(start..end)
}

/// Where the line that holds this offset ends, without what ends it.
fn end_of_line(text: &str, offset: usize) -> Option<usize> {
    let line = line_at(text, offset)?;
    let start = line.start;
    Some(start + text.get(line)?.trim_end_matches(['\r', '\n']).len())
}

/// The text without this field of a map. None if it must be done by hand.
pub(super) fn without(text: &str, map: &Node<'_>, key: &str) -> Option<String> {
    let parts = map.parts();
    let index = parts.iter().position(|part| part.key == key)?;
    let span = parts.get(index)?.span(text);
    let next = parts.get(index + 1).map(|next| next.key_span.start);
    let cut = if map.place().is_block {
        let first = line_at(text, span.start)?;
        let last = line_at(text, span.end)?;
        let alone = text.get(first.start..span.start)?.trim().is_empty();
        match next {
            _ if alone => first.start..last.end,
            // It stands after the `-` of a list's item, and the next field must stand there instead; a
            // comment between them may.
            Some(next) if text.get(span.end..next)?.contains('#') => span,
            Some(next) => span.start..next,
            None => return None,
        }
    } else {
        match (
            next,
            index.checked_sub(1).and_then(|previous| parts.get(previous)),
        ) {
            (Some(next), _) => span.start..next,
            (None, Some(previous)) => previous.span(text).end..span.end,
            (None, None) => return None,
        }
    };
    let mut text = text.to_owned();
    text.replace_range(cut, "");
    Some(text)
}

/// The text with this field in `map`, as it is written in another map of the text; in place of one of the
/// same name, or after the last. None if it must be done by hand.
pub(super) fn with(text: &str, map: &Node<'_>, from: &Node<'_>, field: &Part<'_>) -> Option<String> {
    let parts = map.parts();
    let new = if map.place().is_block {
        for_block(text, column(text, parts.first()?.key_span.start)?, from, field)?
    } else {
        for_flow(text, from, field)?
    };
    let (place, new) = match parts.iter().find(|part| part.key == field.key) {
        Some(old) => {
            let mut place = old.span(text);
            if map.place().is_block && new.contains('\n') {
                // A comment after it would be after the last of several lines.
                place.end = end_of_line(text, place.end)?;
            }
            (place, new)
        }
        None => after_last(text, map, &parts, &new)?,
    };
    let mut text = text.to_owned();
    text.replace_range(place, &new);
    Some(text)
}

/// Where a field is added to a map, and what is written there.
fn after_last(text: &str, map: &Node<'_>, parts: &[Part<'_>], new: &str) -> Option<(Range<usize>, String)> {
    let last = parts.last()?.span(text);
    if map.place().is_block {
        let end = end_of_line(text, last.end)?;
        let indentation = " ".repeat(column(text, parts.first()?.key_span.start)?);
        return Some((end..end, format!("{}{indentation}{new}", line_end_of(text))));
    }
    // As the last field is set apart from what is before it.
    let between = match parts
        .len()
        .checked_sub(2)
        .and_then(|previous| parts.get(previous))
    {
        Some(previous) => text.get(previous.span(text).end..last.start)?.to_owned(),
        None => {
            let open = map.place().span.start + 1;
            format!(",{}", text.get(open..last.start)?)
        }
    };
    let is_plain = between.trim() == ",";
    let between = if is_plain { between.as_str() } else { ", " };
    Some((last.end..last.end, format!("{between}{new}")))
}

/// A field for a map that indentation holds together, whose keys begin in this column.
fn for_block(text: &str, to: usize, from: &Node<'_>, field: &Part<'_>) -> Option<String> {
    let span = field.span(text);
    let written = text.get(span.clone())?;
    if !written.contains('\n') {
        return Some(written.to_owned());
    }
    if !from.place().is_block {
        return Some(format!("{}: {}", field.key, field.value.json()));
    }
    let column = column(text, span.start)?;
    let mut lines = written.split_inclusive('\n');
    let mut moved = lines.next()?.to_owned();
    for line in lines {
        let content = line.trim_start_matches(' ');
        let spaces = line.len() - content.len();
        if !content.trim().is_empty() {
            // A line that is not indented as far as the field is of something written without care.
            let spaces = spaces.checked_sub(column)? + to;
            moved.push_str(&" ".repeat(spaces));
        }
        moved.push_str(content);
    }
    Some(moved)
}

/// A field for a map in brackets.
fn for_flow(text: &str, from: &Node<'_>, field: &Part<'_>) -> Option<String> {
    if from.place().is_block {
        // What is written may mean something else between brackets.
        return Some(format!("{}: {}", field.key, field.value.json()));
    }
    text.get(field.span(text)).map(str::to_owned)
}

/// How many characters stand before this offset on its line.
fn column(text: &str, offset: usize) -> Option<usize> {
    let line = line_at(text, offset)?;
    Some(text.get(line.start..offset)?.chars().count())
}
