//! Resources that are read and written without a cache.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    core::{ApiResource, PartialObjectMeta},
};
use serde_json::{Map, Value, json};
use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::Key,
    connection::Connection,
    forward::create_namespace,
    item::Item,
    metrics::Verb,
    request_error::{RequestError, permission},
    watch::{View, follow},
};

/// The timeout of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// The field manager of writes.
const MANAGER: &str = "admittance";

/// A namespaced kind, as named in the API server's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// `bkbcs.tencent.com`.
    pub group: &'static str,
    /// `v2`.
    pub version: &'static str,
    /// `AdmissionWebhookConfiguration`.
    pub kind: &'static str,
    /// `admissionwebhookconfigurations`.
    pub plural: &'static str,
}

/// A resource as the API server has it, without `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// All of it, `metadata.resourceVersion` too. The items of a list have no `apiVersion` and `kind`.
    pub object: Map<String, Value>,
}

/// Why resources cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Refused(String),
    /// The API server is unreachable or does not answer. A write may or may not have taken effect.
    #[error("{0}")]
    Unavailable(String),
}

/// The resources of one kind in all namespaces. Cheap to clone; dropping the last clone ends its watch.
///
/// Every read is a request to the API server. The watch only signals changes.
#[derive(Clone, Debug)]
pub struct Resources(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connection: Connection,
    resource: ApiResource,
    view: Arc<View<()>>,
    _task: AbortOnDropHandle<()>,
}

impl ResourceKind {
    fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: format!("{}/{}", self.group, self.version),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}

impl Resource {
    /// A field of its metadata.
    pub fn metadata(&self, field: &str) -> Option<&str> {
        self.object.get("metadata")?.get(field)?.as_str()
    }

    fn of(item: Item) -> Self {
        let Key { namespace, name } = item.key();
        Self {
            namespace,
            name,
            object: item.into_object(),
        }
    }

    fn item(&self) -> Result<Item, ResourceError> {
        serde_json::from_value(Value::Object(self.object.clone()))
            .map_err(|error| ResourceError::Refused(error.to_string()))
    }
}

impl Resources {
    pub(crate) fn new(connection: Connection, kind: &ResourceKind, runtime: &Handle) -> Self {
        let resource = kind.resource();
        let view = Arc::new(View::new(resource.plural.clone()));
        view.health.starting();
        let watched = (connection.clone(), resource.clone(), view.clone());
        let task = runtime.spawn(async move {
            let (connection, resource, view) = watched;
            let permission = permission("`list` and `watch`", &resource.plural, &resource.group);
            // Only namespace and name of watched resources are kept.
            let entry = |found: PartialObjectMeta<Item>| {
                let metadata = found.metadata;
                let name = metadata.name.unwrap_or_default();
                (Key::new(metadata.namespace.as_deref(), &name), ())
            };
            let api = |client: Client| Api::all_with(client, &resource);
            follow(&connection, api, &view, entry, &permission).await;
        });
        Self(Arc::new(Inner {
            connection,
            resource,
            view,
            _task: AbortOnDropHandle::new(task),
        }))
    }

    /// The API server: scheme, host and port.
    pub fn server(&self) -> &str {
        self.0.connection.url()
    }

    /// A counter that grows with every watched change, and whenever the watch goes down or up.
    pub fn changes(&self) -> u64 {
        *self.0.view.health.changes().borrow()
    }

    /// Waits until [`changes`](Self::changes) differs from this number.
    pub async fn changed_since(&self, changes: u64) {
        let mut receiver = self.0.view.health.changes();
        // The sender lives as long as this.
        let _ = receiver.wait_for(|number| *number != changes).await;
    }

    /// Whether the watch is up; otherwise changes are not signalled.
    pub fn is_watched(&self) -> bool {
        self.0.view.health.is_watching()
    }

    /// All of them, in all namespaces.
    ///
    /// # Errors
    ///
    /// When they cannot all be listed.
    pub async fn list(&self) -> Result<Vec<Resource>, ResourceError> {
        let api = Api::<Item>::all_with(self.0.connection.client(), &self.0.resource);
        let until = Instant::now() + REQUEST_LIMIT;
        let found = self
            .0
            .connection
            .list(&api, ListParams::default(), false, until)
            .await;
        let (items, _) = found.map_err(|failure| match failure {
            RequestError::NotFound(_) => ResourceError::NotFound(self.no_such_kind()),
            other => self.error("list", other),
        })?;
        Ok(items.into_iter().map(Resource::of).collect())
    }

    /// The resource of this name, if it exists.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Option<Resource>, ResourceError> {
        let answer = self.ask(Verb::Get, self.api(namespace).get(name)).await;
        match answer {
            Ok(item) => Ok(Some(Resource::of(item))),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(failure) => Err(self.error("get", failure)),
        }
    }

    /// Creates a resource of this name with these fields in addition to its metadata. Its namespace is
    /// created too, if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ResourceError::Conflict`] when it already exists; other errors when the API server refuses or does
    /// not answer.
    pub async fn create(
        &self,
        namespace: &str,
        name: &str,
        fields: Map<String, Value>,
    ) -> Result<(), ResourceError> {
        let mut object = Map::new();
        object.insert(
            "apiVersion".to_owned(),
            self.0.resource.api_version.clone().into(),
        );
        object.insert("kind".to_owned(), self.0.resource.kind.clone().into());
        object.insert(
            "metadata".to_owned(),
            json!({"name": name, "namespace": namespace}),
        );
        object.extend(fields);
        let resource = Resource {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            object,
        };
        let item = resource.item()?;
        let (api, params) = (self.api(namespace), written());
        let mut answer = self.ask(Verb::Create, api.create(&params, &item)).await;
        if let Err(RequestError::NotFound(_)) = &answer {
            // The namespace is missing; or the kind is, which the second attempt shows.
            self.create_namespace(namespace).await?;
            answer = self.ask(Verb::Create, api.create(&params, &item)).await;
        }
        match answer {
            Ok(_) => Ok(()),
            Err(RequestError::NotFound(_)) => Err(ResourceError::NotFound(self.no_such_kind())),
            Err(failure) => Err(self.error("create", failure)),
        }
    }

    async fn create_namespace(&self, name: &str) -> Result<(), ResourceError> {
        let until = Instant::now() + REQUEST_LIMIT;
        match create_namespace(&self.0.connection, name, &written(), until).await {
            Ok(()) => Ok(()),
            Err(RequestError::Forbidden(words)) => Err(ResourceError::Refused(format!(
                "the namespace `{name}` does not exist and cannot be created: {words}; create it with \
                 `kubectl create namespace {name}`"
            ))),
            Err(failure) => Err(self.error("create", failure)),
        }
    }

    /// Replaces the resource in the version that was read.
    ///
    /// # Errors
    ///
    /// [`ResourceError::Conflict`] when it was changed since; other errors when the API server refuses or
    /// does not answer.
    pub async fn replace(&self, resource: &Resource) -> Result<(), ResourceError> {
        let item = resource.item()?;
        let (api, params) = (self.api(&resource.namespace), written());
        self.ask(Verb::Replace, api.replace(&resource.name, &params, &item))
            .await
            .map(|_| ())
            .map_err(|failure| self.error("update", failure))
    }

    /// Deletes the resource in the version that was read.
    ///
    /// # Errors
    ///
    /// [`ResourceError::Conflict`] when it was changed since; other errors when the API server refuses or
    /// does not answer.
    pub async fn delete(&self, resource: &Resource) -> Result<(), ResourceError> {
        let version = |field| resource.metadata(field).map(str::to_owned);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: version("resourceVersion"),
                uid: version("uid"),
            }),
            ..DeleteParams::default()
        };
        let api = self.api(&resource.namespace);
        self.ask(Verb::Delete, api.delete(&resource.name, &params))
            .await
            .map(|_| ())
            .map_err(|failure| self.error("delete", failure))
    }

    fn api(&self, namespace: &str) -> Api<Item> {
        Api::namespaced_with(self.0.connection.client(), namespace, &self.0.resource)
    }

    async fn ask<T>(
        &self,
        verb: Verb,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, RequestError> {
        let until = Instant::now() + REQUEST_LIMIT;
        self.0.connection.ask(verb, until, request).await
    }

    fn no_such_kind(&self) -> String {
        let ApiResource {
            plural,
            group,
            version,
            ..
        } = &self.0.resource;
        format!(
            "the API server has no `{plural}.{group}` of version {version}; install their \
             CustomResourceDefinition"
        )
    }

    fn error(&self, verb: &str, failure: RequestError) -> ResourceError {
        let ApiResource { plural, group, .. } = &self.0.resource;
        let message = failure.advice(&permission(&format!("`{verb}`"), plural, group));
        match failure {
            RequestError::NotFound(_) => ResourceError::NotFound(message),
            RequestError::Conflict(_) => ResourceError::Conflict(message),
            RequestError::Forbidden(_) | RequestError::Refused(_) => ResourceError::Refused(message),
            RequestError::Unavailable(_) | RequestError::Timeout => ResourceError::Unavailable(message),
        }
    }
}

fn written() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}
