//! Chains as resources of a Kubernetes cluster.

use std::path::{Path, PathBuf};

use admittance_admission::is_dns_subdomain;
use admittance_cluster::{Cluster, Resource, ResourceEdit, ResourceError, ResourceKind, Resources};
use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, StoreError};
use async_trait::async_trait;
use serde_json::{Map, Value};

pub(crate) const KIND: ResourceKind = ResourceKind {
    group: "admittance.dev",
    version: "v1alpha1",
    kind: "AdmissionChain",
    plural: "admissionchains",
    is_namespaced: false,
};

const SCHEME: &str = "kubernetes";

/// The fields of `metadata` that belong to the definition; the others are the API server's.
const OWN_METADATA: [&str; 3] = ["name", "labels", "annotations"];

/// The annotation in which kubectl keeps what it applied last: the definition once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The resources `admissionchains.admittance.dev` of a cluster. Lives as long as the host; its watch ends with it.
///
/// Each is one definition, in the form of a file, and the name of the resource is that of the chain. The resource's version
/// guards every write. There is no transaction over several resources, so one change is made at a time.
#[derive(Clone, Debug)]
pub struct ChainStore(pub(crate) Resources);

impl ChainStore {
    /// The chains of this cluster. Starts to watch them without waiting: the API server may be unavailable.
    pub fn new(cluster: &Cluster) -> Self {
        Self(cluster.resources(&KIND))
    }

    async fn write(&self, change: &FileChange) -> Result<(), StoreError> {
        let name = name_in(&change.path).ok_or_else(|| {
            self.refused(format!(
                "{} is not a resource of this store",
                change.path.display()
            ))
        })?;
        let after = change.after.as_deref();
        let after = after.map(|text| self.to_be_written(name, text)).transpose()?;
        let is = |found: Option<&Resource>, text: Option<&str>| match (found, text) {
            (Some(found), Some(text)) => {
                serde_json::from_str(text).is_ok_and(|text: Value| text == definition(found))
            }
            (None, None) => true,
            _ => false,
        };
        let set = after.map(|after| move |object: &mut Map<String, Value>| set(object, &after));
        let edit = ResourceEdit {
            namespace: "",
            name,
            is_before: &|found| is(found, change.before.as_deref()),
            is_after: &|found| is(found, change.after.as_deref()),
            set: set.as_ref().map(|set| set as _),
        };
        match self.0.edit(&edit).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::ChangedMeanwhile {
                path: change.path.clone(),
            }),
            Err(ResourceError::Unknown(reason)) => Err(self.error(&ResourceError::Unavailable(format!(
                "{reason}; it is unknown whether {} was written: check it before you retry",
                change.path.display()
            )))),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// The definition in a text, which must be that of the resource.
    fn to_be_written(&self, name: &str, text: &str) -> Result<Map<String, Value>, StoreError> {
        let read: Result<Map<String, Value>, _> = serde_json::from_str(text);
        let definition =
            read.map_err(|error| self.refused(format!("the definition is not JSON: {error}")))?;
        let text = |pointer: &[&str]| {
            let mut keys = pointer.iter();
            let first = definition.get(*keys.next()?)?;
            keys.try_fold(first, |value, key| value.get(*key))?.as_str()
        };
        if text(&["kind"]) != Some(KIND.kind) || text(&["metadata", "name"]) != Some(name) {
            return Err(self.refused(format!("the definition is not {}/{name}", KIND.kind)));
        }
        Ok(definition)
    }

    fn refused(&self, reason: String) -> StoreError {
        StoreError::Refused {
            store: self.location(),
            reason,
        }
    }

    fn error(&self, error: &ResourceError) -> StoreError {
        let store = self.location();
        let reason = format!("{}: {error}", self.0.server());
        match error {
            ResourceError::Unavailable(_) | ResourceError::Unknown(_) => {
                StoreError::Unreachable { store, reason }
            }
            ResourceError::NotFound(_) => StoreError::Refused {
                store,
                reason: format!("{reason}: `admittance kubernetes crds | kubectl apply -f -`"),
            },
            _ => StoreError::Refused { store, reason },
        }
    }
}

#[async_trait]
impl DefinitionStore for ChainStore {
    fn location(&self) -> String {
        SCHEME.to_owned()
    }

    fn owns(&self, path: &Path) -> bool {
        name_in(path).is_some()
    }

    fn place_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        (id.kind == KIND.kind && is_dns_subdomain(&id.name)).then(|| path_of(&id.name))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let resources = self.0.read().await.map_err(|error| self.error(&error))?;
        let mut files: Vec<_> = resources.iter().map(file_of).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        match changes {
            [] => Ok(()),
            [change] => self.write(change).await,
            _ => Err(StoreError::OneAtATime {
                store: self.location(),
            }),
        }
    }

    async fn changed(&self) {
        self.0.changed().await;
    }
}

/// `kubernetes:AdmissionChain/pods`.
fn path_of(name: &str) -> PathBuf {
    PathBuf::from(format!("{SCHEME}:{}/{name}", KIND.kind))
}

/// The name of the resource at a path.
fn name_in(path: &Path) -> Option<&str> {
    let place = path.to_str()?.strip_prefix(SCHEME)?.strip_prefix(':')?;
    let name = place.strip_prefix(KIND.kind)?.strip_prefix('/')?;
    is_dns_subdomain(name).then_some(name)
}

pub(crate) fn file_of(resource: &Resource) -> DefinitionFile {
    let id = DefinitionId {
        kind: KIND.kind.to_owned(),
        name: resource.name.clone(),
    };
    DefinitionFile::entry(path_of(&resource.name), definition(resource).to_string(), id)
}

/// The resource without what the API server adds.
fn definition(resource: &Resource) -> Value {
    let mut definition = Map::new();
    definition.insert("apiVersion".to_owned(), KIND.api_version().into());
    definition.insert("kind".to_owned(), KIND.kind.into());
    let metadata = resource.object.get("metadata").and_then(Value::as_object);
    let mut own = Map::new();
    for field in OWN_METADATA {
        let mut value = metadata.and_then(|metadata| metadata.get(field)).cloned();
        if let Some(Value::Object(annotations)) = &mut value {
            annotations.shift_remove(LAST_APPLIED);
        }
        own.extend(
            value
                .filter(|value| value.as_object().is_none_or(|fields| !fields.is_empty()))
                .map(|value| (field.to_owned(), value)),
        );
    }
    definition.insert("metadata".to_owned(), own.into());
    // A resource without it is returned as it is, and its reader reports what is missing.
    let spec = resource.object.get("spec").cloned();
    definition.extend(spec.map(|spec| ("spec".to_owned(), spec)));
    definition.into()
}

/// Sets the fields of a resource to those of a definition.
fn set(object: &mut Map<String, Value>, definition: &Map<String, Value>) {
    if let Some(spec) = definition.get("spec") {
        object.insert("spec".to_owned(), spec.clone());
    }
    let own = definition.get("metadata").and_then(Value::as_object);
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let last_applied = metadata
        .get("annotations")
        .and_then(|annotations| annotations.get(LAST_APPLIED))
        .cloned();
    for field in ["labels", "annotations"] {
        match own.and_then(|own| own.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.shift_remove(field),
        };
    }
    if let Some(last_applied) = last_applied {
        let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(LAST_APPLIED.to_owned(), last_applied);
        }
    }
}
