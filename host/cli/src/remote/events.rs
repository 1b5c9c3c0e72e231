//! Reads server-sent events.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerEvent {
    pub(super) name: String,
    pub(super) data: String,
}

#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    event: ServerEvent,
}

impl EventReader {
    pub(super) fn read_events(&mut self, chunk: &[u8]) -> Vec<ServerEvent> {
        let mut complete = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                complete.extend(self.read_line(String::from_utf8_lossy(&line).trim_end()));
            }
        }
        complete
    }

    fn read_line(&mut self, line: &str) -> Option<ServerEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Some(event).filter(|event| !event.data.is_empty());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.event.data.push_str(value),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_sent_events_may_be_split_between_chunks() {
        let text = "event: decision\nid: 7\ndata: {\"a\": 1}\n\n: heartbeat\n\nevent: missed\ndata:{}\n\ndata: cut";
        let event = |name: &str, data: &str| ServerEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        };
        let expected = [event("decision", "{\"a\": 1}"), event("missed", "{}")];
        for size in [1, 3, 7, text.len()] {
            let mut events = EventReader::default();
            let chunks = text.as_bytes().chunks(size);
            let parsed_events: Vec<_> = chunks.flat_map(|chunk| events.read_events(chunk)).collect();
            assert_eq!(parsed_events, expected, "chunks of {size}");
        }
    }
}
