//! Stores definitions as custom resources of a Kubernetes cluster, as BCS does if its store is etcd.

mod name;

use std::path::{Path, PathBuf};

use admittance_cluster::{Cluster, Resource, ResourceEdit, ResourceError, ResourceKind, WatchedResources};
use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, StoreError};
use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::{
    definition_name::DefinitionName,
    stores::document::{self, OperationAndKind},
};

const KIND: ResourceKind = ResourceKind {
    group: "bkbcs.tencent.com",
    version: "v2",
    kind: "AdmissionWebhookConfiguration",
    plural: "admissionwebhookconfigurations",
    is_namespaced: true,
};

const SCHEME: &str = "customresources";

/// A store of definitions in a Kubernetes cluster, as resources `admissionwebhookconfigurations.bkbcs.tencent.com`.
/// Lives as long as the host; dropping it ends the watch of the resources.
///
/// The `spec` of a resource is the definition. If the definition has no name or namespace, it gets that of its
/// resource. The store takes one change at a time, because Kubernetes cannot write several resources in a transaction.
#[derive(Debug)]
pub struct CustomResourceStore {
    resources: WatchedResources,
    namespace: String,
}

impl CustomResourceStore {
    /// Starts to watch the definitions in this cluster. Resources for new definitions are created in `namespace`.
    pub fn new(cluster: &Cluster, namespace: impl Into<String>) -> Self {
        Self {
            resources: cluster.resources(&KIND),
            namespace: namespace.into(),
        }
    }

    pub const DEFAULT_NAMESPACE: &'static str = "bkbcs";

    /// Writes a definition, and makes sure that no other definition has its operation and kind. Another program may
    /// write such a definition at the same time, and Kubernetes has no transactions to prevent this. The other
    /// definitions are therefore checked before the write, and once more after it.
    async fn write_if_unique(&self, change: &FileChange, subject: &OperationAndKind) -> Result<(), StoreError> {
        let conflict = |other: &Resource| StoreError::Conflict {
            path: change.path.clone(),
            other: path_of(&name_of(other)),
        };
        let is_own = |resource: &Resource| path_of(&name_of(resource)) == change.path;
        let is_rival = |resource: &Resource| {
            !is_own(resource) && OperationAndKind::parse(&text_of(resource)).as_ref() == Some(subject)
        };
        let list = async || self.resources.list().await.map_err(|error| self.store_error(&error));
        if let Some(other) = list().await?.iter().find(|resource| is_rival(resource)) {
            return Err(conflict(other));
        }
        self.write(change).await?;
        let resources = list()
            .await
            .map_err(|error| self.unknown_outcome_error(change, error))?;
        let Some(own_resource) = resources.iter().find(|resource| is_own(resource)) else {
            return Ok(());
        };
        let was_first = |other: &&Resource| is_rival(other) && version_of(other) <= version_of(own_resource);
        let Some(other) = resources.iter().find(was_first) else {
            return Ok(());
        };
        match self.write(&change.reversed()).await {
            Ok(()) | Err(StoreError::ChangedMeanwhile { .. }) => Err(conflict(other)),
            Err(error) => Err(self.unknown_outcome_error(change, error)),
        }
    }

    fn unknown_outcome_error(&self, change: &FileChange, error: StoreError) -> StoreError {
        match error {
            StoreError::Unreachable { store, reason } => {
                let path = change.path.display();
                let reason = format!("{reason}; it is unknown whether {path} was written: check it before you retry");
                StoreError::Unreachable { store, reason }
            }
            error => error,
        }
    }

    async fn write(&self, change: &FileChange) -> Result<(), StoreError> {
        let full_name = full_name_in(&change.path).ok_or_else(|| self.not_in_store_error(&change.path))?;
        let (namespace, name) = (&*full_name.namespace, &*full_name.name);
        let after = change
            .after
            .as_deref()
            .map(|text| document::parse_for_write(&change.path, text))
            .transpose()?;
        let has_text = |resource: Option<&Resource>, text: Option<&str>| {
            document::are_equal_documents(resource.map(text_of).as_deref(), text)
        };
        let set = after.map(|after| {
            move |object: &mut Map<String, Value>| {
                object.insert("spec".to_owned(), Value::Object(after.clone()));
            }
        });
        let edit = ResourceEdit {
            path: &change.path,
            namespace,
            name,
            matches_before: &|old_resource| has_text(old_resource, change.before.as_deref()),
            matches_after: &|new_resource| has_text(new_resource, change.after.as_deref()),
            set_fields: set.as_ref().map(|set| set as _),
        };
        match self.resources.edit(&edit).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::ChangedMeanwhile {
                path: change.path.clone(),
            }),
            Err(error) => Err(self.store_error(&error)),
        }
    }

    fn not_in_store_error(&self, path: &Path) -> StoreError {
        StoreError::Refused {
            store: self.location(),
            reason: format!("{} is not a resource of this store", path.display()),
        }
    }

    fn store_error(&self, error: &ResourceError) -> StoreError {
        let reason = format!("{}: {error}", self.resources.server());
        StoreError::of_server(self.location(), reason, error.is_temporary())
    }
}

#[async_trait]
impl DefinitionStore for CustomResourceStore {
    fn location(&self) -> String {
        SCHEME.to_owned()
    }

    fn owns(&self, path: &Path) -> bool {
        full_name_in(path).is_some()
    }

    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        let name = name::resource_name(&DefinitionName::from_id(id)?, &self.namespace);
        Some(path_of(&DefinitionName::new(&self.namespace, &name)))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let resources = self.resources.read().await.map_err(|error| self.store_error(&error))?;
        let mut files: Vec<_> = resources.iter().map(file_of).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        match changes {
            [] => Ok(()),
            [change] => match OperationAndKind::added_by_change(change) {
                Some(subject) => self.write_if_unique(change, &subject).await,
                None => self.write(change).await,
            },
            _ => Err(StoreError::OneAtATime { store: self.location() }),
        }
    }

    async fn wait_for_change(&self) {
        self.resources.changed().await;
    }
}

fn version_of(resource: &Resource) -> u64 {
    let version = resource.metadata("resourceVersion");
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn file_of(resource: &Resource) -> DefinitionFile {
    let name = name_of(resource);
    DefinitionFile::entry(path_of(&name), text_of(resource), name.id())
}

fn name_of(resource: &Resource) -> DefinitionName {
    DefinitionName::new(&resource.namespace, &resource.name)
}

fn path_of(resource: &DefinitionName) -> PathBuf {
    PathBuf::from(format!("{SCHEME}:{resource}"))
}

fn full_name_in(path: &Path) -> Option<DefinitionName> {
    DefinitionName::parse(path.to_str()?.strip_prefix(SCHEME)?.strip_prefix(':')?)
}

/// Returns the text of the definition in a resource. If the resource contains no definition, returns the whole resource
/// as text, so that the parser reports what is missing.
fn text_of(resource: &Resource) -> String {
    match resource.object.get("spec") {
        Some(Value::Object(spec)) => {
            Value::Object(document::complete_document(spec.clone(), &name_of(resource))).to_string()
        }
        _ => {
            let mut definition = Map::new();
            let version = format!("{}/{}", KIND.group, KIND.version);
            definition.insert("apiVersion".to_owned(), version.into());
            definition.insert("kind".to_owned(), KIND.kind.into());
            definition.extend(resource.object.clone());
            Value::Object(definition).to_string()
        }
    }
}
