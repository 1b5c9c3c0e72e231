//! Asks the API server which kinds of objects it serves.

use std::time::Duration;

use kube::core::{ApiResource, GroupVersionKind};
use tokio::time::Instant;

use crate::{
    cluster::Cluster,
    connection::Connection,
    metrics::Verb,
    request_error::RequestError,
    resources::{ResourceError, WatchedResources},
};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A kind of objects that the API server serves, and that can be listed and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    pub(crate) resource: ApiResource,
    pub(crate) is_namespaced: bool,
}

impl ServedKind {
    /// Returns the kind of the served objects, such as `ConstraintTemplate`.
    pub fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// Returns the plural and the group, such as `constrainttemplates.templates.gatekeeper.sh`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.resource.plural, self.resource.group)
    }

    pub fn api_version(&self) -> &str {
        &self.resource.api_version
    }
}

impl Cluster {
    /// Returns the kinds of `group` whose plurals are in `plurals`, or all kinds of the group if `plurals` contains
    /// `*`. If the API server serves a kind in several of the `versions`, the kind is returned once, with the first of
    /// these versions. If the API server does not have the group, no kinds are returned.
    ///
    /// # Errors
    ///
    /// Returns an error when the API server does not answer.
    pub async fn discover(
        &self,
        group: &str,
        versions: &[&str],
        plurals: &[&str],
    ) -> Result<Vec<ServedKind>, ResourceError> {
        let mut served_kinds: Vec<ServedKind> = Vec::new();
        for version in versions {
            let is_wanted = |plural: &str| {
                (plurals.contains(&plural) || plurals.contains(&"*"))
                    && !served_kinds.iter().any(|kind| kind.resource.plural == plural)
            };
            match kinds_of_version(self.connection(), group, version, is_wanted).await {
                Ok(kinds) => served_kinds.extend(kinds),
                Err(RequestError::NotFound(_)) => continue,
                Err(failure) => {
                    let advice = "allow this program's account to read the API server's discovery";
                    return Err(ResourceError::from_request_error(failure, advice));
                }
            }
            let is_found = |plural: &&str| match *plural {
                "*" => !served_kinds.is_empty(),
                plural => served_kinds.iter().any(|kind| kind.resource.plural == plural),
            };
            if plurals.iter().all(is_found) {
                break;
            }
        }
        Ok(served_kinds)
    }

    /// Starts to watch the resources of a kind. Returns the client that reads them.
    pub fn resources_of(&self, kind: &ServedKind) -> WatchedResources {
        WatchedResources::new(self.connection().clone(), kind, None, self.runtime())
    }
}

async fn kinds_of_version(
    connection: &Connection,
    group: &str,
    version: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<ServedKind>, RequestError> {
    let api_version = format!("{group}/{version}");
    let until = Instant::now() + REQUEST_LIMIT;
    let client = connection.client();
    let listing = client.list_api_group_resources(&api_version);
    let resource_list = connection.ask(Verb::Discover, until, listing).await?;
    let can_follow = |verbs: &[String]| {
        ["list", "watch"]
            .iter()
            .all(|verb| verbs.iter().any(|supported_verb| supported_verb == verb))
    };
    // Skips subresources such as `pods/status`, whose names contain a slash.
    let wanted_resources = resource_list
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/') && can_follow(&resource.verbs) && is_wanted(&resource.name));
    let kinds = wanted_resources.map(|resource| ServedKind {
        is_namespaced: resource.namespaced,
        resource: ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(group, version, &resource.kind),
            &resource.name,
        ),
    });
    Ok(kinds.collect())
}
