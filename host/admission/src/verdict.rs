use std::fmt;

use serde_json::{Map, Value};

use crate::{Object, Patch};

/// What a hook says of a request, and what goes with it.
#[derive(Clone, Debug)]
pub struct Response {
    /// Whether the request may pass, and how.
    pub verdict: Verdict,
    /// Sentences for whoever sent the request.
    pub warnings: Vec<String>,
    /// Notes for the audit log: key and value.
    pub audit_annotations: Vec<(String, String)>,
}

impl Response {
    /// A response with this verdict and nothing beside it.
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        }
    }

    /// The request may pass as it is.
    pub fn allow() -> Self {
        Self::new(Verdict::Allow)
    }

    /// The request may not pass.
    pub fn deny(denial: Denial) -> Self {
        Self::new(Verdict::Deny(denial))
    }
}

/// Whether a request may pass, and how.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// As it is.
    Allow,
    /// With this change to its object.
    Patch(Patch),
    /// With this object, whole, in place of its own.
    Replace(Object),
    /// Not at all.
    Deny(Denial),
}

/// Why a request is refused. The client sees all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    code: u16,
    /// One CamelCase word for machines; may be empty.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// More for machines, as Kubernetes' `Status.details` has it: `causes`, `retryAfterSeconds`; may be
    /// empty. Goes to clients that are answered with a `Status`.
    pub details: Map<String, Value>,
}

impl Denial {
    /// A denial. A `code` outside of 400 to 599 becomes 403.
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let code = if (400..600).contains(&code) { code } else { 403 };
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: Map::new(),
        }
    }

    /// The usual denial: 403, `Forbidden`.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// The HTTP status for it, 400 to 599.
    pub fn code(&self) -> u16 {
        self.code
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => f.write_str("no reason given"),
            ("", reason) => f.write_str(reason),
            (message, _) => f.write_str(message),
        }
    }
}
