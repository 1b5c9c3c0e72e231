//! Parses the path of a request to the Kubernetes API.

use admittance_admission::GroupVersionResource;
use percent_encoding::percent_decode_str;

use crate::{Rejection, RejectionKind};

/// The meaning of a path of the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiTarget {
    /// The path names a resource, or a collection of resources.
    Resource(ResourceTarget),
    /// The path names no resource, such as `/version`, `/healthz`, or a path for discovery.
    Other,
}

/// The resource and object that a path below `/api/{version}` or `/apis/{group}/{version}` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTarget {
    /// The resource, in the version that the path contains.
    pub resource: GroupVersionResource,
    /// The namespace in the path. If the object is itself a Namespace, this is its name.
    pub namespace: Option<String>,
    /// The name of the object; `None` if the path names a collection.
    pub name: Option<String>,
    /// The subresource, such as `status` or `exec`.
    pub subresource: Option<String>,
    /// The decoded path after the subresource `proxy`, to which the API server connects; empty if there is none.
    pub subpath: String,
}

/// The subresources of a namespace itself, as in `/api/v1/namespaces/a/status`. Any other word after the name of a
/// namespace is a resource in that namespace, such as `pods`.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// The resources of the core group whose subresources open a connection.
const CONNECT_SUBRESOURCES: [(&str, &[&str]); 3] = [
    ("pods", &["exec", "attach", "portforward", "proxy"]),
    ("services", &["proxy"]),
    ("nodes", &["proxy"]),
];

impl ApiTarget {
    /// Parses the path of a URI, which must not be decoded yet.
    ///
    /// # Errors
    ///
    /// Returns an error if servers could read the path in different ways, because it has empty or dot segments, encoded
    /// slashes, or characters that are encoded twice.
    pub fn parse(path: &str) -> Result<Self, Rejection> {
        let segments = segments(path)?;
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, parts) = match parts.as_slice() {
            ["api", version, parts @ ..] => ("", *version, parts),
            ["apis", group, version, parts @ ..] => (*group, *version, parts),
            _ => return Ok(Self::Other),
        };
        // Old clients watch a resource with paths such as `/api/v1/watch/pods`.
        let parts = match parts {
            ["watch", parts @ ..] => parts,
            parts => parts,
        };
        let (namespace, parts) = match parts {
            ["namespaces", namespace] => (Some(*namespace), parts),
            ["namespaces", namespace, next, ..] if NAMESPACE_SUBRESOURCES.contains(next) => (Some(*namespace), parts),
            ["namespaces", namespace, parts @ ..] => (Some(*namespace), parts),
            parts => (None, parts),
        };
        let Some((resource, parts)) = parts.split_first() else {
            return Ok(Self::Other);
        };
        let part = |index: usize| parts.get(index).map(|part| (*part).to_owned());
        Ok(Self::Resource(ResourceTarget {
            resource: GroupVersionResource {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: (*resource).to_owned(),
            },
            namespace: namespace.map(ToOwned::to_owned),
            name: part(0),
            subresource: part(1),
            subpath: parts.get(2..).unwrap_or_default().join("/"),
        }))
    }
}

impl ResourceTarget {
    /// Returns whether every request to this target opens a connection, whatever its method.
    pub fn is_connect(&self) -> bool {
        let subresource = self.subresource.as_deref().unwrap_or_default();
        self.resource.group.is_empty()
            && CONNECT_SUBRESOURCES.iter().any(|(resource, subresources)| {
                self.resource.resource == *resource && subresources.contains(&subresource)
            })
    }
}

/// A trailing slash is ignored.
fn segments(path: &str) -> Result<Vec<String>, Rejection> {
    let ambiguous = |problem: &str| {
        let message = format!("the path {path:?} {problem}: servers may read it differently");
        Rejection::new(RejectionKind::Ambiguous, message)
    };
    let relative_path = path.strip_prefix('/').unwrap_or(path);
    let trimmed_path = relative_path.strip_suffix('/').unwrap_or(relative_path);
    if trimmed_path.is_empty() {
        return Ok(Vec::new());
    }
    let decode_segment = |encoded: &str| {
        let decoded = percent_decode_str(encoded)
            .decode_utf8()
            .map_err(|_| ambiguous("is not UTF-8"))?;
        match &*decoded {
            "" => Err(ambiguous("has an empty segment")),
            "." | ".." => Err(ambiguous("has a dot segment")),
            text if text.contains(['/', '\\', '%', '?', '#']) || text.contains(char::is_control) => {
                Err(ambiguous("has an encoded separator"))
            }
            _ => Ok(decoded.into_owned()),
        }
    };
    trimmed_path.split('/').map(decode_segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(target: &ResourceTarget) -> String {
        let or_dash = |part: &Option<String>| part.clone().unwrap_or("-".to_owned());
        let ResourceTarget {
            resource,
            namespace,
            name,
            subresource,
            ..
        } = target;
        format!(
            "{resource} {} {} {}",
            or_dash(namespace),
            or_dash(name),
            or_dash(subresource)
        )
    }

    #[test]
    #[rustfmt::skip]
    fn the_resource_is_read_from_a_path_unless_the_path_is_ambiguous() {
        for (path, expected) in [
            ("/api/v1/pods", "v1/pods - - -"),
            ("/api/v1/namespaces/a/pods", "v1/pods a - -"),
            ("/api/v1/namespaces/a/pods/", "v1/pods a - -"),
            ("/api/v1/namespaces/a/pods/b", "v1/pods a b -"),
            ("/api/v1/namespaces/a/pods/b/exec", "v1/pods a b exec"),
            ("/api/v1/namespaces/a/pods/b/proxy/x/y", "v1/pods a b proxy"),
            ("/api/v1/namespaces/a/%70ods/b%3Ac", "v1/pods a b:c -"),
            ("/api/v1/namespaces", "v1/namespaces - - -"),
            ("/api/v1/namespaces/a", "v1/namespaces a a -"),
            ("/api/v1/namespaces/a/status", "v1/namespaces a a status"),
            ("/api/v1/namespaces/a/finalize", "v1/namespaces a a finalize"),
            ("/api/v1/watch/namespaces/a/pods", "v1/pods a - -"),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", "apps/v1/deployments a b scale"),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x", "rbac.authorization.k8s.io/v1/clusterroles - system:x -"),
        ] {
            match ApiTarget::parse(path) {
                Ok(ApiTarget::Resource(target)) => assert_eq!(describe(&target), expected, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
        for path in ["/", "", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/API/v1/pods", "/openapi/v3/apis/apps/v1"] {
            assert_eq!(ApiTarget::parse(path), Ok(ApiTarget::Other), "{path}");
        }
        for path in [
            "//api/v1/pods", "/api//v1/pods", "/api/v1/pods//", "/api/v1/./pods", "/version/../api/v1/pods",
            "/version/%2e%2e/api/v1/pods", "/version/%2E./api", "/api/v1%2Fpods", "/api/v1/pods%5Cb", "/api/v1/pods%00",
            "/api/v1/%2570ods", "/api/v1/pods%3Fx", "/api/v1/pods/%0a", "/api/v1/%ff",
        ] {
            let rejection = ApiTarget::parse(path).unwrap_err();
            assert_eq!(rejection.kind, RejectionKind::Ambiguous, "{path}");
        }
    }

    #[test]
    fn paths_that_open_a_connection_are_recognized() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/b/exec", true),
            ("/api/v1/namespaces/a/services/b/proxy/x", true),
            ("/api/v1/nodes/b/proxy", true),
            ("/api/v1/nodes/b/exec", false),
            ("/apis/x/v1/pods/b/exec", false),
            ("/api/v1/namespaces/a/pods/exec", false),
        ] {
            let Ok(ApiTarget::Resource(target)) = ApiTarget::parse(path) else {
                panic!("{path}")
            };
            assert_eq!(target.is_connect(), expected, "{path}");
        }
    }
}
