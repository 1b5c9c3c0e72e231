//! The permissions that requests need.

use std::{collections::BTreeSet, str::FromStr};

use admittance_admission::is_dns_subdomain;
use admittance_bcs::routes::{Permission, RouteAction, RouteLookup, lookup};
use http::{header::UPGRADE, request::Parts};

use crate::path;

/// The prefix of the driver's paths for custom resources. The driver forwards them to a kube-apiserver.
const CUSTOM_RESOURCES: &str = "/mesosdriver/v4/customresources/";

/// The API groups whose custom resources users with [`Permission::Write`] may change. Changes of resources in any other
/// group need [`Permission::Hooks`], because they may control admission or access for all requests. Examples are
/// definitions of hooks, admission policies, roles, API services, and resources of policy engines. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainGroups(BTreeSet<ApiGroup>);

/// The API group of custom resources, such as `clb.bmsf.tencent.com`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiGroup(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApiGroup {
    #[error("{0:?} is not an API group of custom resources: write one such as clb.bmsf.tencent.com")]
    Name(String),
    /// The operator may not list this group among the groups that users with `Write` may change, because its resources
    /// control admission or access for all requests.
    #[error("{0} controls admission for all requests, so changing it always requires the permission Hooks: remove it")]
    Protected(String),
}

impl FromStr for ApiGroup {
    type Err = InvalidApiGroup;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_within = |domain: &str| {
            text.strip_suffix(domain)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        // BCS's group `bkbcs.tencent.com` is protected, too. Its resources include the definitions of hooks and all
        // workloads of the scheduler.
        if ["k8s.io", "kubernetes.io"].iter().any(|domain| is_within(domain)) || text == "bkbcs.tencent.com" {
            return Err(InvalidApiGroup::Protected(text.to_owned()));
        }
        // A group without a dot, such as `apps`, belongs to Kubernetes and has no custom resources.
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
    /// Returns whether the path belongs to a custom resource of one of these groups. The name of the group is compared
    /// as text, so the path must not contain percent-encoding.
    fn contains_group_of(&self, path: &str) -> bool {
        path.strip_prefix(CUSTOM_RESOURCES)
            .and_then(|rest| rest.split('/').next())
            .is_some_and(|group| self.0.iter().any(|plain| plain.0 == group))
    }
}

/// Returns the permission that a request to a driver needs: the permission of its route, or [`Permission::Hooks`] if
/// its path is ambiguous or has no route. A request that opens a console is not a read, although it is a GET.
pub(crate) fn needed_permission(head: &Parts, plain: &PlainGroups) -> Permission {
    let path = head.uri.path();
    let RouteLookup::Found(matched) = lookup(head) else {
        return Permission::Hooks;
    };
    if !path::has_one_reading(path) {
        return Permission::Hooks;
    }
    let switches_protocols = head.headers.contains_key(UPGRADE);
    match (matched.route.action, matched.route.permission) {
        (RouteAction::Scheduler(_), Permission::Read) if switches_protocols => Permission::Write,
        (_, Permission::Read) if !switches_protocols => Permission::Read,
        (RouteAction::CustomResources, _) if plain.contains_group_of(path) => Permission::Write,
        (_, Permission::Read) => Permission::Hooks,
        (_, permission) => permission,
    }
}

#[cfg(test)]
mod tests;
