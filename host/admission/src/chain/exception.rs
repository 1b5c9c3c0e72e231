//! Exceptions, which exempt requests from a stage, so that the stage's hook is not called for them.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;

use crate::{Authorizer, Deadline, MatchConditions, Moment, Request, Rule};

/// Exempts requests from a stage until a given time. A request is exempt if it matches every field of the exception.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Exception {
    /// The exception's name in traces, logs and metrics.
    pub name: Arc<str>,
    /// The exception's rules. A request must match at least one of them; an empty list matches all requests.
    pub rules: Vec<Rule>,
    /// The namespaces of the exempt objects. An empty list matches all objects.
    pub namespaces: Vec<NameGlob>,
    /// The names of the exempt objects, or the beginnings of generated names. An empty list matches all objects.
    pub names: Vec<NameGlob>,
    /// The names of the exempt users. An empty list matches all users.
    pub users: Vec<NameGlob>,
    /// The groups of the exempt users. A user must be in at least one of them; an empty list matches all users.
    pub groups: Vec<NameGlob>,
    /// Conditions on the exempt requests, which must all be true. A condition that cannot be evaluated counts as false.
    pub match_conditions: MatchConditions,
    /// The time at which the exception expires.
    pub until: Moment,
}

impl Exception {
    /// Creates an exception that matches every request.
    pub fn new(name: impl Into<Arc<str>>, until: Moment) -> Self {
        Self {
            name: name.into(),
            rules: Vec::new(),
            namespaces: Vec::new(),
            names: Vec::new(),
            users: Vec::new(),
            groups: Vec::new(),
            match_conditions: MatchConditions::default(),
            until,
        }
    }

    /// Returns whether the exception has expired, so that it matches no request.
    pub fn has_expired(&self, now: Moment) -> bool {
        self.until <= now
    }

    pub(crate) async fn matches(&self, request: &Request, authorizer: &dyn Authorizer, deadline: Deadline) -> bool {
        let user = &request.user;
        let is_one_of = |globs: &[NameGlob], text: &str| globs.iter().any(|glob| glob.matches(text));
        let namespace = request.namespace.as_deref().unwrap_or_default();
        !self.has_expired(Moment::now())
            && (self.rules.is_empty() || self.rules.iter().any(|rule| rule.matches(request)))
            && (self.namespaces.is_empty() || is_one_of(&self.namespaces, namespace))
            && (self.users.is_empty() || is_one_of(&self.users, &user.username))
            && (self.groups.is_empty() || user.groups.iter().any(|group| is_one_of(&self.groups, group)))
            && (self.names.is_empty() || is_one_of(&self.names, &object_name(request)))
            && self
                .match_conditions
                .matches(request, authorizer, deadline)
                .await
                .unwrap_or(false)
    }
}

fn object_name(request: &Request) -> Cow<'_, str> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ExemptedMetadata {
        #[serde(rename = "generateName")]
        generate_name: String,
    }
    #[derive(Deserialize)]
    struct GeneratedName {
        metadata: ExemptedMetadata,
    }
    if !request.name.is_empty() {
        return Cow::Borrowed(&request.name);
    }
    let object = request.object.as_ref();
    let generated = object.and_then(|object| object.deserialize::<GeneratedName>().ok());
    Cow::Owned(
        generated
            .map(|object| object.metadata.generate_name)
            .unwrap_or_default(),
    )
}

/// A pattern for names, in which each `*` matches any number of characters.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub struct NameGlob(String);

impl NameGlob {
    /// Creates a glob from this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns whether the glob matches this text.
    pub fn matches(&self, text: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else {
            return self.0 == text;
        };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut text) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
            return false;
        };
        for part in middle.split('*') {
            match text.split_once(part) {
                Some((_, after)) => text = after,
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_star_of_a_glob_matches_any_characters() {
        for (glob, text, expected) in [
            ("web", "web", true),
            ("web", "web-1", false),
            ("", "", true),
            ("*", "", true),
            ("*", "web", true),
            ("web-*", "web-", true),
            ("web-*", "web-1", true),
            ("web-*", "my-web-1", false),
            ("*-web", "my-web", true),
            ("*-web", "my-web-1", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*web*", "my-web-1", true),
            ("*web*", "my-wed-1", false),
            ("**", "x", true),
            ("a*b*c*d", "a-b-c-d", true),
            ("a*b*c*d", "a-c-b-d", false),
            ("a*b*b*c", "a-b-c", false),
            ("system:serviceaccount:*:web", "system:serviceaccount:shop:web", true),
        ] {
            assert_eq!(NameGlob::new(glob).matches(text), expected, "{glob} {text}");
        }
    }
}
