//! The rules for names, as Kubernetes has them.

use admittance_admission::{is_dns_label, is_dns_subdomain, is_name_part};

use crate::document::quoted;

const SUBDOMAIN: &str =
    "use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit";

const NAME_PART: &str = "use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 \
                         characters at most";

/// A DNS-1123 subdomain: at most 253 characters, labels joined by dots. What kube-apiserver asks of
/// `metadata.name`.
pub(crate) fn subdomain(text: &str) -> Result<String, String> {
    if text.len() > 253 {
        return Err("a name has at most 253 characters".to_owned());
    }
    if is_dns_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not a valid name: {SUBDOMAIN}",
            text = quoted(text)
        ))
    }
}

/// A DNS-1123 label, as the name of a namespace is: at most 63 characters.
pub(crate) fn label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not a valid namespace: use lower-case letters, digits and `-`, beginning and ending with a letter \
             or digit, 63 characters at most",
            text = quoted(text)
        ))
    }
}

/// An identifier of CEL: the name of a variable, or of a member of a group.
pub(crate) fn identifier(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let first = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if first && characters.all(|other| other.is_ascii_alphanumeric() || other == '_') && text.len() <= 128 {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not an identifier: use letters, digits and `_`, beginning with a letter",
            text = quoted(text)
        ))
    }
}

/// The name of a webhook: a subdomain of at least three parts.
pub(crate) fn webhook(text: &str) -> Result<String, String> {
    let name = subdomain(text)?;
    if name.split('.').count() < 3 {
        return Err(format!(
            "{text} has fewer than three parts: write a name such as `pods.hooks.example.com`",
            text = quoted(text)
        ));
    }
    Ok(name)
}

/// A DNS-1035 label, the name of an API version: at most 63 characters.
pub(crate) fn version(text: &str) -> Result<(), String> {
    if is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Ok(());
    }
    Err(format!(
        "{text} is not a valid version name: use lower-case letters, digits and `-`, beginning with a letter, ending \
         with a letter or digit, 63 characters at most",
        text = quoted(text)
    ))
}

/// The key of a label, a qualified name: perhaps a subdomain and `/`, and a name of at most 63
/// characters.
pub(crate) fn label_key(text: &str) -> Result<(), String> {
    let name = match text.split_once('/') {
        Some((prefix, name)) => {
            subdomain(prefix).map_err(|_| {
                format!(
                    "{text} is not a valid label key: before the `/`, {SUBDOMAIN}",
                    text = quoted(text)
                )
            })?;
            name
        }
        None => text,
    };
    if is_name_part(name) {
        Ok(())
    } else {
        Err(format!(
            "{text} is not a valid label key: {NAME_PART}",
            text = quoted(text)
        ))
    }
}

/// The value of a label that is not empty: as the name in a key.
pub(crate) fn label_value(text: &str) -> Result<(), String> {
    if is_name_part(text) {
        Ok(())
    } else {
        Err(format!(
            "{text} is not a valid label value: {NAME_PART}",
            text = quoted(text)
        ))
    }
}
