pub(crate) mod failure;
pub(crate) mod outcome;

use std::{borrow::Cow, collections::HashSet, fmt};

use serde_json::{Map, Value};

use crate::{Object, Patch};

/// The response of a hook to a request: a verdict, warnings, and audit annotations.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response {
    /// The hook's verdict on the request.
    pub verdict: Verdict,
    /// The hook's warnings for the client.
    pub warnings: Vec<String>,
    /// The hook's audit annotations: keys and values.
    pub audit_annotations: Vec<(String, String)>,
}

impl Response {
    /// Creates a response without warnings and annotations.
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        }
    }

    pub(crate) fn with_message(mut self, message: Option<&str>) -> Self {
        if let (Verdict::Deny(denial), Some(message)) = (&mut self.verdict, message) {
            let hook_message = std::mem::replace(&mut denial.message, message.to_owned());
            denial.add_cause(None, hook_message);
        }
        self
    }

    pub(crate) fn with_names_policy(mut self, spec: &crate::StageSpec) -> Self {
        if let Verdict::Deny(denial) = &mut self.verdict {
            denial.names_policy |= spec.denials_name_policy;
        }
        self
    }

    /// The maximum total size of the keys and values of a response's audit annotations, in bytes.
    pub const MAX_ANNOTATIONS_SIZE: usize = 16 << 10;

    /// The maximum number of audit annotations of a response. Each annotation becomes a line in the log.
    pub const MAX_ANNOTATION_COUNT: usize = 64;

    /// The number of bytes that each audit annotation adds to the total size of the annotations, besides the bytes of
    /// its key and its value.
    const ANNOTATION_COST: usize = 16;

    /// The key of the audit annotation that contains the number of dropped annotations.
    pub const DROPPED_KEY: &str = "dropped";

    /// The maximum length of an audit annotation's value in bytes. Longer values are truncated.
    pub const MAX_ANNOTATION_LENGTH: usize = 4096;

    /// Limits the size of the response: truncates long texts, and drops entries above the limits.
    #[must_use]
    pub fn into_bounded(mut self) -> Self {
        if !self.warnings.is_empty() {
            self.warnings = bounded_warnings(&self.warnings);
        }
        let annotation_count = self.audit_annotations.len();
        let (mut remaining_size, mut kept_count) = (Self::MAX_ANNOTATIONS_SIZE, 0);
        self.audit_annotations.retain_mut(|(key, value)| {
            shorten(value, Self::MAX_ANNOTATION_LENGTH);
            match remaining_size.checked_sub(key.len() + value.len() + Self::ANNOTATION_COST) {
                Some(rest) if kept_count < Self::MAX_ANNOTATION_COUNT => {
                    remaining_size = rest;
                    kept_count += 1;
                    true
                }
                _ => false,
            }
        });
        if kept_count < annotation_count {
            let note = format!("{} audit annotations beyond the limits", annotation_count - kept_count);
            self.audit_annotations.push((Self::DROPPED_KEY.to_owned(), note));
        }
        if let Verdict::Deny(denial) = &mut self.verdict {
            denial.bound();
        }
        self
    }

    /// Creates a response that allows the request unchanged.
    pub fn allow() -> Self {
        Self::new(Verdict::Allow)
    }

    /// Creates a response that denies the request.
    pub fn deny(denial: Denial) -> Self {
        Self::new(Verdict::Deny(denial))
    }
}

/// A verdict on a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The request is allowed unchanged.
    Allow,
    /// The request is allowed, and this patch changes its object.
    Patch(Patch),
    /// The request is allowed, and this object replaces the request's object.
    Replace(Object),
    /// The request is denied.
    Deny(Denial),
}

/// The denial of a request. The client gets all of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    code: u16,
    /// The reason for the denial, as a word in CamelCase for programs; may be empty.
    pub reason: String,
    /// The message of the denial, for people.
    pub message: String,
    /// Whether the message names the policy that denied the request. If so, clients do not see the stage and the chain.
    pub names_policy: bool,
    /// Details for programs, such as `causes` and `retryAfterSeconds` in Kubernetes' `Status.details`; may be empty.
    /// Only clients that get a Kubernetes `Status` receive them.
    pub details: Map<String, Value>,
}

impl Denial {
    /// Creates a denial with this HTTP status code. A `code` outside 400 to 599 becomes 403.
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: if (400..600).contains(&code) { code } else { 403 },
            reason: reason.into(),
            message: message.into(),
            names_policy: false,
            details: Map::new(),
        }
    }

    /// Adds a message to the `causes` in the denial's details. `field` is the path of the field that caused the denial.
    pub fn add_cause(&mut self, field: Option<&str>, message: impl Into<String>) {
        let field = field.map(|path| ("field".to_owned(), Value::String(path.to_owned())));
        let message = ("message".to_owned(), Value::String(message.into()));
        let causes = self.details.entry("causes").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(causes) = causes {
            causes.push(Value::Object(field.into_iter().chain([message]).collect()));
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.message.push('\n');
        self.message.push_str(&other.message);
        self.bound();
    }

    /// Creates a denial with the code 403 and the reason `Forbidden`.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// The maximum length of a denial's message in bytes. Longer messages are truncated. kube-apiserver has no limit.
    pub const MAX_MESSAGE: usize = 16 << 10;

    /// The maximum length of a denial's reason in bytes.
    pub const MAX_REASON: usize = 256;

    /// The maximum size of a denial's details as JSON, in bytes. Larger details are dropped.
    pub const MAX_DETAILS: usize = 16 << 10;

    fn bound(&mut self) {
        shorten(&mut self.message, Self::MAX_MESSAGE);
        shorten(&mut self.reason, Self::MAX_REASON);
        // Serializing the details cannot fail, because they were parsed from JSON.
        let fits = serde_json::to_vec(&self.details).is_ok_and(|text| text.len() <= Self::MAX_DETAILS);
        if !fits {
            self.details = Map::new();
        }
    }

    /// Returns the HTTP status code of the denial, from 400 to 599.
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

/// Returns a text of at most this many bytes. If the text is longer, it is cut, and `...` is appended.
pub fn shortened(text: &str, max_length: usize) -> Cow<'_, str> {
    if text.len() <= max_length {
        return text.into();
    }
    let mut text = text.to_owned();
    shorten(&mut text, max_length);
    text.into()
}

/// Cuts a text in place to at most this many bytes, as [`shortened`] does.
pub fn shorten(text: &mut String, max_length: usize) {
    const ELLIPSIS: &str = "...";
    if text.len() > max_length {
        text.truncate(text.floor_char_boundary(max_length.saturating_sub(ELLIPSIS.len())));
        text.push_str(ELLIPSIS);
    }
}

/// Applies kube-apiserver's limits to warnings. Control characters and duplicates are removed. If all warnings together
/// exceed 4096 characters, each is truncated to 256 characters. If this is not enough, the last warnings are dropped.
pub fn bounded_warnings(warnings: &[String]) -> Vec<String> {
    const MAX_TOTAL_LENGTH: usize = 4096;
    const CUT_LENGTH: usize = 256;
    let mut unique_texts = HashSet::new();
    let texts: Vec<String> = warnings
        .iter()
        // All warnings together may have at most `MAX_TOTAL_LENGTH` characters. So the first `MAX_TOTAL_LENGTH + 1`
        // characters of a warning are enough to see that it is too long, and the rest is not read.
        .map(|text| {
            text.chars()
                .filter(|c| !c.is_control())
                .take(MAX_TOTAL_LENGTH + 1)
                .collect::<String>()
        })
        .filter(|text| !text.is_empty() && unique_texts.insert(text.clone()))
        .collect();
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    let mut remaining = MAX_TOTAL_LENGTH;
    let mut kept_texts = Vec::new();
    for text in texts {
        let text: String = if total > MAX_TOTAL_LENGTH {
            text.chars().take(CUT_LENGTH).collect()
        } else {
            text
        };
        let Some(rest) = remaining.checked_sub(text.chars().count()) else {
            break;
        };
        remaining = rest;
        kept_texts.push(text);
    }
    kept_texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_text_has_at_most_the_given_length() {
        for (length, expected) in [(0, 0), (512, 1024), (513, 1023), (5000, 1023)] {
            assert_eq!(shortened(&"ä".repeat(length), 1024).len(), expected, "{length}");
        }
    }

    #[test]
    fn texts_of_a_response_are_truncated_to_their_limits() {
        let mut denial = Denial::new(403, "r".repeat(5_000), "é".repeat(400_000));
        denial.details.insert("causes".to_owned(), "x".repeat(400_000).into());
        let response = Response {
            warnings: vec!["w".repeat(400_000); 40],
            audit_annotations: vec![
                ("a".to_owned(), "v".repeat(400_000)),
                ("k".repeat(400_000), "left out".to_owned()),
                ("b".to_owned(), "kept".to_owned()),
            ],
            ..Response::deny(denial)
        }
        .into_bounded();
        let Verdict::Deny(denial) = &response.verdict else {
            panic!("{response:?}")
        };
        // The limit is in the middle of a character that has two bytes. The whole character is cut off, so the message
        // is one byte shorter than the limit.
        assert_eq!(denial.message.len(), Denial::MAX_MESSAGE - 1);
        assert_eq!(denial.reason.len(), Denial::MAX_REASON);
        assert!(denial.details.is_empty());
        assert_eq!(response.warnings, ["w".repeat(256)]);
        let annotations = response
            .audit_annotations
            .iter()
            .map(|(key, value)| (&**key, value.len()));
        assert_eq!(
            annotations.collect::<Vec<_>>(),
            [
                ("a", Response::MAX_ANNOTATION_LENGTH),
                ("b", 4),
                (Response::DROPPED_KEY, 37)
            ]
        );
    }

    #[test]
    fn audit_annotations_beyond_the_limit_are_dropped_and_counted() {
        let annotations = |number: usize, length: usize| vec![(String::new(), "v".repeat(length)); number];
        for (given, expected_count, note) in [
            (annotations(Response::MAX_ANNOTATION_COUNT, 0), 64, None),
            (
                annotations(23_000, 0),
                64,
                Some("22936 audit annotations beyond the limits"),
            ),
            (
                annotations(6_700, 1),
                64,
                Some("6636 audit annotations beyond the limits"),
            ),
            (
                annotations(20, 1_024),
                15,
                Some("5 audit annotations beyond the limits"),
            ),
        ] {
            let case = format!("{} of {}", given.len(), given[0].1.len());
            let response = Response {
                audit_annotations: given,
                ..Response::allow()
            };
            let mut bounded = response.into_bounded().audit_annotations;
            let dropped = bounded.pop_if(|(key, _)| key == Response::DROPPED_KEY);
            assert_eq!(bounded.len(), expected_count, "{case}");
            assert_eq!(dropped.as_ref().map(|(_, note)| note.as_str()), note, "{case}");
        }
    }

    #[test]
    fn a_response_within_the_limits_is_unchanged() {
        let mut denial = Denial::new(422, "Invalid", "m".repeat(10_000));
        denial.details.insert("causes".to_owned(), vec!["spec"].into());
        let response = Response {
            warnings: vec!["careful".to_owned(), "w".repeat(300)],
            audit_annotations: vec![("key".to_owned(), "v".repeat(4_000))],
            ..Response::deny(denial.clone())
        };
        let bounded = response.clone().into_bounded();
        assert!(matches!(bounded.verdict, Verdict::Deny(same) if same == denial));
        assert_eq!(bounded.warnings, response.warnings);
        assert_eq!(bounded.audit_annotations, response.audit_annotations);
    }
}
