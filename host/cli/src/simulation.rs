//! Simulates a cluster and HTTP servers. Plugins use them in commands such as `run` and `test`, which need no driver.

use std::{path::PathBuf, sync::Arc};

use admittance::{
    HostBuilder, SandboxConfig,
    admission::{
        AccessAttributes, AccessCheckResult, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader,
        Deadline, HttpAnswer, HttpAnswerError, HttpAnswers, HttpError, HttpGrant, HttpRequest, HttpResponse,
        HttpSender, Labels, NamespaceLookupError, NamespaceSource, UserInfo, async_trait,
    },
};
use admittance_cluster::ManifestFiles;
use admittance_definitions::{
    Mistakes,
    document::{self, Node, readers},
};
use admittance_driver::Config;
use clap::Args;
use parking_lot::RwLock;

use crate::{arguments::parse_existing_path, host, request_file};

/// Requests run one after the other, so few calls are in flight.
const CALLS_IN_FLIGHT: u32 = 4;

/// The cluster and the servers that plugins can use during one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestSurroundings {
    pub(crate) cluster: Option<ManifestFiles>,
    /// The answers of servers. If `None`, every HTTP request of a plugin fails as unavailable.
    pub(crate) http: Option<Vec<HttpAnswer>>,
}

impl RequestSurroundings {
    /// Returns these surroundings. A field that is `None` is taken from `other`.
    pub(crate) fn with_defaults_from(self, other: Self) -> Self {
        Self {
            cluster: self.cluster.or(other.cluster),
            http: self.http.or(other.http),
        }
    }
}

/// The files with the objects of a cluster and the answers of servers, which are simulated for plugins.
#[derive(Debug, Args)]
pub(crate) struct SurroundingFiles {
    /// A file or directory with the objects that plugins find in the cluster. A Namespace among them also gives the
    /// namespace its labels. May be given more than once.
    #[arg(long, value_name = "FILE|DIRECTORY", value_parser = parse_existing_path)]
    pub(crate) cluster: Vec<PathBuf>,
    /// A file with the answers to HTTP requests of plugins, as under `http` in a case of `test`. The requests are not
    /// sent. May be given more than once.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    pub(crate) http: Vec<PathBuf>,
}

impl SurroundingFiles {
    pub(crate) fn simulate(&self, builder: HostBuilder, mut sandbox: SandboxConfig) -> crate::Result<HostBuilder> {
        let manifests = ManifestFiles::new(request_file::read_manifests(&self.cluster)?)?;
        if !self.cluster.is_empty() {
            sandbox.cluster = Some(Arc::new(manifests.clone()));
        }
        let answers = read_http_files(&self.http)?.unwrap_or_default();
        sandbox.http = Some(Arc::new(HttpAnswers::from_iter(answers)));
        Ok(builder.sandbox(sandbox).namespaces(manifests))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.http.is_empty()
    }
}

/// The cluster and the HTTP servers that are simulated for plugins. All clones share this state, and each request
/// replaces it with its own cluster and servers. So only one request may run at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedSurroundings(Arc<RwLock<CurrentSurroundings>>);

#[derive(Clone, Debug, Default)]
struct CurrentSurroundings {
    cluster: Option<ManifestFiles>,
    http: Option<Arc<HttpAnswers>>,
}

impl SimulatedSurroundings {
    pub(crate) fn set_current(&self, surroundings: RequestSurroundings) {
        let RequestSurroundings { cluster, http } = surroundings;
        let http = http.map(|answers| Arc::new(answers.into_iter().collect()));
        *self.0.write() = CurrentSurroundings { cluster, http };
    }

    pub(crate) fn sandbox(&self, config: Option<&Config>) -> SandboxConfig {
        let mut sandbox = host::sandbox_config(config);
        sandbox.calls_in_flight = CALLS_IN_FLIGHT;
        sandbox.cluster = Some(Arc::new(self.clone()));
        sandbox.http = Some(Arc::new(self.clone()));
        sandbox
    }

    fn current_surroundings(&self) -> CurrentSurroundings {
        self.0.read().clone()
    }

    fn cluster_objects(&self) -> Result<ManifestFiles, ClusterError> {
        self.current_surroundings().cluster.ok_or_else(|| {
            ClusterError::Unavailable(
                "what the cluster contains is not known; list its objects under `cluster`".to_owned(),
            )
        })
    }
}

#[async_trait]
impl ClusterReader for SimulatedSurroundings {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        self.cluster_objects()?.get(kind, namespace, name, deadline).await
    }

    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        self.cluster_objects()?.list(kind, query, deadline).await
    }

    async fn check_access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        deadline: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        self.cluster_objects()?.check_access(user, action, deadline).await
    }
}

#[async_trait]
impl NamespaceSource for SimulatedSurroundings {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        self.current_surroundings()
            .cluster
            .unwrap_or_default()
            .labels(namespace)
            .await
    }
}

#[async_trait]
impl HttpSender for SimulatedSurroundings {
    async fn send(
        &self,
        grant: &HttpGrant,
        request: HttpRequest,
        deadline: Deadline,
    ) -> Result<HttpResponse, HttpError> {
        let answers = self.current_surroundings().http.ok_or_else(|| {
            HttpError::Unavailable("what servers answer is not known; list it under `http`".to_owned())
        })?;
        answers.send(grant, request, deadline).await
    }
}

/// Reads a list of answers to HTTP requests. An entry of the list may also name a file with further answers.
pub(crate) fn read_http_answers(node: &Node<'_>) -> Option<Vec<HttpAnswer>> {
    let read_entry = |entry: &Node<'_>| {
        if entry.json().is_string() {
            entry.read_in_file(&entry.file_path()?, |root| root.list_of(read_answer))
        } else {
            Some(vec![read_answer(entry)?])
        }
    };
    Some(node.list_of(read_entry)?.concat())
}

fn read_answer(node: &Node<'_>) -> Option<HttpAnswer> {
    let mut fields = node.object()?;
    let fix = "write the URL of the request, `https://policy.example.com/v1/rules`";
    let url = fields.get_required("url", fix, readers::parse_with(|text: &str| text.parse()));
    let method = fields.get("method", "GET".to_owned(), readers::text);
    let status = fields.get("status", 200, readers::integer(100..=599));
    let headers = fields.get_or_default("headers", Node::string_map);
    let body = fields.optional("body").map(|body| body.json());
    let error = |node: &Node<'_>| {
        let words = [
            ("unavailable", HttpAnswerError::Unavailable),
            ("unreachable", HttpAnswerError::Unreachable),
            ("timeout", HttpAnswerError::Timeout),
            ("tooLarge", HttpAnswerError::TooLarge),
        ];
        node.one_of("error", &words)
    };
    let error = fields.get_optional("error", error);
    Some(HttpAnswer {
        url: url?,
        method,
        status,
        headers,
        body: body.unwrap_or_default(),
        error,
    })
}

fn read_http_files(paths: &[PathBuf]) -> Result<Option<Vec<HttpAnswer>>, Mistakes> {
    let mut mistakes = Mistakes::new();
    let mut answers = Vec::new();
    for path in paths {
        match document::read_value(path, |root| root.list_of(read_answer)) {
            Ok(file_answers) => answers.extend(file_answers),
            Err(file_mistakes) => mistakes.extend(file_mistakes),
        }
    }
    mistakes.into_result((!paths.is_empty()).then_some(answers))
}
