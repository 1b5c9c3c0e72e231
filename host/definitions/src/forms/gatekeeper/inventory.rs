//! Finds out which kinds of objects in the cluster a Rego policy reads.

/// Returns the kinds of objects that a Rego policy reads in `data.inventory`. Returns `None` if the text does not tell
/// a kind, for example because a variable is written in its place.
pub(super) fn mentioned_kinds(text: &str) -> Option<Vec<&str>> {
    let mut kinds = Vec::new();
    for (at, _) in text.match_indices("inventory") {
        let after = text.get(at + "inventory".len()..).unwrap_or_default();
        let (scope, mut rest) = split_segment(after)?;
        // A reference is `inventory.cluster[version][kind]` or `inventory.namespace[namespace][version][kind]`. Only
        // the kind is needed, so the one or two segments between the scope and the kind are skipped.
        let before = match scope? {
            "namespace" => 2,
            "cluster" => 1,
            _ => return None,
        };
        for _ in 0..before {
            (_, rest) = split_segment(rest)?;
        }
        let (kind, _) = split_segment(rest)?;
        kinds.push(kind?);
    }
    Some(kinds)
}

/// Splits the first segment from a reference, and returns its name and the rest. The segments `.a` and `["a"]` have the
/// name `a`. The segment `[a]` is a variable, and has no name. Returns `None` at the end of the reference.
fn split_segment(text: &str) -> Option<(Option<&str>, &str)> {
    if let Some(name) = text.strip_prefix('.') {
        let end = name
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(name.len());
        let (name, rest) = name.split_at(end);
        return (!name.is_empty()).then_some((Some(name), rest));
    }
    let text = text.strip_prefix('[')?;
    if let Some(name) = text.strip_prefix('"') {
        let (name, rest) = name.split_once('"')?;
        return Some((Some(name), rest.strip_prefix(']')?));
    }
    // The index in brackets may be an expression that contains brackets itself.
    let mut depth = 1;
    let end = text.find(|c: char| {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        depth == 0
    })?;
    Some((None, text.get(end + 1..)?))
}

#[cfg(test)]
mod tests;
