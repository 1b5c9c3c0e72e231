//! Writes the grants in the database into every cluster as role bindings.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use admittance_admission::shortened;
use admittance_net::Backoff;
use futures_util::{StreamExt, stream};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    PassResult, RoleSync,
    bindings::{self, WantedBindings},
    rules::{self, RBAC_GROUP},
};
use crate::{
    accounts::{Directory, GrantedBinding, GrantedRole, RegisteredCluster},
    kubernetes::CallError,
};

/// The interval at which the role bindings of every cluster are compared with the grants, even if nothing has changed.
const REWRITE_PERIOD: Duration = Duration::from_secs(300);
/// The pause between a change of grants and the writing, so that changes in quick succession are written together.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// The pause after the roles of a cluster could not be written. It grows with each further failure, up to
/// `MAX_RETRY_PAUSE`.
const MIN_RETRY_PAUSE: Duration = Duration::from_secs(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of clusters whose roles are written at the same time.
const MAX_CONCURRENT_CLUSTERS: usize = 8;
const FIELD_MANAGER: &str = "fieldManager=admittance-gateway&force=true";
const PAGE_SIZE: usize = 500;

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the account of the agent may not do this: {0}; apply the manifests of the agent again, made with `--roles`, and \
         with `--allow` as in the configuration"
    )]
    Forbidden(String),
    #[error("{0} exists, and has not the label of the gateway: delete or rename it")]
    Foreign(String),
    #[error("{method} {path}: the API server replied {status}: {message}", message = shortened(.message, 300))]
    Refused {
        method: Method,
        path: String,
        status: StatusCode,
        message: String,
    },
}

#[derive(Debug)]
struct LastWrite {
    grants: BTreeSet<GrantedBinding>,
    written_at: Instant,
}

impl RoleSync {
    /// Writes the roles of all clusters: at the start, after every change, and at an interval. Never returns.
    pub(super) async fn write_all(&self) {
        let mut changes = self.accounts.changes();
        let mut tunnels = self.kubernetes.tunnel_changes();
        let mut last_writes: HashMap<String, LastWrite> = HashMap::new();
        let mut retries = Backoff::new(MIN_RETRY_PAUSE, MAX_RETRY_PAUSE);
        let mut reported_problems = BTreeMap::new();
        loop {
            tunnels.mark_unchanged();
            let directory = changes.borrow_and_update().clone();
            let mut pause = REWRITE_PERIOD;
            if let Some(directory) = directory {
                let unwritten = self.write_pass(&directory, &mut last_writes).await;
                for (cluster, problem) in &unwritten {
                    if reported_problems.get(cluster) != Some(problem) {
                        tracing::warn!(%cluster, "the roles of users are not up to date: {problem}");
                    }
                }
                if unwritten.is_empty() {
                    retries.reset();
                } else {
                    pause = retries.pause_after_failure();
                }
                reported_problems.clone_from(&unwritten);
                self.pass.send_replace(PassResult {
                    revision: directory.revision(),
                    unwritten: Arc::new(unwritten),
                });
            }
            tokio::select! {
                // `changed` fails only after its sender was dropped, and `self` keeps both senders alive.
                _ = changes.changed() => {}
                _ = tunnels.changed() => {}
                () = sleep(pause) => {}
            }
            sleep(MIN_PAUSE).await;
        }
    }

    /// Writes the roles of every cluster that is due: its grants have changed, or its roles were last compared
    /// [`REWRITE_PERIOD`] ago.
    async fn write_pass(
        &self,
        directory: &Directory,
        last_writes: &mut HashMap<String, LastWrite>,
    ) -> BTreeMap<String, String> {
        let none = BTreeSet::new();
        let clusters = directory.clusters().filter(|cluster| cluster.is_kubernetes());
        let due: Vec<_> = clusters
            .filter_map(|cluster| {
                let grants = directory.bindings_in(cluster).unwrap_or(&none);
                let is_current = last_writes.get(&cluster.id).is_some_and(|last_write| {
                    last_write.grants == *grants && last_write.written_at.elapsed() < REWRITE_PERIOD
                });
                (!is_current).then_some((cluster.clone(), grants.clone()))
            })
            .collect();
        let results: Vec<_> = stream::iter(due)
            .map(|(cluster, grants)| async move {
                let result = self.write_cluster(&cluster, &grants).await;
                (cluster, grants, result)
            })
            .buffer_unordered(MAX_CONCURRENT_CLUSTERS)
            .collect()
            .await;
        let mut unwritten = BTreeMap::new();
        for (cluster, grants, result) in results {
            match result {
                Ok(()) => {
                    let at = Instant::now();
                    last_writes.insert(cluster.id.clone(), LastWrite { grants, written_at: at });
                }
                // A cluster whose agent has never reported cannot be reached. This is an error only if there are role
                // bindings to write.
                Err(WriteError::Call(CallError::NotConnected(_))) if grants.is_empty() => {}
                Err(error) => {
                    last_writes.remove(&cluster.id);
                    unwritten.insert(cluster.id.clone(), error.to_string());
                }
            }
        }
        last_writes.retain(|id, _| directory.cluster(id).is_some());
        unwritten
    }

    async fn write_cluster(
        &self,
        cluster: &RegisteredCluster,
        grants: &BTreeSet<GrantedBinding>,
    ) -> Result<(), WriteError> {
        let writer = ClusterWriter {
            role_sync: self,
            cluster,
        };
        let WantedBindings { bindings, roles } = bindings::wanted_bindings(cluster, grants, &self.config.allowed);
        let mut stored = writer.list_bindings().await?;
        for role in roles {
            writer.ensure_role(role).await?;
        }
        // Bindings no longer granted are deleted first, so that they are gone if other bindings cannot be written.
        let extra: Vec<_> = stored
            .keys()
            .filter(|path| !bindings.contains_key(*path))
            .cloned()
            .collect();
        for path in extra {
            if let Some(binding) = stored.remove(&path) {
                writer.delete(&path, &binding).await?;
            }
        }
        for (path, binding) in bindings {
            match stored.get(&path) {
                Some(stored) if bindings::is_current(stored, &binding) => continue,
                Some(_) => {}
                None if writer.get(&path).await?.is_some() => return Err(WriteError::Foreign(path)),
                None => {}
            }
            writer.apply(&path, &binding).await?;
        }
        Ok(())
    }
}

struct ClusterWriter<'a> {
    role_sync: &'a RoleSync,
    cluster: &'a RegisteredCluster,
}

impl ClusterWriter<'_> {
    /// Returns the role bindings that a gateway wrote for this cluster, by their paths.
    async fn list_bindings(&self) -> Result<BTreeMap<String, Value>, WriteError> {
        let selector = bindings::label_selector_query(self.cluster);
        let mut all = BTreeMap::new();
        for collection in ["clusterrolebindings", "rolebindings"] {
            let path = format!("/apis/{RBAC_GROUP}/v1/{collection}?{selector}&limit={PAGE_SIZE}");
            let mut next = String::new();
            loop {
                let mut page = self
                    .request(Method::GET, &format!("{path}{next}"), None)
                    .await?
                    .unwrap_or_default();
                let items = page.get_mut("items").map(Value::take).unwrap_or_default();
                for item in items.as_array().into_iter().flatten() {
                    all.extend(bindings::binding_path(item).map(|path| (path, item.clone())));
                }
                match page.pointer("/metadata/continue").and_then(Value::as_str) {
                    Some(token) if !token.is_empty() => {
                        let mut query = form_urlencoded::Serializer::new(String::new());
                        next = format!("&{}", query.append_pair("continue", token).finish());
                    }
                    _ => break,
                }
            }
        }
        Ok(all)
    }

    async fn ensure_role(&self, role: GrantedRole) -> Result<(), WriteError> {
        let expected_role = rules::cluster_role(role, &self.role_sync.config.allowed);
        let path = format!("/apis/{RBAC_GROUP}/v1/clusterroles/{}", rules::cluster_role_name(role));
        if let Some(stored) = self.get(&path).await? {
            if !bindings::is_managed(&stored) {
                return Err(WriteError::Foreign(path));
            }
            if stored.get("rules") == expected_role.get("rules") {
                return Ok(());
            }
        }
        self.apply(&path, &expected_role).await
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, WriteError> {
        self.request(Method::GET, path, None).await
    }

    async fn apply(&self, path: &str, object: &Value) -> Result<(), WriteError> {
        let path = format!("{path}?{FIELD_MANAGER}");
        match self.request(Method::PATCH, &path, Some(object)).await? {
            Some(_) => Ok(()),
            None => Err(WriteError::Refused {
                method: Method::PATCH,
                path,
                status: StatusCode::NOT_FOUND,
                message: "the namespace does not exist".to_owned(),
            }),
        }
    }

    /// Deletes a role binding, unless somebody has changed it since it was listed. A changed role binding may no longer
    /// have the gateway's label, and then it has to stay.
    async fn delete(&self, path: &str, binding: &Value) -> Result<(), WriteError> {
        let version = binding.pointer("/metadata/resourceVersion");
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"resourceVersion": version},
        });
        self.request(Method::DELETE, path, Some(&options)).await?;
        Ok(())
    }

    /// Returns the object in the reply to a request, or `None` if the API server replies that there is none.
    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Option<Value>, WriteError> {
        let call = self.role_sync.kubernetes.call(self.cluster, &method, path, body);
        let (status, reply) = call.await?;
        let message = || {
            let message = reply.get("message").and_then(Value::as_str);
            message.map_or_else(|| reply.to_string(), str::to_owned)
        };
        match status {
            status if status.is_success() => Ok(Some(reply)),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::FORBIDDEN => Err(WriteError::Forbidden(message())),
            status => Err(WriteError::Refused {
                method,
                path: path.to_owned(),
                status,
                message: message(),
            }),
        }
    }
}
