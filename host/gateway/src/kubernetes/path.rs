//! The paths of requests for Kubernetes clusters, and the permissions that they need.

use admittance_bcs::routes::Permission;
use admittance_dialect::ApiTarget;
use http::{Method, Uri, uri::PathAndQuery};

use super::error::KubernetesError;

pub(super) const PREFIX: &str = "/tunnels/clusters/";

/// The API group whose objects are webhooks and admission policies.
const HOOKS_GROUP: &str = "admissionregistration.k8s.io";
/// Resources that a client creates to ask about its permissions and identity, by API group. They are not stored.
const REVIEW_RESOURCES: [(&str, &[&str]); 2] = [
    (
        "authorization.k8s.io",
        &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    ),
    ("authentication.k8s.io", &["selfsubjectreviews"]),
];

/// The parts of a path `/tunnels/clusters/{identifier}/{rest}`.
#[derive(Debug)]
pub(super) struct TunnelPath<'u> {
    pub(super) identifier: &'u str,
    /// The path and query of the request to the cluster's API server.
    pub(super) rest: Uri,
    pub(super) target: ApiTarget,
}

impl<'u> TunnelPath<'u> {
    pub(super) fn parse(uri: &'u Uri) -> Result<Self, KubernetesError> {
        let after = uri.path().strip_prefix(PREFIX).ok_or(KubernetesError::NoRoute)?;
        let (identifier, rest) = after.split_once('/').unwrap_or((after, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if identifier.is_empty() || !identifier.bytes().all(is_plain) || identifier.bytes().all(|byte| byte == b'.') {
            return Err(KubernetesError::NoRoute);
        }
        let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
        let rest: PathAndQuery = format!("/{rest}{query}")
            .parse()
            .map_err(|_| KubernetesError::NoRoute)?;
        // `parse` refuses paths that servers could read differently, for example with a segment `..`.
        let target = ApiTarget::parse(rest.path()).map_err(|rejection| KubernetesError::Path(rejection.message))?;
        Ok(Self {
            identifier,
            rest: Uri::from(rest),
            target,
        })
    }
}

/// Returns whether a container of the cluster may have sent the reply to a request for this path.
pub(super) fn is_proxied(path: &str) -> bool {
    matches!(ApiTarget::parse(path), Ok(ApiTarget::Resource(target)) if target.subresource.as_deref() == Some("proxy"))
}

/// Returns the permission that the gateway requires for a request. The cluster then checks the user's rights.
pub(super) fn needed_permission(method: &Method, target: &ApiTarget, is_upgrade: bool) -> Permission {
    let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let ApiTarget::Resource(target) = target else {
        return if is_read { Permission::Read } else { Permission::Write };
    };
    let is_question = REVIEW_RESOURCES.iter().any(|(group, resources)| {
        *group == target.resource.group && resources.contains(&target.resource.resource.as_str())
    });
    let opens = target.is_connect() || (is_upgrade && target.subresource.is_some());
    match (is_read, opens) {
        (true, false) => Permission::Read,
        (false, false) if is_question && *method == Method::POST => Permission::Read,
        (false, _) if target.resource.group == HOOKS_GROUP => Permission::Hooks,
        _ => Permission::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn paths_of_requests_for_clusters_are_parsed() {
        for (uri, expected) in [
            ("/tunnels/clusters/a-1/api/v1/pods?watch=true", Some(("a-1", "/api/v1/pods?watch=true"))),
            ("/tunnels/clusters/a-1/", Some(("a-1", "/"))),
            ("/tunnels/clusters/a-1", Some(("a-1", "/"))),
            ("/tunnels/clusters/", None),
            ("/tunnels/clusters//api", None),
            ("/tunnels/clusters/../api", None),
            // Identifiers of bcs-api can contain capital letters.
            ("/tunnels/clusters/A/api", Some(("A", "/api"))),
            ("/tunnels/clusters/a%2Db/api", None),
            ("/tunnels/clusters/a-1//api/v1/pods", None),
            ("/tunnels/clusters/a-1/../b-1/api/v1/pods", None),
            ("/tunnels/clusters/a-1/%2e%2e/b-1/api", None),
            ("/tunnels/clusters/a-1/api/v1/pods/%2e%2E", None),
            ("/tunnels/clusters/a-1/api%2Fv1%2Fpods", None),
            ("/tunnels/other", None),
        ] {
            let uri: Uri = uri.parse().unwrap();
            let path = TunnelPath::parse(&uri).ok();
            let found = path.as_ref().map(|path| (path.identifier, path.rest.to_string()));
            assert_eq!(found, expected.map(|(identifier, rest)| (identifier, rest.to_owned())), "{uri}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn each_request_to_a_cluster_needs_its_permission() {
        for (method, path, is_upgrade, expected) in [
            (Method::GET, "/api/v1/pods", false, Permission::Read),
            (Method::GET, "/version", false, Permission::Read),
            (Method::GET, "/api/v1/pods", true, Permission::Read),
            (Method::GET, "/api/v1/namespaces/n/pods/a/exec", true, Permission::Write),
            (Method::GET, "/api/v1/namespaces/n/services/a/proxy/x", false, Permission::Write),
            (Method::GET, "/apis/x/v1/namespaces/n/machines/a/console", true, Permission::Write),
            (Method::POST, "/api/v1/namespaces/n/pods", false, Permission::Write),
            (Method::DELETE, "/api/v1/nodes/a", false, Permission::Write),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false, Permission::Read),
            (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews", false, Permission::Write),
            (Method::GET, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", false, Permission::Read),
            (Method::DELETE, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/a", false, Permission::Hooks),
            (Method::POST, "/other", false, Permission::Write),
        ] {
            let target = ApiTarget::parse(path).unwrap();
            assert_eq!(needed_permission(&method, &target, is_upgrade), expected, "{method} {path}");
        }
    }
}
