//! The values that `authorizer` leads to, and what is known of their answers.

use std::sync::Arc;

use admittance_admission::{Access, AccessAttributes, AuthorizerError, Request, UserInfo};

/// A question to the authorizer that is being put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    /// None for the user of the request.
    pub(crate) user: Option<UserInfo>,
    pub(crate) about: About,
}

/// What the question is about so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Nothing,
    Group(String),
    Path(String),
    Resource(Resource),
}

/// The resource that a question is about. What is empty is not named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Permission {
    /// `authorizer`.
    pub(crate) fn open() -> Self {
        Self {
            user: None,
            about: About::Nothing,
        }
    }

    /// `authorizer.requestResource`.
    pub(crate) fn of_request(request: &Request) -> Self {
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
    pub(crate) fn about(&self, about: About) -> Self {
        Self {
            user: self.user.clone(),
            about,
        }
    }

    /// How many bytes it has, about.
    pub(crate) fn size(&self) -> usize {
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
    pub(crate) fn kind(&self) -> &'static str {
        match self.about {
            About::Nothing => "kubernetes.authorization.Authorizer",
            About::Group(_) => "kubernetes.authorization.GroupCheck",
            About::Path(_) => "kubernetes.authorization.PathCheck",
            About::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }

    /// The whole question; none when it is not about anything that can be asked.
    pub(crate) fn question(&self, verb: &str) -> Option<Question> {
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
pub(crate) struct Question {
    /// None for the user of the request.
    pub(crate) user: Option<UserInfo>,
    pub(crate) attributes: AccessAttributes,
}

/// What the authorizer said.
pub(crate) type Answer = Result<Access, AuthorizerError>;

/// The answers of one evaluation; few, for every question costs much.
#[derive(Debug, Default)]
pub(crate) struct Answers(Vec<(Question, Arc<Answer>)>);

impl Answers {
    pub(crate) fn get(&self, question: &Question) -> Option<Arc<Answer>> {
        self.0
            .iter()
            .find(|(asked, _)| asked == question)
            .map(|(_, answer)| Arc::clone(answer))
    }

    pub(crate) fn insert(&mut self, question: Question, answer: Answer) {
        self.0.push((question, Arc::new(answer)));
    }
}
