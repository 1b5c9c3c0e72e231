use std::{error::Error, sync::Arc};

use admittance_admission::{
    AccessAttributes, AccessCheckResult, Authorizer, AuthorizerError, ClusterError, ClusterKind, ClusterPage,
    ClusterQuery, ClusterReader, Deadline, Labels, NamespaceLookupError, NamespaceSource, UserInfo, async_trait,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::{
    ClusterConfig, ConfigError, EventWriter, ForwardError, authorize,
    connection::Connection,
    forward,
    health::ClusterWatch,
    kinds::LookedUpKinds,
    lease::{Election, ElectionTimes},
    metrics,
    namespaces::NamespaceLabels,
    resources::{ResourceKind, WatchedResources},
};

/// A client of a Kubernetes API server. It answers from the caches of its watches where possible, and else sends a
/// request to the server.
///
/// Cheap to clone. Dropping the last clone ends the watches and closes the connections.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    connection: Connection,
    namespaces: NamespaceLabels,
    kinds: LookedUpKinds,
}

/// The connection to a Kubernetes API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The URL of the server.
    pub server: String,
    /// The watch on namespaces.
    pub namespaces: ClusterWatch,
    /// The watches on kinds that plugins read.
    pub kinds: Vec<ClusterWatch>,
}

impl Cluster {
    /// Reads the address of the API server and the credentials. Sends no request to the server.
    pub async fn connect(config: &ClusterConfig) -> Result<Self, ConfigError> {
        let connection = config.connect().await?;
        metrics::initialize_counters();
        Ok(Self(Arc::new(Inner {
            runtime: Handle::current(),
            namespaces: NamespaceLabels::new(connection.clone()),
            kinds: LookedUpKinds::new(connection.clone()),
            connection,
        })))
    }

    /// Starts to watch namespaces: chains need their labels. Without this call, the first lookup starts the watch.
    pub fn watch_namespaces(&self) {
        self.0.namespaces.start(&self.0.runtime);
    }

    /// Starts to watch these kinds, which plugins may read. Any other kind is watched from its first lookup on.
    pub fn watch_kinds<'a>(&self, kinds: impl IntoIterator<Item = &'a ClusterKind>) {
        for kind in kinds.into_iter().filter(|kind| !kind.is_access_review()) {
            self.0.kinds.start(kind, &self.0.runtime);
        }
    }

    /// Starts to watch the resources of a kind, and returns the client that reads and writes them.
    pub fn resources(&self, kind: &ResourceKind) -> WatchedResources {
        self.resources_of(&kind.served_kind())
    }

    /// Returns a client that reads and writes only this one resource, so the account needs no right to read other
    /// resources. `namespace` is empty for a resource of the whole cluster.
    pub fn resource(&self, kind: &ResourceKind, namespace: &str, name: &str) -> WatchedResources {
        let only = Some((namespace, name));
        WatchedResources::new(self.0.connection.clone(), &kind.served_kind(), only, &self.0.runtime)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// Returns a candidate in the election that is held with the Lease of this name in the account's namespace.
    pub fn election(&self, name: impl Into<String>, terms: ElectionTimes) -> Election {
        Election::new(self.0.connection.clone(), name.into(), terms)
    }

    pub fn events(&self) -> EventWriter {
        EventWriter::new(self.0.connection.clone())
    }

    /// Forwards a client's request with this program's credentials. Of the client's headers, only `Accept`,
    /// `Accept-Encoding` and `Content-Type` are forwarded. The body of the reply is streamed. A reply with an error
    /// status is not an error.
    pub async fn forward(
        &self,
        request: Request<Bytes>,
    ) -> Result<
        Response<impl Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static + use<>>,
        ForwardError,
    > {
        forward::forward(&self.0.connection, request).await
    }

    /// Creates this namespace if it does not exist. Ignores an invalid name.
    pub async fn ensure_namespace(&self, name: &str) -> Result<(), ForwardError> {
        forward::ensure_namespace(&self.0.connection, name).await
    }

    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            server: self.0.connection.url().to_owned(),
            namespaces: self.0.namespaces.status(),
            kinds: self.0.kinds.status(),
        }
    }
}

#[async_trait]
impl NamespaceSource for Cluster {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        self.watch_namespaces();
        self.0.namespaces.labels(namespace).await
    }
}

#[async_trait]
impl Authorizer for Cluster {
    async fn authorize(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes,
    ) -> Result<AccessCheckResult, AuthorizerError> {
        authorize::review_access(&self.0.connection, user, attributes).await
    }
}

#[async_trait]
impl ClusterReader for Cluster {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let Inner { kinds, runtime, .. } = &*self.0;
        kinds.get(kind, namespace, name, deadline, runtime).await
    }

    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        let Inner { kinds, runtime, .. } = &*self.0;
        kinds.list(kind, query, deadline, runtime).await
    }

    async fn check_access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        deadline: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        authorize::check_access(&self.0.connection, user, action, deadline).await
    }
}
