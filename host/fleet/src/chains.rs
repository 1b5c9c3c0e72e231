//! Stores chains and exceptions as custom resources of a Kubernetes cluster.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use admittance_admission::{Object, is_dns_label, is_dns_subdomain};
use admittance_cluster::{Cluster, Resource, ResourceEdit, ResourceError, ResourceKind, WatchedResources, next_change};
use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, StoreError, definition_name};
use async_trait::async_trait;
use futures_util::future::{join_all, select_all};
use serde_json::{Map, Value};

pub(crate) const CHAIN: ResourceKind = ResourceKind {
    group: "admittance.dev",
    version: "v1alpha1",
    kind: "AdmissionChain",
    plural: "admissionchains",
    is_namespaced: false,
};

const NAMESPACED_CHAIN: ResourceKind = ResourceKind {
    kind: "NamespacedAdmissionChain",
    plural: "namespacedadmissionchains",
    is_namespaced: true,
    ..CHAIN
};

pub(crate) const EXCEPTION: ResourceKind = ResourceKind {
    kind: "AdmissionException",
    plural: "admissionexceptions",
    ..CHAIN
};

pub const RESOURCE_PLURALS: [&str; 3] = [CHAIN.plural, NAMESPACED_CHAIN.plural, EXCEPTION.plural];

pub(crate) const SCHEME: &str = "kubernetes";

/// The fields of a resource's `metadata` that the user wrote. All other fields come from the API server, so they are
/// not part of the definition.
const OWN_METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// The annotation in which kubectl keeps the last applied definition.
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The custom resources `admissionchains`, `namespacedadmissionchains` and `admissionexceptions` of `admittance.dev`.
/// Cheap to clone; the watches end with the last clone.
///
/// Each resource is one definition with the same kind, namespace and name. Every write names the resource's version, so
/// that it fails if another client has written the resource since the read. The store writes one resource at a time,
/// because the API server cannot write several atomically.
#[derive(Clone, Debug)]
pub struct ChainStore(pub(crate) Arc<[StoredKind]>);

#[derive(Debug)]
pub(crate) struct StoredKind {
    pub(crate) resource_kind: ResourceKind,
    pub(crate) resources: WatchedResources,
    /// Whether the API server may lack this kind. A cluster that was set up for an earlier version of this program does
    /// not have kinds that were added later.
    is_optional: bool,
    /// Whether the API server has served this kind before. If so, its absence is an error.
    is_known: AtomicBool,
    change_count: AtomicU64,
}

impl StoredKind {
    /// Lists all resources of this kind. The list is empty if the kind is optional and the API server lacks it.
    pub(crate) async fn list(&self) -> Result<Vec<Resource>, ResourceError> {
        self.empty_if_absent(self.resources.list().await)
    }

    async fn read(&self) -> Result<Vec<Resource>, ResourceError> {
        self.change_count.store(self.resources.changes(), Ordering::Relaxed);
        self.empty_if_absent(self.resources.read().await)
    }

    fn empty_if_absent(&self, result: Result<Vec<Resource>, ResourceError>) -> Result<Vec<Resource>, ResourceError> {
        match result {
            Ok(resources) => {
                self.is_known.store(true, Ordering::Relaxed);
                Ok(resources)
            }
            Err(ResourceError::NotFound(_)) if self.is_absent() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_optional && !self.is_known.load(Ordering::Relaxed)
    }

    async fn wait_until_changed(&self) {
        if self.is_absent() {
            // The API server does not know this kind, so a list of its resources would fail. The watch looks for the
            // kind every minute, and reports when it finds it.
            let change_count = self.change_count.load(Ordering::Relaxed);
            self.resources.changed_since(change_count).await;
        } else {
            self.resources.changed().await;
        }
    }
}

impl ChainStore {
    /// Starts to watch the chains and exceptions of this cluster; does not wait for the API server.
    pub fn new(cluster: &Cluster) -> Self {
        let kind = |kind: ResourceKind, is_optional: bool| StoredKind {
            resources: cluster.resources(&kind),
            resource_kind: kind,
            is_optional,
            is_known: AtomicBool::new(false),
            change_count: AtomicU64::new(0),
        };
        Self([kind(CHAIN, false), kind(NAMESPACED_CHAIN, true), kind(EXCEPTION, true)].into())
    }

    /// Returns the definition that the store would read if `object` were stored; `None` if `object` is not of a kind in
    /// this store.
    pub fn definition_of(&self, object: &Object) -> Option<DefinitionFile> {
        let object = object.value().as_object()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (kind, version) = (text(object.get("kind")?)?, text(object.get("apiVersion")?)?);
        let kind = self
            .0
            .iter()
            .map(|stored_kind| &stored_kind.resource_kind)
            .find(|candidate| candidate.kind == kind)?;
        let metadata = object.get("metadata")?;
        let resource = Resource {
            namespace: metadata.get("namespace").and_then(text).unwrap_or_default(),
            name: metadata.get("name").and_then(text)?,
            object: object.clone(),
        };
        (version == kind.api_version()).then(|| file_of(kind, &resource))
    }

    pub(crate) fn next_change(&self) -> impl Future<Output = ()> {
        next_change(self.0.iter().map(|kind| &kind.resources))
    }

    fn parse_path<'p>(&self, path: &'p Path) -> Option<(&StoredKind, &'p str, &'p str)> {
        let resource_path = path.to_str()?.strip_prefix(SCHEME)?.strip_prefix(':')?;
        let (kind, name) = resource_path.split_once('/')?;
        self.parse_resource_name(kind, name)
    }

    /// Splits the name of a definition into the namespace and the name of its resource: `shop/pods` becomes `shop` and
    /// `pods`. If the kind is cluster-wide, the namespace is empty.
    fn parse_resource_name<'n>(&self, kind: &str, name: &'n str) -> Option<(&StoredKind, &'n str, &'n str)> {
        let kind = self
            .0
            .iter()
            .find(|stored_kind| stored_kind.resource_kind.kind == kind)?;
        let (namespace, name) = if kind.resource_kind.is_namespaced {
            name.split_once('/').filter(|(namespace, _)| is_dns_label(namespace))?
        } else {
            ("", name)
        };
        is_dns_subdomain(name).then_some((kind, namespace, name))
    }

    async fn write(&self, change: &FileChange) -> Result<(), StoreError> {
        let (kind, namespace, name) = self
            .parse_path(&change.path)
            .ok_or_else(|| self.refusal(format!("{} is not a resource of this store", change.path.display())))?;
        let new_text = change.after.as_deref();
        let after = new_text
            .map(|text| self.parse_definition(&kind.resource_kind, namespace, name, text))
            .transpose()?;
        let has_definition = |stored_resource: Option<&Resource>, text: Option<&str>| match (stored_resource, text) {
            (Some(resource), Some(text)) => serde_json::from_str(text).is_ok_and(|text: Value| {
                text == definition_value(&kind.resource_kind.api_version(), kind.resource_kind.kind, resource)
            }),
            (None, None) => true,
            _ => false,
        };
        let set = after.map(|after| move |object: &mut Map<String, Value>| set_definition(object, &after));
        let edit = ResourceEdit {
            path: &change.path,
            namespace,
            name,
            matches_before: &|current_resource| has_definition(current_resource, change.before.as_deref()),
            matches_after: &|new_resource| has_definition(new_resource, change.after.as_deref()),
            set_fields: set.as_ref().map(|set| set as _),
        };
        match kind.resources.edit(&edit).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::ChangedMeanwhile {
                path: change.path.clone(),
            }),
            Err(error) => Err(self.store_error(kind, &error)),
        }
    }

    /// Parses a definition. It must have the same kind, namespace and name as the resource.
    fn parse_definition(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        name: &str,
        text: &str,
    ) -> Result<Map<String, Value>, StoreError> {
        let parse_result: Result<Map<String, Value>, _> = serde_json::from_str(text);
        let definition = parse_result.map_err(|error| self.refusal(format!("the definition is not JSON: {error}")))?;
        let text = |pointer: &[&str]| {
            let mut keys = pointer.iter();
            let first = definition.get(*keys.next()?)?;
            keys.try_fold(first, |value, key| value.get(*key))?.as_str()
        };
        let is_expected = text(&["kind"]) == Some(kind.kind)
            && text(&["metadata", "name"]) == Some(name)
            && text(&["metadata", "namespace"]).unwrap_or_default() == namespace;
        if !is_expected {
            let id = DefinitionId {
                kind: kind.kind.to_owned(),
                name: definition_name(namespace, name),
            };
            return Err(self.refusal(format!("the definition is not {id}")));
        }
        Ok(definition)
    }

    fn refusal(&self, reason: String) -> StoreError {
        StoreError::Refused {
            store: self.location(),
            reason,
        }
    }

    fn store_error(&self, kind: &StoredKind, error: &ResourceError) -> StoreError {
        let mut reason = format!("{}: {error}", kind.resources.server());
        if matches!(error, ResourceError::NotFound(_)) {
            reason.push_str(": `admittance kubernetes crds | kubectl apply -f -`");
        }
        StoreError::of_server(self.location(), reason, error.is_temporary())
    }
}

#[async_trait]
impl DefinitionStore for ChainStore {
    fn location(&self) -> String {
        SCHEME.to_owned()
    }

    fn owns(&self, path: &Path) -> bool {
        self.parse_path(path).is_some()
    }

    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        let (kind, ..) = self.parse_resource_name(&id.kind, &id.name)?;
        Some(path_of(kind.resource_kind.kind, &id.name))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let mut files = Vec::new();
        // If the read of one kind fails, the other kinds are still read. The reason is that each read also remembers
        // which resources it found, and `changed` needs this for every kind.
        for (kind, read_result) in self.0.iter().zip(join_all(self.0.iter().map(StoredKind::read)).await) {
            let resources = read_result.map_err(|error| self.store_error(kind, &error))?;
            files.extend(resources.iter().map(|resource| file_of(&kind.resource_kind, resource)));
        }
        files.sort_by(|file, other| file.path.cmp(&other.path));
        Ok(files)
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        match changes {
            [] => Ok(()),
            [change] => self.write(change).await,
            _ => Err(StoreError::OneAtATime { store: self.location() }),
        }
    }

    async fn wait_for_change(&self) {
        select_all(self.0.iter().map(|kind| Box::pin(kind.wait_until_changed()))).await;
    }
}

/// Returns a path such as `kubernetes:AdmissionChain/pods` or `kubernetes:NamespacedAdmissionChain/shop/pods`.
fn path_of(kind: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("{SCHEME}:{kind}/{name}"))
}

pub(crate) fn file_of(kind: &ResourceKind, resource: &Resource) -> DefinitionFile {
    definition_file(kind.kind, &kind.api_version(), kind.kind, resource)
}

/// Returns the definition in a resource, with the path `kubernetes:{path_kind}/{name}`.
pub(crate) fn definition_file(path_kind: &str, api_version: &str, kind: &str, resource: &Resource) -> DefinitionFile {
    let id = DefinitionId {
        kind: kind.to_owned(),
        name: definition_name(&resource.namespace, &resource.name),
    };
    let text = definition_value(api_version, kind, resource).to_string();
    DefinitionFile::entry(path_of(path_kind, &id.name), text, id)
}

/// Returns the definition in a resource: the resource without the fields that the API server adds.
pub(crate) fn definition_value(api_version: &str, kind: &str, resource: &Resource) -> Value {
    let mut definition = Map::new();
    definition.insert("apiVersion".to_owned(), api_version.into());
    definition.insert("kind".to_owned(), kind.into());
    let metadata = resource.object.get("metadata").and_then(Value::as_object);
    let mut own_metadata = Map::new();
    for field in OWN_METADATA {
        let mut value = metadata.and_then(|metadata| metadata.get(field)).cloned();
        if let Some(Value::Object(annotations)) = &mut value {
            annotations.shift_remove(LAST_APPLIED_ANNOTATION);
        }
        own_metadata.extend(
            value
                .filter(|value| value.as_object().is_none_or(|fields| !fields.is_empty()))
                .map(|value| (field.to_owned(), value)),
        );
    }
    definition.insert("metadata".to_owned(), own_metadata.into());
    let spec = resource.object.get("spec").cloned();
    definition.extend(spec.map(|spec| ("spec".to_owned(), spec)));
    definition.into()
}

fn set_definition(object: &mut Map<String, Value>, definition: &Map<String, Value>) {
    if let Some(spec) = definition.get("spec") {
        object.insert("spec".to_owned(), spec.clone());
    }
    let own_metadata = definition.get("metadata").and_then(Value::as_object);
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let last_applied = metadata
        .get("annotations")
        .and_then(|annotations| annotations.get(LAST_APPLIED_ANNOTATION))
        .cloned();
    for field in ["labels", "annotations"] {
        match own_metadata.and_then(|fields| fields.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.shift_remove(field),
        };
    }
    if let Some(last_applied) = last_applied {
        let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(LAST_APPLIED_ANNOTATION.to_owned(), last_applied);
        }
    }
}
