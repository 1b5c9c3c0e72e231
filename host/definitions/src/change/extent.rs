//! Which bytes of a file belong to which document.

use std::ops::Range;

use crate::document::Document;

/// The bytes of one document. Markers, the lines that begin with `---` or `...`, divide a file: in YAML
/// no content of a document can begin a line with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// From the comment right above it, without an empty line between, to the end of its last line; and
    /// on, to the end of an indented comment below. A comment below that is not indented is not of it:
    /// it may be about what comes next.
    pub(crate) own: Range<usize>,
    /// The marker line before it, with its end. The document may begin on it.
    pub(crate) before: Option<Range<usize>>,
    /// The marker line after it, with its end.
    pub(crate) after: Option<Range<usize>>,
}

/// The extents of all documents of a text, from its start; none if they cannot be told apart.
pub(crate) fn extents(text: &str, documents: &[Document]) -> Option<Vec<Extent>> {
    let lines = lines(text);
    let mut extents = Vec::new();
    let mut free_from = 0;
    for document in documents {
        let extent = extent(text, &lines, &document.root().place().span)?;
        // Each in a part of its own.
        let begins = extent.before.as_ref().map_or(0, |before| before.start);
        if begins < free_from {
            return None;
        }
        free_from = extent.own.end;
        extents.push(extent);
    }
    Some(extents)
}

fn extent(text: &str, lines: &[Range<usize>], root: &Range<usize>) -> Option<Extent> {
    let written = |line: &Range<usize>| text.get(line.clone()).unwrap_or_default();
    let first = lines.iter().rposition(|line| line.start <= root.start)?;
    let last = lines.iter().rposition(|line| line.start < root.end)?;
    let is_marker = |line: &&Range<usize>| is_marker(written(line));
    let before = lines.get(..=first)?.iter().rfind(is_marker).cloned();
    let after = lines.get(last + 1..)?.iter().find(is_marker).cloned();

    let on_the_marker = before.as_ref().is_some_and(|marker| marker.contains(&root.start));
    let start = if on_the_marker {
        root.start
    } else {
        let is_comment = |line: &&Range<usize>| written(line).trim_start().starts_with('#');
        let above = lines.get(..first)?.iter().rev().take_while(is_comment);
        let top = above.last().or(lines.get(first))?;
        top.start.max(before.as_ref().map_or(0, |marker| marker.end))
    };

    let mut end = lines.get(last)?.end;
    for line in lines.get(last + 1..)? {
        let content = written(line).trim();
        if content.is_empty() {
            continue;
        }
        if !content.starts_with('#') || !written(line).starts_with([' ', '\t']) {
            break;
        }
        end = line.end;
    }
    Some(Extent {
        own: start..end,
        before,
        after,
    })
}

/// The lines of a text, each with its end.
fn lines(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let line = |line: &str| {
        let range = start..start + line.len();
        start = range.end;
        range
    };
    text.split_inclusive('\n').map(line).collect()
}

fn is_marker(line: &str) -> bool {
    let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}
