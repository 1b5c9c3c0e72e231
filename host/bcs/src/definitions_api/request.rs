use std::fmt;

use admittance_definitions::DefinitionId;
use http::request::Parts;

use crate::routes::{Action, Lookup, Verb, lookup};

/// The segment in the path of every such route.
const WORD: &str = "admissionwebhook";

/// A request to the API for definitions. Lives as long as the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DefinitionRequest {
    /// Create a definition. The namespace of the path is used only if the body has none.
    Create {
        namespace: String,
    },
    /// Update a definition. The namespace of the path is used only if the body has none.
    Update {
        namespace: String,
    },
    Delete(Name),
    Get(Name),
    /// List the definitions of all namespaces.
    List,
}

/// The name of a definition, displayed as `{namespace}/{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Name {
    /// The kind of these definitions, in any case.
    const KIND: &str = "admissionwebhook";

    /// The name of a definition of BCS.
    pub(crate) fn of(id: &DefinitionId) -> Option<Self> {
        let (namespace, name) = id.name.split_once('/')?;
        id.kind.eq_ignore_ascii_case(Self::KIND).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl DefinitionRequest {
    /// The request to the API for definitions; none if it is for something else.
    pub(crate) fn of(head: &Parts) -> Option<Self> {
        let path = head.uri.path();
        // Most requests are ruled out without routing.
        if !path.contains(WORD) && !path.contains('%') {
            return None;
        }
        let Lookup::Found(matched) = lookup(head) else {
            return None;
        };
        if !matches!(matched.route.action, Action::Definitions(_)) {
            return None;
        }
        let namespace = matched.parameter("ns").to_owned();
        let name = matched.parameter("name").to_owned();
        Some(match matched.route.verb {
            Verb::Post => Self::Create { namespace },
            Verb::Put => Self::Update { namespace },
            Verb::Delete => Self::Delete(Name { namespace, name }),
            Verb::Get if name.is_empty() => Self::List,
            Verb::Get => Self::Get(Name { namespace, name }),
        })
    }

    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Delete(_) => "delete",
            Self::Get(_) => "get",
            Self::List => "list",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn of_requests() {
        let namespace = || "n".to_owned();
        let name = || Name {
            namespace: "n".to_owned(),
            name: "w".to_owned(),
        };
        // (method, path below the prefix, expected request)
        for (method, path, expected) in [
            (
                "POST",
                "/namespaces/n/admissionwebhook",
                Some(DefinitionRequest::Create {
                    namespace: namespace(),
                }),
            ),
            (
                "PUT",
                "/namespaces/n/admissionwebhook",
                Some(DefinitionRequest::Update {
                    namespace: namespace(),
                }),
            ),
            (
                "DELETE",
                "/namespaces/n/admissionwebhook/w",
                Some(DefinitionRequest::Delete(name())),
            ),
            (
                "GET",
                "/namespaces/n/admissionwebhook/w",
                Some(DefinitionRequest::Get(name())),
            ),
            ("GET", "/admissionwebhooks", Some(DefinitionRequest::List)),
            (
                "POST",
                "/crd/namespaces/n/admissionwebhook",
                Some(DefinitionRequest::Create {
                    namespace: namespace(),
                }),
            ),
            (
                "PUT",
                "/crd/namespaces/n/admissionwebhook",
                Some(DefinitionRequest::Update {
                    namespace: namespace(),
                }),
            ),
            (
                "DELETE",
                "/crd/namespaces/n/admissionwebhook/w",
                Some(DefinitionRequest::Delete(name())),
            ),
            (
                "GET",
                "/crd/namespaces/n/admissionwebhook/w",
                Some(DefinitionRequest::Get(name())),
            ),
            // Any spelling.
            (
                "GET",
                "/namespaces/n//%61dmissionwebhook/./%77/",
                Some(DefinitionRequest::Get(name())),
            ),
            // Other routes, and none.
            ("GET", "/namespaces/n/admissionwebhook", None),
            ("PATCH", "/namespaces/n/admissionwebhook/w", None),
            ("POST", "/namespaces/n/admissionwebhook/w", None),
            ("POST", "/admissionwebhooks", None),
            ("GET", "/namespaces/n/admissionwebhook/w/x", None),
            ("GET", "/namespaces/n/admissionwebhook/w%2Fx", None),
            ("GET", "/crd/namespaces/n/admissionwebhook", None),
            ("GET", "/crd/admissionwebhook", None),
            ("GET", "/namespaces/admissionwebhook/applications/w", None),
            ("POST", "/namespaces/n/applications", None),
            ("POST", "/namespaces/n/%61pplications", None),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(format!("/mesosdriver/v4{path}"))
                .body(());
            let (head, ()) = request.unwrap().into_parts();
            assert_eq!(DefinitionRequest::of(&head), expected, "{method} {path}");
        }
    }
}
