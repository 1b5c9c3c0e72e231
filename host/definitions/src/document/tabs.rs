//! Replaces tabs that indent lines inside brackets or braces. go-yaml accepts such tabs; the parser used here does not.

use std::{borrow::Cow, ops::Range, slice};

use granit_parser::{Event, Parser, StructureStyle};

/// Replaces each tab that indents a line inside brackets or braces by one space, so that all positions stay the same.
pub(super) fn as_spaces(text: &str) -> Cow<'_, str> {
    let is_indented_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    if !text.lines().any(is_indented_by_tab) {
        return Cow::Borrowed(text);
    }
    let full_range = 0..text.len();
    let spaced_text = replace_tabs(text, slice::from_ref(&full_range));
    Cow::Owned(replace_tabs(text, &flow_collections(&spaced_text)))
}

fn replace_tabs(text: &str, parts: &[Range<usize>]) -> String {
    let mut output = String::with_capacity(text.len());
    let mut parts = parts.iter().peekable();
    for line in text.split_inclusive('\n') {
        let start = output.len();
        while parts.next_if(|part| part.end <= start).is_some() {}
        let is_in = parts.peek().is_some_and(|part| part.start <= start);
        let content = line.trim_start_matches([' ', '\t']);
        if is_in {
            output.extend(std::iter::repeat_n(' ', line.len() - content.len()));
            output.push_str(content);
        } else {
            output.push_str(line);
        }
    }
    output
}

/// Returns the ranges of the outermost lists in brackets and maps in braces, up to the first syntax error.
fn flow_collections(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let bytes = span.byte_range().unwrap_or_default();
        match event {
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                if depth > 0 || style == StructureStyle::Flow {
                    depth += 1;
                }
                if depth == 1 {
                    start = bytes.start;
                }
            }
            Event::SequenceEnd | Event::MappingEnd if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    ranges.push(start..bytes.end);
                }
            }
            _ => {}
        }
    }
    ranges
}
