//! Which permission a request needs.

use std::{collections::BTreeSet, str::FromStr};

use admittance_admission::is_dns_subdomain;
use admittance_bcs::routes::{Action, Lookup, Permission, lookup};
use http::{header::UPGRADE, request::Parts};

use crate::path;

/// The prefix of the custom resources of the kube-apiserver next to a cluster: `{group}/{version}/...`.
const CUSTOM_RESOURCES: &str = "/mesosdriver/v4/customresources/";

/// The API groups whose custom resources need only [`Permission::Write`] to be changed. Those of every other group
/// need [`Permission::Hooks`]: they may control admission and access for all requests (definitions of hooks, admission
/// policies, roles, API services, policy engines). Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainGroups(BTreeSet<ApiGroup>);

/// The API group of custom resources, such as `clb.bmsf.tencent.com`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiGroup(String);

/// A string that cannot be used as a plain API group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApiGroup {
    /// Not a valid name of a group of custom resources.
    #[error("{0:?} is not an API group of custom resources: write one such as clb.bmsf.tencent.com")]
    Name(String),
    /// Its resources control admission or access for all requests.
    #[error(
        "{0} controls admission for all requests, so changing it always requires the permission Hooks: remove it"
    )]
    Protected(String),
}

impl FromStr for ApiGroup {
    type Err = InvalidApiGroup;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_within = |domain: &str| {
            text.strip_suffix(domain)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        // BCS keeps the definitions of hooks in its own group, and its scheduler keeps all workloads there.
        if ["k8s.io", "kubernetes.io"].iter().any(|domain| is_within(domain)) || text == "bkbcs.tencent.com" {
            return Err(InvalidApiGroup::Protected(text.to_owned()));
        }
        // Kubernetes' own groups without a dot (`apps`) have no custom resources.
        if !text.contains('.') || !is_dns_subdomain(text) {
            return Err(InvalidApiGroup::Name(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromIterator<ApiGroup> for PlainGroups {
    fn from_iter<I: IntoIterator<Item = ApiGroup>>(groups: I) -> Self {
        Self(groups.into_iter().collect())
    }
}

impl PlainGroups {
    /// Whether the path, without any encoding, is for custom resources of one of these groups.
    fn contain(&self, path: &str) -> bool {
        path.strip_prefix(CUSTOM_RESOURCES)
            .and_then(|rest| rest.split('/').next())
            .is_some_and(|group| self.0.iter().any(|plain| plain.0 == group))
    }
}

/// The permission that a request to a driver needs: that of its route, if it has one.
///
/// Only requests known to be harmless need less than [`Permission::Hooks`]: those for a route of the driver, with an
/// unambiguous path. A console is a shell in a container, so opening one is not a read, although it is a GET;
/// neither is a request that switches protocols.
pub(crate) fn needed(head: &Parts, plain: &PlainGroups) -> Permission {
    let path = head.uri.path();
    let Lookup::Found(matched) = lookup(head) else {
        return Permission::Hooks;
    };
    if !path::has_one_reading(path) {
        return Permission::Hooks;
    }
    let switches_protocols = head.headers.contains_key(UPGRADE);
    match (matched.route.action, matched.route.permission) {
        (Action::Scheduler(_), Permission::Read) if switches_protocols => Permission::Write,
        (_, Permission::Read) if !switches_protocols => Permission::Read,
        (Action::CustomResources, _) if plain.contain(path) => Permission::Write,
        (_, Permission::Read) => Permission::Hooks,
        (_, needed) => needed,
    }
}

#[cfg(test)]
mod tests {
    use admittance_bcs::routes::{
        Permission::{Hooks, Read, Write},
        Verb, routes,
    };
    use http::Request;

    use super::*;

    fn plain_groups() -> PlainGroups {
        let groups = ["example.com", "clb.bmsf.tencent.com"];
        groups.iter().map(|group| group.parse().unwrap()).collect()
    }

    fn assert_needs(method: &str, path: &str, expected: Permission) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/mesosdriver/v4{path}"));
        let head = request.body(()).unwrap().into_parts().0;
        assert_eq!(needed(&head, &plain_groups()), expected, "{method} {path}");
    }

    #[test]
    fn needs() {
        for (method, path, expected) in [
            ("GET", "/namespaces/n/applications", Read),
            ("POST", "/namespaces/n/applications", Write),
            ("PUT", "/namespaces/n/applications/a/scale/3", Write),
            ("DELETE", "/namespaces/n/applications/a", Write),
            // An application may have any name.
            ("DELETE", "/namespaces/n/applications/admissionwebhook", Write),
            ("DELETE", "/namespaces/admissionwebhook/applications/a", Write),
            ("DELETE", "/namespaces/n/applications/%E5%BA%94%E7%94%A8", Write),
            ("GET", "/admissionwebhooks", Read),
            ("GET", "/namespaces/n/admissionwebhook/a", Read),
            ("POST", "/namespaces/n/admissionwebhook", Hooks),
            ("PUT", "/namespaces/n/admissionwebhook", Hooks),
            ("DELETE", "/namespaces/n/admissionwebhook/a", Hooks),
            ("POST", "/crd/namespaces/n/admissionwebhook", Hooks),
            ("DELETE", "/crd/namespaces/n/admissionwebhook/a", Hooks),
            ("POST", "/crd/namespaces/n/admissionwebhook2", Write),
            // Any spelling.
            ("POST", "/namespaces/n/%61dmissionwebhook", Hooks),
            ("POST", "/namespaces/n%2Fadmissionwebhook", Hooks),
            ("POST", "/namespaces/n/admissionwebhook/", Hooks),
            ("POST", "/namespaces/n/AdmissionWebhook", Hooks),
            ("POST", "/namespaces/n/%2561dmissionwebhook", Hooks),
            ("POST", "/crd/namespaces/n/%2561dmissionwebhook", Hooks),
            ("DELETE", "/namespaces/n/applications/a%2Fb", Hooks),
            ("POST", "/admissionwebhooks", Hooks),
            (
                "GET",
                "/webconsole/bcsapi/v1/consoleproxy/mesos/create_exec",
                Write,
            ),
            ("POST", "/webconsole/x", Write),
            // An unknown route may exist in another version of the driver.
            ("GET", "/nothing", Hooks),
            ("POST", "/nothing", Hooks),
            ("DELETE", "/admissionwebhooks", Hooks),
        ] {
            assert_needs(method, path, expected);
        }
    }

    #[test]
    #[rustfmt::skip]
    fn custom_resources_need_hooks_unless_their_group_is_listed() {
        for (method, path, expected) in [
            // Resources of the kube-apiserver that control admission or access, including whole collections.
            ("DELETE", "/customresources/apiextensions.k8s.io/v1/customresourcedefinitions", Hooks),
            ("DELETE", "/customresources/apiextensions.k8s.io/v1/customresourcedefinitions/a.b", Hooks),
            ("DELETE", "/customresources/admissionregistration.k8s.io/v1/validatingadmissionpolicies", Hooks),
            ("POST", "/customresources/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", Hooks),
            ("DELETE", "/customresources/apiregistration.k8s.io/v1/apiservices", Hooks),
            ("DELETE", "/customresources/rbac.authorization.k8s.io/v1/clusterrolebindings", Hooks),
            ("DELETE", "/customresources/apps/v1/namespaces/kube-system/deployments", Hooks),
            ("POST", "/customresources/kyverno.io/v1/clusterpolicies", Hooks),
            ("PUT", "/customresources/bkbcs.tencent.com/v2/namespaces/b/admissionwebhookconfigurations/a", Hooks),
            ("DELETE", "/customresources/bkbcs.tencent.com/v2/namespaces/b/applications", Hooks),
            ("GET", "/customresources/bkbcs.tencent.com/v2/namespaces/b/admissionwebhookconfigurations/a", Read),
            ("DELETE", "/customresourcedefinitions/things.example.com", Hooks),
            ("POST", "/customresourcedefinitions", Hooks),
            ("GET", "/customresourcedefinitions", Read),
            // Listed groups, and paths that only look like them.
            ("POST", "/customresources/example.com/v1/namespaces/b/things", Write),
            ("DELETE", "/customresources/clb.bmsf.tencent.com/v1/namespaces/b/clbs", Write),
            ("DELETE", "/customresources/example.com/v1/namespaces/b/things/my-webhook", Write),
            ("POST", "/customresources/apis/example.com/v1/namespaces/b/things", Hooks),
            ("POST", "/customresources/example.com.evil.io/v1/things", Hooks),
            ("POST", "/customresources/Example.com/v1/things", Hooks),
            ("POST", "/customresources/ex%61mple.com/v1/things", Hooks),
            ("POST", "/customresources/example.com%2Fv1/things", Hooks),
        ] {
            assert_needs(method, path, expected);
        }
    }

    #[test]
    #[rustfmt::skip]
    fn switching_protocols_needs_more_than_read() {
        for (path, expected) in [
            ("/namespaces/n/applications", Write),
            ("/webconsole/x", Write),
            ("/customresources/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/a/console", Hooks),
            ("/nothing", Hooks),
        ] {
            let request = Request::get(format!("/mesosdriver/v4{path}")).header("upgrade", "websocket");
            let head = request.body(()).unwrap().into_parts().0;
            assert_eq!(needed(&head, &PlainGroups::default()), expected, "{path}");
        }
    }

    /// Every route of the driver, so that a new route needs a decision here.
    #[test]
    fn no_route_that_changes_definitions_needs_less() {
        let mut seen = 0;
        for route in routes() {
            let path = route.path.replace("{uri:*}", "g.io/v1/x").replace(['{', '}'], "");
            let request = Request::builder()
                .method(route.verb.method())
                .uri(format!("/mesosdriver/v4{path}"));
            let head = request.body(()).unwrap().into_parts().0;
            let needed = needed(&head, &PlainGroups::default());
            let is_plain = matches!(route.action, Action::Scheduler(_) | Action::Console);
            match (is_plain, route.verb) {
                (false, Verb::Get) => assert_eq!(needed, Read, "{}", route.path),
                (false, _) => assert_eq!(needed, Hooks, "{}", route.path),
                (true, _) => assert!(needed < Hooks, "{}", route.path),
            }
            seen += 1;
        }
        assert_eq!(seen, 89);
    }

    #[test]
    fn groups() {
        for (text, is_valid) in [
            ("clb.bmsf.tencent.com", true),
            ("network.bkbcs.tencent.com", true),
            ("kyverno.io", true),
            ("", false),
            ("apps", false),
            ("*", false),
            ("a..b", false),
            ("A.b", false),
            ("a.b/v1", false),
            ("bkbcs.tencent.com", false),
            ("k8s.io", false),
            ("apiextensions.k8s.io", false),
            ("node.kubernetes.io", false),
        ] {
            assert_eq!(text.parse::<ApiGroup>().is_ok(), is_valid, "{text}");
        }
    }
}
