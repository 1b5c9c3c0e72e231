//! The values that `authorizer` leads to, and what is known of their answers.

use std::sync::Arc;

use super::authorizer::{Access, AccessAttributes, AuthorizerError};
use crate::{Request, UserInfo};

/// A question to the authorizer that is being put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    /// None for the user of the request.
    pub(super) user: Option<UserInfo>,
    pub(super) about: About,
}

/// What the question is about so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    Nothing,
    Group(String),
    Path(String),
    Resource(Resource),
}

/// The resource that a question is about. What is empty is not named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Permission {
    /// `authorizer`.
    pub(super) fn open() -> Self {
        Self {
            user: None,
            about: About::Nothing,
        }
    }

    /// `authorizer.requestResource`.
    pub(super) fn of_request(request: &Request) -> Self {
        Self {
            user: None,
            about: About::Resource(Resource {
                group: request.resource.group.clone(),
                resource: request.resource.resource.clone(),
                subresource: request.subresource.clone().unwrap_or_default(),
                namespace: request.namespace.clone().unwrap_or_default(),
                name: request.name.clone(),
            }),
        }
    }

    /// The same question about something else.
    pub(super) fn about(&self, about: About) -> Self {
        Self {
            user: self.user.clone(),
            about,
        }
    }

    /// How many bytes it has, about.
    pub(super) fn size(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| 4 * user.username.len());
        user + match &self.about {
            About::Nothing => 0,
            About::Group(text) | About::Path(text) => text.len(),
            About::Resource(resource) => {
                resource.group.len()
                    + resource.resource.len()
                    + resource.subresource.len()
                    + resource.namespace.len()
                    + resource.name.len()
            }
        }
    }

    /// The name of its type.
    pub(super) fn kind(&self) -> &'static str {
        match self.about {
            About::Nothing => "kubernetes.authorization.Authorizer",
            About::Group(_) => "kubernetes.authorization.GroupCheck",
            About::Path(_) => "kubernetes.authorization.PathCheck",
            About::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }

    /// The whole question; none when it is not about anything that can be asked.
    pub(super) fn question(&self, verb: &str) -> Option<Question> {
        let verb = verb.to_owned();
        let attributes = match &self.about {
            About::Nothing | About::Group(_) => return None,
            About::Path(path) => AccessAttributes::Path {
                verb,
                path: path.clone(),
            },
            About::Resource(resource) => AccessAttributes::Resource {
                verb,
                group: resource.group.clone(),
                version: "*".to_owned(),
                resource: resource.resource.clone(),
                subresource: resource.subresource.clone(),
                namespace: resource.namespace.clone(),
                name: resource.name.clone(),
            },
        };
        Some(Question {
            user: self.user.clone(),
            attributes,
        })
    }
}

/// A question that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// None for the user of the request.
    pub(super) user: Option<UserInfo>,
    pub(super) attributes: AccessAttributes,
}

/// What the authorizer said.
pub(super) type Answer = Result<Access, AuthorizerError>;

/// The answers of one evaluation; few, for every question costs much.
#[derive(Debug, Default)]
pub(super) struct Answers(Vec<(Question, Arc<Answer>)>);

impl Answers {
    pub(super) fn get(&self, question: &Question) -> Option<Arc<Answer>> {
        self.0
            .iter()
            .find(|(asked, _)| asked == question)
            .map(|(_, answer)| Arc::clone(answer))
    }

    pub(super) fn insert(&mut self, question: Question, answer: Answer) {
        self.0.push((question, Arc::new(answer)));
    }
}
