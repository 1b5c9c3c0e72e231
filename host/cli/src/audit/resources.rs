//! The resources of a cluster, found by discovery and listed page by page.

use std::time::Duration;

use admittance::Table;
use admittance_admission::{GroupVersionKind, GroupVersionResource, Object, Operation, Outline};
use admittance_cluster::Cluster;
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::time::{Interval, MissedTickBehavior};

use crate::cluster::{self, Answer};

/// The operations as which objects are audited.
pub(super) const OPERATIONS: [Operation; 2] = [Operation::Create, Operation::Update];

/// A kind of objects that some chain may be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) kind: GroupVersionKind,
    pub(super) resource: GroupVersionResource,
    pub(super) is_namespaced: bool,
}

impl Resource {
    /// As kubectl names it: `pods`, `deployments.apps`.
    pub(super) fn name(&self) -> String {
        let GroupVersionResource { group, resource, .. } = &self.resource;
        match group.as_str() {
            "" => resource.clone(),
            group => format!("{resource}.{group}"),
        }
    }

    /// `v1`, `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        let GroupVersionKind { group, version, .. } = &self.kind;
        match group.as_str() {
            "" => version.clone(),
            group => format!("{group}/{version}"),
        }
    }

    /// Whether a name of the command line is for it: `pods`, `deployments` or `deployments.apps`.
    pub(super) fn is_called(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(&self.resource.resource) || name.eq_ignore_ascii_case(&self.name())
    }

    fn is_for(&self, tables: &[&Table]) -> bool {
        OPERATIONS.into_iter().any(|operation| {
            let outline = Outline {
                operation,
                resource: Some(&self.resource),
                kind: Some(&self.kind.kind),
            };
            tables.iter().any(|table| table.may_match(&outline))
        })
    }
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList {
    group_version: String,
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// The requests of an audit to the API server, at most so many per second.
pub(super) struct Reader<'a> {
    cluster: &'a Cluster,
    pace: Interval,
}

impl<'a> Reader<'a> {
    pub(super) fn new(cluster: &'a Cluster, per_second: u32) -> Self {
        let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { cluster, pace }
    }

    async fn get(&mut self, path: &str) -> crate::Result<Answer> {
        self.pace.tick().await;
        cluster::get(self.cluster, path).await
    }

    async fn get_as<T: DeserializeOwned>(&mut self, path: &str) -> crate::Result<T> {
        let answer = self.get(path).await?;
        if !answer.status.is_success() {
            return Err(answer.error(path));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| format!("{path}: the API server answered something else: {error}").into())
    }

    /// The resources that a chain of these tables may be for, each in one version: the preferred one of its group if
    /// a chain is for it.
    pub(super) async fn discover(&mut self, tables: &[&Table]) -> crate::Result<Vec<Resource>> {
        let core: ResourceList = self.get_as("/api/v1").await?;
        let mut found = wanted(core, tables);
        let Groups { groups } = self.get_as("/apis").await?;
        for Group {
            mut versions,
            preferred_version,
        } in groups
        {
            versions.sort_by_key(|version| Some(version) != preferred_version.as_ref());
            let mut of_group: Vec<Resource> = Vec::new();
            for GroupVersion { group_version } in versions {
                // A group whose own API server is down does not prevent the audit of the others.
                let listed: crate::Result<ResourceList> =
                    self.get_as(&format!("/apis/{group_version}")).await;
                let listed = match listed {
                    Ok(listed) => listed,
                    Err(error) => {
                        tracing::warn!("{group_version} is not audited: {error}");
                        continue;
                    }
                };
                for resource in wanted(listed, tables) {
                    let same = |known: &Resource| known.resource.resource == resource.resource.resource;
                    if !of_group.iter().any(same) {
                        of_group.push(resource);
                    }
                }
            }
            found.extend(of_group);
        }
        Ok(found)
    }
}

/// The resources of a list that can be listed, and that a chain may be for.
fn wanted(list: ResourceList, tables: &[&Table]) -> Vec<Resource> {
    let GroupVersionKind { group, version, .. } =
        GroupVersionKind::from_api_version(&list.group_version, String::new());
    let resources = list.resources.into_iter();
    let listable = resources.filter(|resource| resource.verbs.iter().any(|verb| verb == "list"));
    let resources = listable.map(
        |ApiResource {
             name,
             kind,
             namespaced,
             ..
         }| Resource {
            kind: GroupVersionKind {
                group: group.clone(),
                version: version.clone(),
                kind,
            },
            resource: GroupVersionResource {
                group: group.clone(),
                version: version.clone(),
                resource: name,
            },
            is_namespaced: namespaced,
        },
    );
    resources.filter(|resource| resource.is_for(tables)).collect()
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: String,
}

/// The objects of one resource, a page at a time.
pub(super) struct Pages {
    path: String,
    resource: Resource,
    size: u32,
    /// The token of the next page; `None` after the last one.
    next: Option<String>,
}

impl Pages {
    /// Pages of at most `size` objects, of one namespace or of all.
    pub(super) fn of(resource: &Resource, namespace: Option<&str>, size: u32) -> Self {
        let GroupVersionResource {
            group,
            resource: plural,
            ..
        } = &resource.resource;
        let prefix = match group.as_str() {
            "" => format!("/api/{}", resource.api_version()),
            _ => format!("/apis/{}", resource.api_version()),
        };
        let path = match namespace {
            Some(namespace) => format!("{prefix}/namespaces/{namespace}/{plural}"),
            None => format!("{prefix}/{plural}"),
        };
        Self {
            path,
            resource: resource.clone(),
            size,
            next: Some(String::new()),
        }
    }

    /// The next page; `None` after the last one.
    pub(super) async fn next(&mut self, reader: &mut Reader<'_>) -> crate::Result<Option<Vec<Object>>> {
        let Some(token) = self.next.take() else {
            return Ok(None);
        };
        let answer = self.page(&token, reader).await?;
        let Some(body) = answer.found(&self.path)? else {
            // The resource was removed in the meantime.
            return Ok(None);
        };
        let wrong = |error| format!("{}: the API server did not answer a list: {error}", self.path);
        let page: Page<'_> = serde_json::from_slice(&body).map_err(wrong)?;
        self.next = Some(page.metadata.next).filter(|token| !token.is_empty());
        let items = page.items.unwrap_or_default();
        items
            .into_iter()
            .map(|item| self.object(item))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// A page. If the list has become too old to be continued as it was, it is continued as it is now.
    async fn page(&self, token: &str, reader: &mut Reader<'_>) -> crate::Result<Answer> {
        let answer = reader.get(&self.query(token)).await?;
        if answer.status != StatusCode::GONE || token.is_empty() {
            return Ok(answer);
        }
        let token = token_of(&answer.body).ok_or_else(|| answer.error(&self.path))?;
        reader.get(&self.query(&token)).await
    }

    fn query(&self, token: &str) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &self.size.to_string());
        if !token.is_empty() {
            query.append_pair("continue", token);
        }
        format!("{}?{}", self.path, query.finish())
    }

    /// The items of built-in kinds do not say what they are.
    fn object(&self, item: &RawValue) -> crate::Result<Object> {
        let wrong = |error| format!("{}: an item is not an object: {error}", self.path);
        let object = Object::parse(item.get()).map_err(wrong)?;
        if object.head().kind.is_some() {
            return Ok(object);
        }
        let (api_version, kind) = (self.resource.api_version(), &self.resource.kind.kind);
        let rest = item.get().trim_start().strip_prefix('{').unwrap_or_default();
        let comma = if rest.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        let text = format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}"{comma}{rest}"#);
        Ok(Object::parse(text).map_err(wrong)?)
    }
}

/// With 410, the API server names a token that continues the list in its present state.
fn token_of(body: &Bytes) -> Option<String> {
    let page: Page<'_> = serde_json::from_slice(body).ok()?;
    Some(page.metadata.next).filter(|token| !token.is_empty())
}
