use http::request::Parts;

use crate::{
    definition_name::{DefinitionName, KIND},
    routes::{RouteAction, RouteLookup, RouteVerb, lookup},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DefinitionRequest {
    Create { namespace: String },
    Update { namespace: String },
    Delete(DefinitionName),
    Get(DefinitionName),
    List,
}

impl DefinitionRequest {
    /// Parses a request about definitions of hooks. Returns `None` for requests about anything else.
    pub(crate) fn parse(head: &Parts) -> Option<Self> {
        let path = head.uri.path();
        // A request for definitions has the word `admissionwebhook` in its path, but some of the letters may be
        // percent-encoded. If the path has neither this word nor a `%`, no route needs to be looked up.
        if !path.contains(KIND) && !path.contains('%') {
            return None;
        }
        let RouteLookup::Found(matched) = lookup(head) else {
            return None;
        };
        if !matches!(matched.route.action, RouteAction::Definitions(_)) {
            return None;
        }
        let namespace = matched.parameter("ns").to_owned();
        let name = matched.parameter("name").to_owned();
        Some(match matched.route.verb {
            RouteVerb::Post => Self::Create { namespace },
            RouteVerb::Put => Self::Update { namespace },
            RouteVerb::Delete => Self::Delete(DefinitionName { namespace, name }),
            RouteVerb::Get if name.is_empty() => Self::List,
            RouteVerb::Get => Self::Get(DefinitionName { namespace, name }),
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
    #[rustfmt::skip]
    fn requests_for_definitions_are_recognized() {
        let name = || DefinitionName::new("n", "w");
        let create = || Some(DefinitionRequest::Create { namespace: "n".to_owned() });
        let update = || Some(DefinitionRequest::Update { namespace: "n".to_owned() });
        // (method, path below `/mesosdriver/v4`, expected request)
        for (method, path, expected) in [
            ("POST", "/namespaces/n/admissionwebhook", create()),
            ("PUT", "/namespaces/n/admissionwebhook", update()),
            ("DELETE", "/namespaces/n/admissionwebhook/w", Some(DefinitionRequest::Delete(name()))),
            ("GET", "/namespaces/n/admissionwebhook/w", Some(DefinitionRequest::Get(name()))),
            ("GET", "/admissionwebhooks", Some(DefinitionRequest::List)),
            ("POST", "/crd/namespaces/n/admissionwebhook", create()),
            ("PUT", "/crd/namespaces/n/admissionwebhook", update()),
            ("DELETE", "/crd/namespaces/n/admissionwebhook/w", Some(DefinitionRequest::Delete(name()))),
            ("GET", "/crd/namespaces/n/admissionwebhook/w", Some(DefinitionRequest::Get(name()))),
            // A path with encoded letters, doubled slashes and dot segments is recognized.
            ("GET", "/namespaces/n//%61dmissionwebhook/./%77/", Some(DefinitionRequest::Get(name()))),
            // The paths or methods of all rows below do not belong to a request for definitions.
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
            let request = Request::builder().method(method).uri(format!("/mesosdriver/v4{path}"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(DefinitionRequest::parse(&head), expected, "{method} {path}");
        }
    }
}
