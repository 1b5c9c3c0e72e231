use std::{error::Error, sync::Arc};

use admittance_admission::{
    Access, AccessAttributes, Authorizer, AuthorizerError, ClusterError, ClusterKind, ClusterReader,
    Deadline, Labels, NamespaceLookupError, NamespaceSource, UserInfo, async_trait,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::runtime::Handle;

use crate::{
    ClusterConfig, ConfigError, ForwardError, authorize,
    connection::Connection,
    forward,
    health::WatchStatus,
    kinds::Kinds,
    namespaces::Namespaces,
    resources::{ResourceKind, Resources},
};

/// A Kubernetes API server: answers from what its watches brought, and asks the server otherwise.
///
/// Cheap to clone. Dropping the last clone ends the watches and closes the connections.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    connection: Connection,
    namespaces: Namespaces,
    kinds: Kinds,
}

/// What the watches are doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The API server: scheme, host and port.
    pub server: String,
    /// The namespaces and their labels.
    pub namespaces: WatchStatus,
    /// The kinds that plugins read, in order.
    pub kinds: Vec<(ClusterKind, WatchStatus)>,
}

impl Cluster {
    /// Reads where the API server is and who this program is. Sends nothing: the server may be away.
    ///
    /// # Errors
    ///
    /// When that cannot be read, or cannot be used.
    pub async fn connect(config: &ClusterConfig) -> Result<Self, ConfigError> {
        let connection = config.connection().await?;
        Ok(Self(Arc::new(Inner {
            runtime: Handle::current(),
            namespaces: Namespaces::new(connection.clone()),
            kinds: Kinds::new(connection.clone()),
            connection,
        })))
    }

    /// Begins to watch namespaces; else the first look-up does. For a host whose chains will need their
    /// labels.
    pub fn watch_namespaces(&self) {
        self.0.namespaces.start(&self.0.runtime);
    }

    /// Begins to watch these kinds; else the first look-up of each does. For kinds that plugins are
    /// granted.
    pub fn watch_kinds<'a>(&self, kinds: impl IntoIterator<Item = &'a ClusterKind>) {
        for kind in kinds {
            self.0.kinds.start(kind, &self.0.runtime);
        }
    }

    /// The resources of a kind, to read and write; begins to watch them.
    pub fn resources(&self, kind: &ResourceKind) -> Resources {
        Resources::new(self.0.connection.clone(), kind, &self.0.runtime)
    }

    /// Hands a request on, with this program's credentials: path and query, and of its headers `Accept`,
    /// `Accept-Encoding` and `Content-Type`. The body of the reply is streamed.
    ///
    /// # Errors
    ///
    /// When the API server does not reply. A refusal of it is a reply.
    pub async fn forward(
        &self,
        request: Request<Bytes>,
    ) -> Result<
        Response<impl Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static + use<>>,
        ForwardError,
    > {
        forward::forward(&self.0.connection, request).await
    }

    /// Makes this namespace when there is none. Does nothing for a name that no namespace can have.
    ///
    /// # Errors
    ///
    /// When it cannot be known whether there is one, or it cannot be made.
    pub async fn ensure_namespace(&self, name: &str) -> Result<(), ForwardError> {
        forward::ensure_namespace(&self.0.connection, name).await
    }

    /// What the watches are doing.
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
    ) -> Result<Access, AuthorizerError> {
        authorize::review(&self.0.connection, user, attributes).await
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
        namespace: Option<&str>,
        label_selector: &str,
        deadline: Deadline,
    ) -> Result<Vec<String>, ClusterError> {
        let Inner { kinds, runtime, .. } = &*self.0;
        kinds
            .list(kind, namespace, label_selector, deadline, runtime)
            .await
    }
}
