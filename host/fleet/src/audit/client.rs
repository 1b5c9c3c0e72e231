//! Finds the resources of a cluster by discovery, and lists their objects page by page.

use std::time::Duration;

use admittance::Table;
use admittance_admission::{GroupVersionKind, GroupVersionResource, Object, ObjectError, Operation, Outline, Request};
use admittance_cluster::{AnswerError, ApiServerAnswer, Cluster};
use bytes::Bytes;
use futures_util::Stream;
use http::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::{
    sync::Mutex,
    time::{Interval, MissedTickBehavior},
};

use super::reports::ReportApi;

pub(super) const OPERATIONS: [Operation; 2] = [Operation::Create, Operation::Update];

/// A kind of objects that can be audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedResource {
    pub kind: GroupVersionKind,
    pub resource: GroupVersionResource,
    pub is_namespaced: bool,
}

impl AuditedResource {
    /// Returns the name that kubectl uses for the resource, such as `pods` or `deployments.apps`.
    pub fn name(&self) -> String {
        let GroupVersionResource { group, resource, .. } = &self.resource;
        match group.as_str() {
            "" => resource.clone(),
            group => format!("{resource}.{group}"),
        }
    }

    /// Returns the group and version of the resource, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        let GroupVersionKind { group, version, .. } = &self.kind;
        match group.as_str() {
            "" => version.clone(),
            group => format!("{group}/{version}"),
        }
    }

    /// Returns whether `name` denotes this resource: `pods`, `deployments` or `deployments.apps`.
    pub fn has_name(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(&self.resource.resource) || name.eq_ignore_ascii_case(&self.name())
    }

    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let prefix = match self.resource.group.as_str() {
            "" => "api",
            _ => "apis",
        };
        let (version, plural) = (self.api_version(), &self.resource.resource);
        match namespace {
            Some(namespace) => format!("/{prefix}/{version}/namespaces/{namespace}/{plural}"),
            None => format!("/{prefix}/{version}/{plural}"),
        }
    }

    /// Parses an object of this resource. Adds `apiVersion` and `kind`, which items in lists of built-in kinds lack.
    pub(super) fn parse_object(&self, item: &RawValue) -> Result<Object, ObjectError> {
        let object = Object::parse(item.get())?;
        if object.head().kind.is_some() {
            return Ok(object);
        }
        let (api_version, kind) = (self.api_version(), &self.kind.kind);
        let rest = item.get().trim_start().strip_prefix('{').unwrap_or_default();
        let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
        Object::parse(format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}"{comma}{rest}"#
        ))
    }

    pub fn request(&self, object: Object) -> Request {
        Request::new(Operation::Create, self.kind.clone(), self.resource.clone()).with_object(object)
    }

    fn may_match(&self, tables: &[&Table]) -> bool {
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
    groups: Vec<DiscoveredGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveredGroup {
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

/// Sends the requests of an audit to the API server at a limited rate.
#[derive(Debug)]
pub struct AuditClient {
    cluster: Cluster,
    pace: Mutex<Interval>,
}

/// The resources that discovery found.
#[derive(Debug)]
pub struct DiscoveredResources {
    pub resources: Vec<AuditedResource>,
    /// The API groups whose resources could not be discovered, each with the error.
    pub undiscovered_groups: Vec<(String, AnswerError)>,
    pub report_api: Option<ReportApi>,
}

impl AuditClient {
    pub fn new(cluster: Cluster, per_second: u32) -> Self {
        let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            cluster,
            pace: Mutex::new(pace),
        }
    }

    async fn wait_for_turn(&self) {
        self.pace.lock().await.tick().await;
    }

    pub(super) async fn get(&self, path: &str) -> Result<ApiServerAnswer, AnswerError> {
        self.send(Method::GET, path, None).await
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<ApiServerAnswer, AnswerError> {
        self.wait_for_turn().await;
        self.cluster.send(method, path, body).await
    }

    pub(super) async fn lines(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<String, AnswerError>> + Send + Unpin + use<>, AnswerError> {
        self.wait_for_turn().await;
        self.cluster.lines(path).await
    }

    async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, AnswerError> {
        let answer = self.get(path).await?;
        if !answer.status.is_success() {
            return Err(answer.error(path));
        }
        serde_json::from_slice(&answer.body).map_err(|error| content_error(path, &error))
    }

    /// Discovers the resources that may match a chain. A resource that is served in several versions is returned once,
    /// in its group's preferred version if possible.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not list its groups. If the resources of one group cannot be discovered,
    /// the group is in `undiscovered_groups`.
    pub async fn discover(&self, tables: &[&Table]) -> Result<DiscoveredResources, AnswerError> {
        let core: ResourceList = self.get_json("/api/v1").await?;
        let mut discovered = DiscoveredResources {
            resources: auditable_resources(core, tables),
            undiscovered_groups: Vec::new(),
            report_api: None,
        };
        let Groups { groups } = self.get_json("/apis").await?;
        for DiscoveredGroup {
            mut versions,
            preferred_version,
        } in groups
        {
            versions.sort_by_key(|version| Some(version) != preferred_version.as_ref());
            let mut group_resources: Vec<AuditedResource> = Vec::new();
            for GroupVersion { group_version } in versions {
                let reports = ReportApi::from_api_version(&group_version);
                // The resources of this group may be served by another program, such as a metrics server. If that
                // program is down, only this group is missing.
                let list_result: Result<ResourceList, _> = self.get_json(&format!("/apis/{group_version}")).await;
                let resource_list = match list_result {
                    Ok(list) => list,
                    Err(error) => {
                        discovered.report_api = reports.max(discovered.report_api);
                        discovered.undiscovered_groups.push((group_version, error));
                        continue;
                    }
                };
                discovered.report_api = reports
                    .filter(|api| resource_list.has_kind_of(*api))
                    .max(discovered.report_api);
                for resource in auditable_resources(resource_list, tables) {
                    let is_duplicate = |earlier_resource: &AuditedResource| {
                        earlier_resource.resource.resource == resource.resource.resource
                    };
                    if !group_resources.iter().any(is_duplicate) {
                        group_resources.push(resource);
                    }
                }
            }
            discovered.resources.extend(group_resources);
        }
        Ok(discovered)
    }

    /// Returns the preferred API of reports among those that the API server serves now; `None` if it serves none.
    pub(super) async fn preferred_report_api(&self) -> Result<Option<ReportApi>, AnswerError> {
        let mut preferred_api = None;
        for api in ReportApi::ALL {
            let path = format!("/apis/{}", api.api_version());
            let Some(body) = self.get(&path).await?.body_unless_missing(&path)? else {
                continue;
            };
            let resource_list: ResourceList =
                serde_json::from_slice(&body).map_err(|error| content_error(&path, &error))?;
            preferred_api = preferred_api.max(Some(api).filter(|api| resource_list.has_kind_of(*api)));
        }
        Ok(preferred_api)
    }
}

impl ResourceList {
    /// Returns whether a list of resources contains the reports of this API.
    fn has_kind_of(&self, api: ReportApi) -> bool {
        let mut resources = self.resources.iter();
        resources.any(|resource| resource.name == api.plural(true))
    }
}

pub(super) fn content_error(path: &str, reason: &impl ToString) -> AnswerError {
    AnswerError::Content {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn auditable_resources(list: ResourceList, tables: &[&Table]) -> Vec<AuditedResource> {
    let GroupVersionKind { group, version, .. } =
        GroupVersionKind::from_api_version(&list.group_version, String::new());
    let resources = list.resources.into_iter();
    let listable = resources.filter(|resource| resource.verbs.iter().any(|verb| verb == "list"));
    let resources = listable.map(
        |ApiResource {
             name, kind, namespaced, ..
         }| AuditedResource {
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
    resources.filter(|resource| resource.may_match(tables)).collect()
}

#[derive(Deserialize)]
struct ObjectPage<'a> {
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
    resource_version: String,
}

/// Lists the objects of one resource, a page at a time.
#[derive(Debug)]
pub struct Pages {
    path: String,
    resource: AuditedResource,
    page_size: u32,
    /// The continue token of the next page; `None` after the last page.
    next_token: Option<String>,
    resource_version: Option<String>,
}

impl Pages {
    pub fn new(resource: &AuditedResource, namespace: Option<&str>, size: u32) -> Self {
        Self {
            path: resource.path(namespace),
            resource: resource.clone(),
            page_size: size,
            next_token: Some(String::new()),
            resource_version: None,
        }
    }

    /// Returns the resource version of the list. A watch from this version delivers every change after the list.
    pub(super) fn into_version(self) -> Option<String> {
        self.resource_version.filter(|version| !version.is_empty())
    }

    /// Reads the next page; `None` after the last page.
    pub async fn next_page(&mut self, client: &AuditClient) -> Result<Option<Vec<Object>>, AnswerError> {
        let Some(token) = self.next_token.take() else {
            return Ok(None);
        };
        let answer = self.request_page(&token, client).await?;
        let Some(body) = answer.body_unless_missing(&self.path)? else {
            return Ok(None);
        };
        let page: ObjectPage<'_> = serde_json::from_slice(&body).map_err(|error| content_error(&self.path, &error))?;
        self.next_token = Some(page.metadata.next).filter(|token| !token.is_empty());
        self.resource_version.get_or_insert(page.metadata.resource_version);
        let items = page.items.unwrap_or_default().into_iter();
        let objects: Result<_, _> = items.map(|item| self.resource.parse_object(item)).collect();
        objects.map(Some).map_err(|error| content_error(&self.path, &error))
    }

    /// Requests a page of the list. If the page is too large, requests it again with fewer objects. If the token has
    /// expired (status 410), continues with a new token from the API server. The rest of the list then contains the
    /// objects as they are now, and not as they were when the list began.
    async fn request_page(&mut self, token: &str, client: &AuditClient) -> Result<ApiServerAnswer, AnswerError> {
        let answer = loop {
            match client.get(&self.query(token)).await {
                Err(AnswerError::TooLarge { .. }) if self.page_size > 1 => self.page_size /= 2,
                answer => break answer?,
            }
        };
        if answer.status != StatusCode::GONE || token.is_empty() {
            return Ok(answer);
        }
        let token = renewed_token(&answer.body).ok_or_else(|| answer.error(&self.path))?;
        client.get(&self.query(&token)).await
    }

    fn query(&self, token: &str) -> String {
        format!("{}?{}", self.path, page_query(self.page_size, token))
    }
}

pub(super) fn page_query(size: u32, token: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &size.to_string());
    if !token.is_empty() {
        query.append_pair("continue", token);
    }
    query.finish()
}

/// The token of a list may expire. Then the API server answers with status 410, and its error may contain a new token,
/// with which the list can continue. Returns that new token.
fn renewed_token(body: &Bytes) -> Option<String> {
    let page: ObjectPage<'_> = serde_json::from_slice(body).ok()?;
    Some(page.metadata.next).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use admittance_cluster::{ClusterConfig, ClusterSource};
    use tokio::time::{Instant, advance};

    use super::*;

    async fn client(per_second: u32) -> AuditClient {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
                    clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                    contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n";
        std::fs::write(&path, text).unwrap();
        let source = ClusterSource::Kubeconfig {
            path: Some(path),
            context: None,
        };
        let cluster = Cluster::connect(&ClusterConfig { source }).await.unwrap();
        AuditClient::new(cluster, per_second)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_holds_after_a_pause() {
        let client = client(20).await;
        let start = Instant::now();
        for number in 0..=20 {
            client.wait_for_turn().await;
            assert_eq!(start.elapsed(), Duration::from_millis(50) * number);
        }
        // For 10 s no request is sent. The requests after this pause must still be sent one by one, and not in a burst.
        advance(Duration::from_secs(10)).await;
        let burst_start = Instant::now();
        tokio::join!(client.wait_for_turn(), client.wait_for_turn(), client.wait_for_turn());
        assert_eq!(burst_start.elapsed(), Duration::from_millis(100));
    }
}
