//! Expands the aliases of a YAML text: replaces each alias by the events of the node to which it refers, within limits.

use std::{collections::HashMap, ops::Range};

use granit_parser::{ErrorKind, Event, Parser, ScanError, Span, StrInput, options};

use super::{
    MAX_VALUE_COUNT,
    tree::{Position, SyntaxMistake},
    yaml::marker_position,
};

/// The limit of repetitions by aliases: for each value that is written in the text, aliases may repeat this many
/// values. In a text with more than 400,000 values, go-yaml allows fewer repetitions.
const MAX_REPETITION_FACTOR: usize = 99;

/// Aliases may repeat values without a limit while a document has at most this number of values, as in go-yaml.
const UNCHECKED_VALUES: usize = 1000;

pub(super) struct YamlEvents<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    limit: usize,
    recorded_events: Vec<(Event<'t>, Span)>,
    /// The lists and maps that are being recorded, so that an alias can repeat them later. Each is written as (number
    /// of its anchor or 0, index of its first event in `recorded_events`).
    open_recordings: Vec<(usize, usize)>,
    anchors: HashMap<usize, Range<usize>>,
    /// The events that are still to be repeated because of an alias, as ranges of indexes in `recorded_events`. There
    /// is one range for each level of nesting, because a repeated list may contain an alias itself.
    repeated_ranges: Vec<Range<usize>>,
    /// The position of the last event from the parser. It stays the same while events are repeated for an alias.
    parser_position: Position,
    value_count: usize,
    /// The number of values that aliases have repeated so far.
    repeated_count: usize,
    /// The size that all values repeated by aliases have so far, in bytes of JSON.
    repeated_bytes: usize,
}

impl<'t> YamlEvents<'t> {
    pub(super) fn new(text: &'t str, limit: usize) -> Self {
        let options = options! {
            emit_comments: false,
            // libyaml and go-yaml accept a byte order mark inside a document, so this parser must accept it too.
            bom_inside_document_as_content: true,
            block_scalar_eof_without_line_feed: true,
        };
        Self {
            text,
            parser: Parser::new_from_str_with_options(text, options),
            limit,
            recorded_events: Vec::new(),
            open_recordings: Vec::new(),
            anchors: HashMap::new(),
            repeated_ranges: Vec::new(),
            parser_position: Position { line: 1, column: 1 },
            value_count: 0,
            repeated_count: 0,
            repeated_bytes: 0,
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, SyntaxMistake> {
        let repeated_event = self.next_repeated();
        let is_repeated = repeated_event.is_some();
        let (event, span) = match repeated_event {
            Some(event) => event,
            None => match self.parser.next_event().transpose() {
                Ok(None) => return Ok(None),
                Ok(Some((event, span))) => {
                    self.record(&event, span);
                    (event, span)
                }
                Err(error) => return Err(self.flaw(&error)),
            },
        };
        if !is_repeated {
            self.parser_position = marker_position(span.start);
        }
        self.count_value(&event, is_repeated)?;
        if let Event::Alias(anchor) = event {
            let Some(events) = self.anchors.get(&anchor) else {
                return Err(SyntaxMistake::new(
                    marker_position(span.start),
                    "this alias refers to a node that contains the alias",
                    "write the value out",
                ));
            };
            self.repeated_ranges.push(events.clone());
        }
        Ok(Some((event, span)))
    }

    fn flaw(&self, error: &ScanError) -> SyntaxMistake {
        let position = marker_position(*error.marker());
        let message = match error.kind() {
            ErrorKind::UnknownAnchor => {
                let line = self.text.lines().nth(position.line as usize - 1);
                let from_alias = line.unwrap_or_default().chars().skip(position.column as usize - 1);
                let is_end = |c: &char| c.is_whitespace() || [',', ']', '}'].contains(c);
                let alias: String = from_alias.take_while(|c| !is_end(c)).collect();
                format!("the alias `{alias}` has no anchor before it")
            }
            _ => format!("this is not YAML: {}", error.info()),
        };
        SyntaxMistake::new(position, message, fix_for_error(error.kind()))
    }

    fn next_repeated(&mut self) -> Option<(Event<'t>, Span)> {
        while let Some(events) = self.repeated_ranges.last_mut() {
            if let Some(event) = events.next().and_then(|index| self.recorded_events.get(index)) {
                return Some(event.clone());
            }
            self.repeated_ranges.pop();
        }
        None
    }

    /// Counts a value, and fails at a limit. Without limits, nested aliases could expand a short text to gigabytes.
    fn count_value(&mut self, event: &Event<'_>, is_repeated: bool) -> Result<(), SyntaxMistake> {
        let bytes = match event {
            Event::Scalar(text, ..) => 1 + text.len(),
            Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_) => 1,
            _ => return Ok(()),
        };
        self.value_count += 1;
        if self.value_count > MAX_VALUE_COUNT {
            return Err(SyntaxMistake::too_many(self.parser_position));
        }
        if !is_repeated {
            return Ok(());
        }
        self.repeated_count += 1;
        self.repeated_bytes += bytes;
        if self.repeated_bytes > self.limit {
            return Err(SyntaxMistake::too_large(self.parser_position, self.limit));
        }
        if self.value_count > UNCHECKED_VALUES
            && self.repeated_count > MAX_REPETITION_FACTOR * (self.value_count - self.repeated_count)
        {
            let message = "the aliases (`*name`) up to here repeat over 99 times as much as is written";
            return Err(SyntaxMistake::new(
                self.parser_position,
                message,
                "write the values out",
            ));
        }
        Ok(())
    }

    fn record(&mut self, event: &Event<'t>, span: Span) {
        let anchor = match event {
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => event.anchor_id(),
            _ => None,
        };
        if anchor.is_none() && self.open_recordings.is_empty() {
            return;
        }
        let index = self.recorded_events.len();
        self.recorded_events.push((event.clone(), span));
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                self.open_recordings.push((anchor.unwrap_or_default(), index));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, start)) = self.open_recordings.pop() {
                    self.anchors.insert(anchor, start..index + 1);
                }
            }
            _ => {
                if let Some(anchor) = anchor {
                    self.anchors.insert(anchor, index..index + 1);
                }
            }
        }
    }
}

fn fix_for_error(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::UnknownAnchor => "write `&name` before the value that it repeats, or correct the name",
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => "write spaces in place of the tab",
        ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => {
            "close the text with the quote that opens it"
        }
        ErrorKind::InvalidTrailingSingleQuotedScalar => "write a quote in a text in single quotes twice: `''`",
        ErrorKind::InvalidTrailingDoubleQuotedScalar => "write a quote in a text in double quotes as `\\\"`",
        ErrorKind::UnknownQuotedScalarEscape
        | ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidUnicodeEscape => {
            "write a backslash in double quotes as `\\\\`, or put the text in single quotes"
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping => "close the bracket",
        ErrorKind::MappingValueNotAllowed => {
            "put a text with `: ` in it in quotes, or indent the field as the others of its map"
        }
        ErrorKind::InvalidIndentation | ErrorKind::ExpectedBlockMappingKey => {
            "indent what belongs together by the same number of spaces"
        }
        _ => "",
    }
}
