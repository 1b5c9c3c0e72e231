//! The events of a YAML text, in which each alias is replaced by the events of its anchored node.

use std::{collections::HashMap, ops::Range};

use saphyr_parser::{Event, Parser, Span, StrInput};

use super::{tree::Flaw, yaml::position};

pub(super) struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// How many bytes aliases may repeat; none: aliases are refused.
    limit: Option<usize>,
    /// The events of anchored nodes.
    recorded: Vec<(Event<'t>, Span)>,
    /// The lists and maps that are being recorded: their anchors, 0 for none, and their first events.
    recording: Vec<(usize, usize)>,
    /// The recorded events of each anchor.
    anchors: HashMap<usize, Range<usize>>,
    /// The events that are still to be repeated for an alias, and for those around it.
    repeating: Vec<Range<usize>>,
    repeated: usize,
}

impl<'t> Events<'t> {
    pub(super) fn new(text: &'t str, limit: Option<usize>) -> Self {
        Self {
            parser: Parser::new_from_str(text),
            limit,
            recorded: Vec::new(),
            recording: Vec::new(),
            anchors: HashMap::new(),
            repeating: Vec::new(),
            repeated: 0,
        }
    }

    /// The next event, which is never an alias.
    pub(super) fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Flaw> {
        loop {
            let (event, span) = match self.next_repeated()? {
                Some(event) => event,
                None => match self.parser.next().transpose() {
                    Ok(None) => return Ok(None),
                    Ok(Some((event, span))) => {
                        self.record(&event, span);
                        (event, span)
                    }
                    Err(error) => {
                        let message = format!("this is not YAML: {}", error.info());
                        return Err(Flaw::new(position(*error.marker()), message, ""));
                    }
                },
            };
            let Event::Alias(anchor) = event else {
                return Ok(Some((event, span)));
            };
            // An alias can stand for any amount of text, many times over.
            let message = match (self.limit, self.anchors.get(&anchor)) {
                (Some(_), Some(events)) => {
                    self.repeating.push(events.clone());
                    continue;
                }
                (Some(_), None) => "this alias refers to a node that contains the alias",
                (None, _) => "aliases (`*name`) are not supported here",
            };
            return Err(Flaw::new(position(span.start), message, "write the value out"));
        }
    }

    fn next_repeated(&mut self) -> Result<Option<(Event<'t>, Span)>, Flaw> {
        while let Some(events) = self.repeating.last_mut() {
            let Some((event, span)) = events.next().and_then(|index| self.recorded.get(index)) else {
                self.repeating.pop();
                continue;
            };
            // About the bytes that the JSON needs.
            self.repeated += match event {
                Event::Alias(_) => 0,
                Event::Scalar(text, ..) => 1 + text.len(),
                _ => 1,
            };
            if let Some(limit) = self.limit
                && self.repeated > limit
            {
                return Err(Flaw::too_large(position(span.start), limit));
            }
            return Ok(Some((event.clone(), *span)));
        }
        Ok(None)
    }

    fn record(&mut self, event: &Event<'t>, span: Span) {
        let anchor = match event {
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _) => *anchor,
            _ => 0,
        };
        if self.limit.is_none() || (anchor == 0 && self.recording.is_empty()) {
            return;
        }
        let index = self.recorded.len();
        self.recorded.push((event.clone(), span));
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => self.recording.push((anchor, index)),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, start)) = self.recording.pop() {
                    self.anchors.insert(anchor, start..index + 1);
                }
            }
            _ if anchor != 0 => {
                self.anchors.insert(anchor, index..index + 1);
            }
            _ => {}
        }
    }
}
