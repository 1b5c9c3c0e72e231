//! Resources that are read and written without a cache.

mod changes;
mod edit;

use std::{path::PathBuf, sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, PartialObjectMeta},
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use self::changes::{ContentVersion, LastResourceRead, content_version};
pub use self::{changes::next_change, edit::ResourceEdit};
use crate::{
    cache::Key,
    connection::Connection,
    discovery::ServedKind,
    forward::create_namespace,
    item::CachedObject,
    metrics::Verb,
    request_error::{RequestError, permission},
    watch::{WatchSelection, WatchView, spawn},
};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const MANAGER: &str = "admittance";

/// A kind of resources, such as `AdmissionWebhookConfiguration` in version `v2` of the group `bkbcs.tencent.com`, with
/// the plural `admissionwebhookconfigurations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub is_namespaced: bool,
}

/// A resource in its current version, without `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// `metadata.namespace`; empty for a resource of the whole cluster.
    pub namespace: String,
    pub name: String,
    /// All fields of the resource, including `metadata.resourceVersion`. If it was read in a list, `apiVersion` and
    /// `kind` are missing.
    pub object: Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Refused(String),
    /// The API server is unreachable or does not answer. It is unknown whether a write took effect.
    #[error("{0}")]
    Unavailable(String),
    /// An [edit](WatchedResources::edit) was sent, and it is unknown whether it has taken effect.
    #[error("{reason}; it is unknown whether {path} was written: check it before you retry", path = path.display())]
    Unknown { reason: String, path: PathBuf },
}

impl ResourceError {
    /// Returns whether the request that failed may succeed if it is sent again later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unknown { .. })
    }
}

/// The resources of one kind, in all namespaces. Cheap to clone; dropping the last clone ends the watch on them.
///
/// Every read is a request to the API server. The watch only signals changes outside the status of a resource.
#[derive(Clone, Debug)]
pub struct WatchedResources(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connection: Connection,
    resource: ApiResource,
    is_namespaced: bool,
    view: Arc<WatchView<ContentVersion>>,
    last_read: Mutex<Option<LastResourceRead>>,
    _task: AbortOnDropHandle<()>,
}

impl ResourceKind {
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub(crate) fn served_kind(&self) -> ServedKind {
        ServedKind {
            resource: ApiResource {
                group: self.group.to_owned(),
                version: self.version.to_owned(),
                api_version: self.api_version(),
                kind: self.kind.to_owned(),
                plural: self.plural.to_owned(),
            },
            is_namespaced: self.is_namespaced,
        }
    }
}

impl Resource {
    pub fn metadata(&self, field: &str) -> Option<&str> {
        self.object.get("metadata")?.get(field)?.as_str()
    }

    fn from_item(item: CachedObject) -> Self {
        let Key { namespace, name } = item.key();
        Self {
            namespace,
            name,
            object: item.into_object(),
        }
    }

    fn to_item(&self) -> Result<CachedObject, ResourceError> {
        serde_json::from_value(Value::Object(self.object.clone()))
            .map_err(|error| ResourceError::Refused(error.to_string()))
    }
}

impl WatchedResources {
    /// Watches all resources of a kind, or with `only` the one of this namespace and name.
    pub(crate) fn new(connection: Connection, kind: &ServedKind, only: Option<(&str, &str)>, runtime: &Handle) -> Self {
        let resource = kind.resource.clone();
        let view = Arc::new(WatchView::new(resource.plural.clone()));
        let entry = |object: PartialObjectMeta<CachedObject>| {
            let version = content_version(serde_json::to_value(&object.metadata).ok().as_ref());
            let metadata = object.metadata;
            let name = metadata.name.unwrap_or_default();
            (Key::new(metadata.namespace.as_deref(), &name), version)
        };
        let (api_resource, namespace) = (resource.clone(), only.map_or("", |(namespace, _)| namespace).to_owned());
        let api = move |client: Client| match &*namespace {
            "" => Api::all_with(client, &api_resource),
            namespace => Api::namespaced_with(client, namespace, &api_resource),
        };
        let selection = only.map_or(WatchSelection::All, |(_, name)| WatchSelection::Named(name.to_owned()));
        let permission = permission("`list` and `watch`", &resource.plural, &resource.group);
        let task = spawn(runtime, &connection, api, selection, &view, entry, permission);
        Self(Arc::new(Inner {
            connection,
            resource,
            is_namespaced: kind.is_namespaced,
            view,
            last_read: Mutex::new(None),
            _task: task,
        }))
    }

    /// Returns the scheme, host and port of the API server.
    pub fn server(&self) -> &str {
        self.0.connection.url()
    }

    pub async fn list(&self) -> Result<Vec<Resource>, ResourceError> {
        let api = Api::<CachedObject>::all_with(self.0.connection.client(), &self.0.resource);
        let until = Instant::now() + REQUEST_LIMIT;
        let listing = self.0.connection.list(&api, ListParams::default(), false, until).await;
        let (items, _) = listing.map_err(|failure| match failure {
            RequestError::NotFound(_) => ResourceError::NotFound(self.no_such_kind()),
            other => self.error("list", other),
        })?;
        Ok(items.into_iter().map(Resource::from_item).collect())
    }

    /// Returns the resource of this name, if there is one.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Option<Resource>, ResourceError> {
        let answer = self.ask(Verb::Get, self.api(namespace).get(name)).await;
        match answer {
            Ok(item) => Ok(Some(Resource::from_item(item))),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(failure) => Err(self.error("get", failure)),
        }
    }

    /// Creates a resource of this name; `set_fields` sets its other fields. If its namespace is missing, creates it
    /// first.
    ///
    /// # Errors
    ///
    /// Returns [`ResourceError::Conflict`] when the resource already exists; other errors when the API server refuses
    /// or does not answer.
    pub async fn create(
        &self,
        namespace: &str,
        name: &str,
        set_fields: impl Fn(&mut Map<String, Value>),
    ) -> Result<Resource, ResourceError> {
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), self.0.resource.api_version.clone().into());
        object.insert("kind".to_owned(), self.0.resource.kind.clone().into());
        let metadata = if self.0.is_namespaced {
            json!({"name": name, "namespace": namespace})
        } else {
            json!({"name": name})
        };
        object.insert("metadata".to_owned(), metadata);
        set_fields(&mut object);
        let resource = Resource {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            object,
        };
        let item = resource.to_item()?;
        let (api, params) = (self.api(namespace), post_params());
        let mut answer = self.ask(Verb::Create, api.create(&params, &item)).await;
        if self.0.is_namespaced
            && let Err(RequestError::NotFound(_)) = &answer
        {
            // The status 404 can mean that the namespace does not exist. So the namespace is created, and the request
            // is sent again. If the API server does not know the kind, the second request fails too.
            self.create_namespace(namespace).await?;
            answer = self.ask(Verb::Create, api.create(&params, &item)).await;
        }
        match answer {
            Ok(item) => Ok(Resource::from_item(item)),
            Err(RequestError::NotFound(_)) => Err(ResourceError::NotFound(self.no_such_kind())),
            Err(failure) => Err(self.error("create", failure)),
        }
    }

    async fn create_namespace(&self, name: &str) -> Result<(), ResourceError> {
        let until = Instant::now() + REQUEST_LIMIT;
        match create_namespace(&self.0.connection, name, &post_params(), until).await {
            Ok(()) => Ok(()),
            Err(RequestError::Forbidden(words)) => Err(ResourceError::Refused(format!(
                "the namespace `{name}` does not exist and cannot be created: {words}; create it with \
                 `kubectl create namespace {name}`"
            ))),
            Err(failure) => Err(self.error("create", failure)),
        }
    }

    /// Replaces the resource if it still has the version that was read.
    ///
    /// # Errors
    ///
    /// Returns [`ResourceError::Conflict`] when the resource has changed since it was read; other errors when the API
    /// server refuses or does not answer.
    pub async fn replace(&self, resource: &Resource) -> Result<Resource, ResourceError> {
        let item = resource.to_item()?;
        let (api, params) = (self.api(&resource.namespace), post_params());
        self.ask(Verb::Replace, api.replace(&resource.name, &params, &item))
            .await
            .map(Resource::from_item)
            .map_err(|failure| self.error("update", failure))
    }

    /// Replaces `old_resource`, or creates a resource of this name if `old_resource` is `None`. `set_fields` sets the
    /// resource's fields.
    pub async fn put(
        &self,
        namespace: &str,
        name: &str,
        old_resource: Option<Resource>,
        set_fields: impl Fn(&mut Map<String, Value>),
    ) -> Result<Resource, ResourceError> {
        match old_resource {
            None => self.create(namespace, name, set_fields).await,
            Some(mut resource) => {
                set_fields(&mut resource.object);
                self.replace(&resource).await
            }
        }
    }

    /// Sets fields in the status of a resource. Removes fields that this program set earlier and that are not in this
    /// status. Fields of other programs remain.
    ///
    /// # Errors
    ///
    /// Returns [`ResourceError::NotFound`] when the resource does not exist; other errors when its kind has no status,
    /// or the API server refuses or does not answer.
    pub async fn apply_status(&self, namespace: &str, name: &str, status: &Value) -> Result<(), ResourceError> {
        let patch = json!({
            "apiVersion": self.0.resource.api_version,
            "kind": self.0.resource.kind,
            "metadata": {"name": name},
            "status": status,
        });
        let params = PatchParams::apply(MANAGER).force();
        let (api, patch) = (self.api(namespace), Patch::Apply(patch));
        let answer = self.ask(Verb::Apply, api.patch_status(name, &params, &patch)).await;
        match answer {
            Ok(_) => Ok(()),
            Err(RequestError::NotFound(_)) if self.get(namespace, name).await?.is_some() => {
                let plural = format!("{}/status", self.0.resource.plural);
                Err(ResourceError::Refused(format!(
                    "the API server has no `{plural}`: the CustomResourceDefinition is that of an earlier version"
                )))
            }
            Err(failure) => {
                let ApiResource { plural, group, .. } = &self.0.resource;
                let needed_permission = permission("`patch`", &format!("{plural}/status"), group);
                Err(ResourceError::from_request_error(failure, &needed_permission))
            }
        }
    }

    /// Deletes the resource if it still has the version that was read.
    ///
    /// # Errors
    ///
    /// Returns [`ResourceError::Conflict`] when the resource has changed since it was read; other errors when the API
    /// server refuses or does not answer.
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

    fn api(&self, namespace: &str) -> Api<CachedObject> {
        let client = self.0.connection.client();
        if self.0.is_namespaced {
            Api::namespaced_with(client, namespace, &self.0.resource)
        } else {
            Api::all_with(client, &self.0.resource)
        }
    }

    async fn ask<T>(&self, verb: Verb, request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
        let until = Instant::now() + REQUEST_LIMIT;
        self.0.connection.ask(verb, until, request).await
    }

    fn no_such_kind(&self) -> String {
        let ApiResource {
            plural, group, version, ..
        } = &self.0.resource;
        format!(
            "the API server has no `{plural}.{group}` of version {version}; install their \
             CustomResourceDefinition"
        )
    }

    fn error(&self, verb: &str, failure: RequestError) -> ResourceError {
        let ApiResource { plural, group, .. } = &self.0.resource;
        ResourceError::from_request_error(failure, &permission(&format!("`{verb}`"), plural, group))
    }
}

impl ResourceError {
    pub(crate) fn from_request_error(failure: RequestError, needed_permission: &str) -> Self {
        let message = failure.advice(needed_permission);
        match failure {
            RequestError::NotFound(_) => Self::NotFound(message),
            RequestError::Conflict(_) => Self::Conflict(message),
            RequestError::Forbidden(_) | RequestError::Refused(_) => Self::Refused(message),
            RequestError::Unavailable(_) | RequestError::Timeout => Self::Unavailable(message),
        }
    }
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}
