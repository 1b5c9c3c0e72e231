//! The rules for names, as Kubernetes has them.

use crate::document::quoted;

const SUBDOMAIN: &str =
    "use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit";

/// A DNS-1123 subdomain: at most 253 characters, labels joined by dots. What kube-apiserver asks of
/// `metadata.name`.
pub(crate) fn subdomain(text: &str) -> Result<String, String> {
    if text.len() > 253 {
        return Err("a name has at most 253 characters".to_owned());
    }
    if text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text} is no name: {SUBDOMAIN}", text = quoted(text)))
    }
}

/// Whether it is a DNS-1123 label, of any length: a part of a subdomain.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
