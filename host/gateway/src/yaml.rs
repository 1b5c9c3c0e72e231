//! Converts YAML bodies to JSON like go-yaml v2, the parser of bcs-api.
//!
//! Duplicate keys and further documents are errors here, although bcs-api silently drops them.

use admittance_definitions::document::{Mistake, yaml_to_json};

/// The reason why a body cannot be converted to JSON, as a sentence with the line and column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidYaml(String);

impl From<Mistake> for InvalidYaml {
    fn from(mistake: Mistake) -> Self {
        let Mistake {
            location, message, fix, ..
        } = mistake;
        let fix = if fix.is_empty() { fix } else { format!(": {fix}") };
        Self(format!(
            "line {}, column {}: {message}{fix}",
            location.line, location.column
        ))
    }
}

/// Converts text with one YAML document to JSON of at most `limit` bytes. Aliases are expanded. Empty text stays empty.
pub(super) fn to_json(body: &[u8], limit: usize) -> Result<Vec<u8>, InvalidYaml> {
    let text = std::str::from_utf8(body)
        .map_err(|error| InvalidYaml(format!("the body is not UTF-8 from byte {} on", error.valid_up_to())))?;
    Ok(yaml_to_json("body", text, limit)?.unwrap_or_default())
}

/// Returns whether YAML may contain anchors and aliases, which are written with `&` and `*`. Aliases repeat values, so
/// the JSON may become much larger than the YAML.
pub(super) fn may_expand(body: &[u8]) -> bool {
    body.contains(&b'&') && body.contains(&b'*')
}

#[cfg(test)]
mod tests;
