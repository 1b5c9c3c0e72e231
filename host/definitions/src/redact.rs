//! Hides the values of environment variables that definitions grant to plugins, because they may be secrets.

use std::{borrow::Cow, ops::Range, path::Path};

use crate::{
    Mistakes,
    document::{self, Node},
};

const REDACTED: &str = "\"[redacted]\"";
/// The text that replaces a whole file, if the values of environment variables in it cannot be located.
const WITHHELD_TEXT: &str = "# This text cannot be read as a definition, and may hold values of `allow.environment`: the role \
                        Read does not see it.\n";

/// Returns the text with `[redacted]` in place of each value in `allow.environment`. If the values cannot be located, a
/// notice replaces the whole text.
pub fn without_granted_values<'t>(file: &Path, text: &'t str) -> Cow<'t, str> {
    // A text without the word `environment` grants no variables, so it is returned unparsed. However, the key may be
    // written with an escape, as in `"env\u0069ronment"`. Therefore a text with a backslash is always parsed.
    let may_grant = text.contains('\\') || text.to_ascii_lowercase().contains("environment");
    if !may_grant {
        return Cow::Borrowed(text);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut mistakes = Mistakes::new();
    let documents = document::read_text_of(file, text, &mut mistakes);
    if !mistakes.is_empty() {
        return Cow::Borrowed(WITHHELD_TEXT);
    }
    let mut spans = Vec::new();
    for document in &documents {
        collect_granted_spans(&document.root_ignoring_mistakes(), &mut spans);
    }
    let redacted = |span: Range<usize>| {
        // If the value is a block scalar, its span may end with a line break, which must be kept.
        let end = if text.get(span.clone())?.ends_with('\n') {
            "\n"
        } else {
            ""
        };
        Some((span, format!("{REDACTED}{end}")))
    };
    match spans.into_iter().map(redacted).collect() {
        Some(parts) => Cow::Owned(document::replace_ranges(text, parts)),
        None => Cow::Borrowed(WITHHELD_TEXT),
    }
}

/// Collects the spans of all values in `allow.environment`. The keys `allow` and `environment` may be in any case,
/// because BCS documents ignore case.
fn collect_granted_spans(node: &Node<'_>, spans: &mut Vec<Range<usize>>) {
    let is_key = |key: Option<&str>, name: &str| key.is_some_and(|key| key.eq_ignore_ascii_case(name));
    for (key, child) in node.children() {
        if is_key(key, "allow") {
            let granted = child.children().into_iter();
            let environments = granted.filter(|(key, _)| is_key(*key, "environment"));
            spans.extend(
                environments
                    .flat_map(|(_, values)| values.children())
                    .map(|(_, value)| value.span()),
            );
        } else {
            collect_granted_spans(&child, spans);
        }
    }
}

#[cfg(test)]
mod tests;
