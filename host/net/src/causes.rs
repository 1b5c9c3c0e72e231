//! Finds the causes of errors, and formats them as text.

use std::{error::Error, io, iter};

/// Iterates over an error and its causes. Unlike [`Error::source`], this also finds the error inside an [`io::Error`].
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| match wrapped_error(error) {
        Some(inner) => Some(inner),
        None => error.source(),
    })
}

/// Returns the first error of this type among the [`causes`] of an error. If it is an I/O error with another I/O error
/// inside, returns the innermost one, because it is the most specific.
pub fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let wraps_another =
        |error: &(dyn Error + 'static)| wrapped_error(error).is_some_and(|inner| inner.is::<io::Error>());
    causes(error)
        .filter(|cause| !wraps_another(*cause))
        .find_map(|cause| cause.downcast_ref())
}

fn wrapped_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    Some(error.downcast_ref::<io::Error>()?.get_ref()?)
}

/// Returns the message of the innermost of the [`causes`] of an error. The messages of the outer errors often say only
/// that a request failed.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error)
        .last()
        .map(|cause| without_link(&cause.to_string()))
        .unwrap_or_default()
}

/// Formats an error and its [`causes`] in one line. A message that occurs several times is written once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = without_link(&error.to_string());
    for cause in causes(error).skip(1) {
        let cause = without_link(&cause.to_string());
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

pub(crate) fn without_link(text: &str) -> String {
    let end = text.find(": https://docs.rs/rustls").unwrap_or(text.len());
    text.get(..end).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    fn nested_error() -> Outer {
        let tls = rustls::Error::General("no suite".to_owned());
        let inner = io::Error::new(io::ErrorKind::InvalidData, tls);
        Outer {
            text: "the request failed",
            source: io::Error::other(inner),
        }
    }

    #[test]
    fn a_chain_of_causes_has_each_message_once() {
        assert_eq!(chain(&nested_error()), "the request failed: unexpected error: no suite");
        assert_eq!(root_cause(&nested_error()), "unexpected error: no suite");
        let linked = "bad name: https://docs.rs/rustls/latest/x";
        let error = Outer {
            text: linked,
            source: io::Error::other(linked),
        };
        assert_eq!(chain(&error), "bad name");
    }

    #[test]
    fn errors_inside_io_errors_are_found() {
        let error = nested_error();
        assert!(find::<rustls::Error>(&error).is_some());
        let inner = find::<io::Error>(&error).unwrap();
        assert_eq!(inner.kind(), io::ErrorKind::InvalidData);
        assert!(find::<std::fmt::Error>(&error).is_none());
        let plain = io::Error::other("no");
        assert!(find::<io::Error>(&plain).is_some());
    }
}
