//! The response of a plugin to a request.

use serde::Serialize;

use crate::bindings::admittance::plugin::types::{self, Verdict};
use crate::{Error, Patch};

pub use crate::bindings::admittance::plugin::types::Denial;

impl Denial {
    /// Returns a denial with the status 403 and the reason `Forbidden`. The message is for people: what is wrong, where
    /// in the object, and how to fix it.
    ///
    /// ```
    /// use admittance_sdk::{Denial, Response};
    ///
    /// let image = "nginx";
    /// let response = Response::deny(
    ///     Denial::new(format!("spec.containers[0].image: \"{image}\" has no tag; name one, as in \"{image}:1.29\""))
    ///         .code(422)
    ///         .reason("ImageNotAllowed"),
    /// );
    /// # let _ = response;
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: 403,
            reason: "Forbidden".to_owned(),
            message: message.into(),
        }
    }

    /// Sets the HTTP status of the denial, from 400 to 599. The host replaces any other status with 403.
    pub fn code(mut self, code: u16) -> Self {
        self.code = code;
        self
    }

    /// Sets the reason of the denial, a CamelCase word for programs.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

impl From<&str> for Denial {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for Denial {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

/// A verdict with warnings and audit annotations.
///
/// ```
/// use admittance_sdk::Response;
///
/// let response = Response::allow()
///     .warn("spec.hostNetwork will be refused from the next release on")
///     .audit("host-network", "true");
/// # let _ = response;
/// ```
#[derive(Debug)]
#[must_use = "a response does nothing unless `admit` returns it"]
pub struct Response(types::Response);

impl Response {
    /// Allows the request unchanged.
    pub fn allow() -> Self {
        Self::new(Verdict::Allow)
    }

    /// Denies the request. Takes a [`Denial`], or just its message.
    pub fn deny(denial: impl Into<Denial>) -> Self {
        Self::new(Verdict::Deny(denial.into()))
    }

    /// Allows the request with this change, or unchanged if the patch is empty.
    pub fn patch(patch: Patch) -> Self {
        if patch.is_empty() {
            Self::allow()
        } else {
            Self::new(Verdict::Patch(patch.into_json()))
        }
    }

    /// Allows the request with this complete object instead of the object that it contains. Fields that the value does
    /// not contain are lost: prefer [`Response::patch`] or [`Request::mutate`](crate::Request::mutate).
    ///
    /// # Errors
    /// Fails if the value cannot be serialized as JSON.
    pub fn replace(object: &impl Serialize) -> Result<Self, Error> {
        let text = serde_json::to_string(object).map_err(|source| Error::Write {
            pointer: jsonptr::PointerBuf::new(),
            source,
        })?;
        Ok(Self::new(Verdict::Replace(text)))
    }

    /// Adds a warning for the client that sent the request. The client gets it even if the request is allowed.
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.0.warnings.push(warning.into());
        self
    }

    /// Adds an annotation for the audit log. Key characters other than letters, digits, `-`, `_` and `.` become `_`.
    pub fn audit(mut self, key: &str, value: impl Into<String>) -> Self {
        let key = key
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        self.0.audit_annotations.push((key, value.into()));
        self
    }

    fn new(verdict: Verdict) -> Self {
        Self(types::Response {
            verdict,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        })
    }

    pub(crate) fn into_contract(self) -> types::Response {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_patch_allows_the_request() {
        assert_eq!(Response::patch(Patch::new()).into_contract().verdict, Verdict::Allow);
    }

    #[test]
    fn audit_keys_contain_only_characters_that_the_contract_allows() {
        let response = Response::allow().audit("example.com/a key", "v").into_contract();
        assert_eq!(
            response.audit_annotations,
            [("example.com_a_key".to_owned(), "v".to_owned())]
        );
    }

    #[test]
    fn a_denial_from_a_message_is_403_forbidden() {
        let expected = Denial {
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "no".to_owned(),
        };
        assert_eq!(Response::deny("no").into_contract().verdict, Verdict::Deny(expected));
    }
}
