//! Checks names in definitions by the rules of Kubernetes.

use admittance_admission::{is_dns_label, is_dns_subdomain, is_name_part};

use crate::document::quoted;

const SUBDOMAIN_RULE: &str = "use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit";

const NAME_PART_RULE: &str = "use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 \
                         characters at most";

/// Checks that the text is a DNS-1123 subdomain (up to 253 characters), as kube-apiserver requires of `metadata.name`.
pub(crate) fn check_subdomain(text: &str) -> Result<String, String> {
    if text.len() > 253 {
        return Err("a name has at most 253 characters".to_owned());
    }
    if is_dns_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err(format!("{} is not a valid name: {SUBDOMAIN_RULE}", quoted(text)))
}

/// Checks that the text can be the name of a namespace: a DNS-1123 label of at most 63 characters.
pub(crate) fn check_label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{} is not a valid namespace: use lower-case letters, digits and `-`, beginning and ending with a letter or \
         digit, 63 characters at most",
        quoted(text)
    ))
}

/// Checks that the text is a CEL identifier. The names of variables and of a group's members must be identifiers.
pub(crate) fn check_identifier(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let starts_validly = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if starts_validly && characters.all(|other| other.is_ascii_alphanumeric() || other == '_') && text.len() <= 128 {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{} is not an identifier: use letters, digits and `_`, beginning with a letter",
        quoted(text)
    ))
}

/// Checks that the text can be the name of a webhook: a DNS-1123 subdomain with at least two dots.
pub(crate) fn check_webhook_name(text: &str) -> Result<String, String> {
    let name = check_subdomain(text)?;
    if name.split('.').count() < 3 {
        return Err(format!(
            "{text} has fewer than three parts: write a name such as `pods.hooks.example.com`",
            text = quoted(text)
        ));
    }
    Ok(name)
}

/// Checks that the text can be the name of an API version: a DNS-1035 label of at most 63 characters.
pub(crate) fn check_version(text: &str) -> Result<(), String> {
    if is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Ok(());
    }
    Err(format!(
        "{text} is not a valid version name: use lower-case letters, digits and `-`, beginning with a letter, ending \
         with a letter or digit, 63 characters at most",
        text = quoted(text)
    ))
}

/// Checks that the text can be a label's key: a name of at most 63 characters, after an optional subdomain and `/`.
pub(crate) fn check_label_key(text: &str) -> Result<(), String> {
    let wrong = |rule: &str| Err(format!("{} is not a valid label key: {rule}", quoted(text)));
    let name = match text.split_once('/') {
        Some((prefix, _)) if check_subdomain(prefix).is_err() => {
            return wrong(&format!("before the `/`, {SUBDOMAIN_RULE}"));
        }
        Some((_, name)) => name,
        None => text,
    };
    if is_name_part(name) {
        Ok(())
    } else {
        wrong(NAME_PART_RULE)
    }
}

/// Checks that the text is a valid, non-empty label value. The same characters are allowed as in the name of a label.
pub(crate) fn check_label_value(text: &str) -> Result<(), String> {
    if is_name_part(text) {
        return Ok(());
    }
    Err(format!("{} is not a valid label value: {NAME_PART_RULE}", quoted(text)))
}
