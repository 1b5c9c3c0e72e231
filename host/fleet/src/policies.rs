//! Reads policies that were written for other systems, such as Kyverno, from a Kubernetes cluster.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::keywords;
use admittance_cluster::{Cluster, ResourceError, ServedKind, WatchedResources};
use admittance_definitions::{DefinitionFile, DefinitionId, DefinitionStore, FileChange, StoreError};
use async_trait::async_trait;
use futures_util::future::{join_all, select_all, try_join_all};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::chains::{SCHEME, definition_file};

/// The interval at which policy kinds are discovered. It is short because each new Gatekeeper template defines a kind.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a missing kind is looked for again. An API server that just started may not list all kinds.
const CONFIRMATION_PAUSE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicySystem {
    /// Kubernetes's admission policies in CEL, and their bindings.
    Kubernetes,
    /// Gatekeeper's templates, constraints and mutators, and the configuration that they depend on.
    Gatekeeper,
    /// Kubewarden's policies and policy groups.
    Kubewarden,
    /// Kyverno's policies in CEL, and their exceptions.
    Kyverno,
}

keywords!(PolicySystem, "system": Kubernetes = "Kubernetes", Gatekeeper = "Gatekeeper", Kubewarden = "Kubewarden",
    Kyverno = "Kyverno");

#[derive(Clone, Copy, Debug)]
pub struct PolicyGroup {
    pub name: &'static str,
    /// The versions of the API group that this program can read, the preferred one first.
    versions: &'static [&'static str],
    /// The plurals of the kinds that this program can read; `*` for all kinds of the group.
    pub resources: &'static [&'static str],
}

impl PolicySystem {
    pub fn groups(self) -> &'static [PolicyGroup] {
        match self {
            Self::Kubernetes => &[PolicyGroup {
                name: "admissionregistration.k8s.io",
                versions: &["v1", "v1beta1"],
                resources: &[
                    "validatingadmissionpolicies",
                    "validatingadmissionpolicybindings",
                    "mutatingadmissionpolicies",
                    "mutatingadmissionpolicybindings",
                ],
            }],
            Self::Gatekeeper => &[
                PolicyGroup {
                    name: "templates.gatekeeper.sh",
                    versions: &["v1", "v1beta1", "v1alpha1"],
                    resources: &["constrainttemplates"],
                },
                // Each template of Gatekeeper defines a kind of constraints. All these kinds are in the group
                // `constraints.gatekeeper.sh`, and `*` stands for them.
                PolicyGroup {
                    name: "constraints.gatekeeper.sh",
                    versions: &["v1beta1"],
                    resources: &["*"],
                },
                PolicyGroup {
                    name: "mutations.gatekeeper.sh",
                    versions: &["v1", "v1beta1", "v1alpha1"],
                    resources: &["assign", "assignimage", "assignmetadata", "modifyset"],
                },
                PolicyGroup {
                    name: "expansion.gatekeeper.sh",
                    versions: &["v1beta1", "v1alpha1"],
                    resources: &["expansiontemplate"],
                },
                PolicyGroup {
                    name: "config.gatekeeper.sh",
                    versions: &["v1alpha1"],
                    resources: &["configs"],
                },
                PolicyGroup {
                    name: "syncset.gatekeeper.sh",
                    versions: &["v1alpha1"],
                    resources: &["syncsets"],
                },
            ],
            Self::Kubewarden => &[PolicyGroup {
                name: "policies.kubewarden.io",
                versions: &["v1"],
                resources: &[
                    "clusteradmissionpolicies",
                    "admissionpolicies",
                    "clusteradmissionpolicygroups",
                    "admissionpolicygroups",
                ],
            }],
            Self::Kyverno => &[PolicyGroup {
                name: "policies.kyverno.io",
                versions: &["v1", "v1beta1", "v1alpha1"],
                resources: &[
                    "validatingpolicies",
                    "namespacedvalidatingpolicies",
                    "mutatingpolicies",
                    "namespacedmutatingpolicies",
                    "policyexceptions",
                ],
            }],
        }
    }
}

/// Reads the policies of other systems in a cluster. The watches end when the store is dropped.
///
/// The kinds are discovered again every few seconds. A kind that the API server lacks has no policies.
#[derive(Debug)]
pub struct PolicyStore {
    cluster: Cluster,
    groups: Vec<PolicyGroup>,
    state: Mutex<WatchedKinds>,
}

#[derive(Debug, Default)]
struct WatchedKinds {
    /// The kinds of policies that the API server served at the last request; `None` if the request failed.
    served_kinds: Option<Vec<ServedKind>>,
    policies: Arc<[WatchedPolicies]>,
}

#[derive(Clone, Debug)]
struct WatchedPolicies {
    kind: ServedKind,
    resources: WatchedResources,
}

impl PolicyStore {
    /// Creates a store of these systems' policies, without a request to the API server.
    pub fn new(cluster: &Cluster, systems: &[PolicySystem]) -> Self {
        Self {
            cluster: cluster.clone(),
            groups: systems.iter().flat_map(|system| system.groups()).copied().collect(),
            state: Mutex::default(),
        }
    }

    async fn discover_kinds(&self) -> Result<Vec<ServedKind>, ResourceError> {
        let groups = self.groups.iter();
        let discoveries = groups.map(|group| self.cluster.discover(group.name, group.versions, group.resources));
        Ok(try_join_all(discoveries).await?.concat())
    }

    async fn watch_served_kinds(&self) -> Result<Arc<[WatchedPolicies]>, ResourceError> {
        let before = self.state.lock().policies.clone();
        let has_lost = |served: &Result<Vec<ServedKind>, _>| {
            let Ok(served) = served else { return false };
            let is_there = |policies: &WatchedPolicies| served.iter().any(|kind| kind.name() == policies.kind.name());
            !before.iter().all(is_there)
        };
        let mut served = self.discover_kinds().await;
        if has_lost(&served) {
            sleep(CONFIRMATION_PAUSE).await;
            served = self.discover_kinds().await;
        }
        let mut state = self.state.lock();
        state.served_kinds = served.as_ref().ok().cloned();
        let kinds = served?.into_iter().map(|kind| {
            let known_policies = state.policies.iter().find(|candidate| candidate.kind == kind);
            known_policies.cloned().unwrap_or_else(|| WatchedPolicies {
                resources: self.cluster.resources_of(&kind),
                kind,
            })
        });
        let watched_policies: Arc<[WatchedPolicies]> = kinds.collect();
        state.policies = watched_policies.clone();
        Ok(watched_policies)
    }

    fn store_error(&self, error: &ResourceError) -> StoreError {
        StoreError::of_server(self.location(), error.to_string(), error.is_temporary())
    }
}

#[async_trait]
impl DefinitionStore for PolicyStore {
    fn location(&self) -> String {
        format!("{SCHEME}:policies")
    }

    fn owns(&self, path: &Path) -> bool {
        let resource_path = path
            .to_str()
            .and_then(|path| path.strip_prefix(SCHEME)?.strip_prefix(':'));
        let kind = resource_path.and_then(|rest| Some(rest.split_once('/')?.0));
        let group = kind.and_then(|kind| Some(kind.split_once('.')?.1));
        group.is_some_and(|group| self.groups.iter().any(|policy_group| policy_group.name == group))
    }

    fn path_for(&self, _: &DefinitionId) -> Option<PathBuf> {
        None
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let watched_policies = self
            .watch_served_kinds()
            .await
            .map_err(|error| self.store_error(&error))?;
        let mut files = Vec::new();
        // If the read of one kind fails, the other kinds are still read. The reason is that each read also remembers
        // which resources it found, and `changed` needs this for every kind.
        let reads = join_all(watched_policies.iter().map(|policies| policies.resources.read())).await;
        for (kind_policies, read_result) in watched_policies.iter().zip(reads) {
            let resources = read_result.map_err(|error| self.store_error(&error))?;
            let kind = &kind_policies.kind;
            let (kind_name, api_version, kind) = (kind.name(), kind.api_version(), kind.kind());
            files.extend(
                resources
                    .iter()
                    .map(|resource| definition_file(&kind_name, api_version, kind, resource)),
            );
        }
        files.sort_by(|file, other| file.path.cmp(&other.path));
        Ok(files)
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        match changes.first() {
            None => Ok(()),
            Some(change) => Err(StoreError::Refused {
                store: self.location(),
                reason: format!("{} is only read; change it with kubectl", change.path.display()),
            }),
        }
    }

    async fn wait_for_change(&self) {
        let (watched_policies, served_kinds) = {
            let state = self.state.lock();
            (state.policies.clone(), state.served_kinds.clone())
        };
        let pause = if served_kinds.is_some() {
            DISCOVERY_INTERVAL
        } else {
            RETRY_PAUSE
        };
        let kinds = async {
            while self.discover_kinds().await.ok() == served_kinds {
                sleep(pause).await;
            }
        };
        let resources = async {
            if watched_policies.is_empty() {
                std::future::pending().await
            } else {
                let changed = watched_policies
                    .iter()
                    .map(|policies| Box::pin(policies.resources.changed()));
                select_all(changed).await;
            }
        };
        tokio::select! {
            () = kinds => {}
            () = resources => {}
        }
    }
}
