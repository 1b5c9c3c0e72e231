//! What a route of the driver is. The routes themselves are in [`table`](super::table).

use http::Method;

use super::target::Target;

/// The methods that the driver has routes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads.
    Get,
    /// Creates, or does something.
    Post,
    /// Changes.
    Put,
    /// Deletes.
    Delete,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Get, Self::Post, Self::Put, Self::Delete];

    /// Whether a body says what is to be.
    pub(super) fn creates_or_changes(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }

    /// As HTTP has it.
    pub fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Delete => Method::DELETE,
        }
    }
}

/// One route of the driver, and what becomes of a request to it. Constant.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// Below `/mesosdriver/v4`, with parameters: `/namespaces/{ns}/applications`. `{uri:*}` takes the rest
    /// of the path.
    pub path: &'static str,
    /// What becomes of the request.
    pub action: Action,
    /// What the route does, in a few words.
    pub does: &'static str,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The scheduler is asked.
    Scheduler(Call),
    /// It changes or reads the definitions of hooks. The original asks the scheduler, which keeps them, with
    /// this call.
    Definitions(Call),
    /// A console on a host of the cluster is asked.
    Console,
    /// The kube-apiserver is asked for definitions of custom resources.
    CustomResourceDefinitions,
    /// The kube-apiserver is asked for custom resources.
    CustomResources,
}

/// A request to the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its method.
    pub verb: Verb,
    /// Its path and query, with places to fill in: `/v1/apps/{ns}/{name}/scale?instances={instances}`. A
    /// parameter of the query without a value is the request's own.
    pub target: &'static str,
    /// What becomes of the body.
    pub body: Body,
}

impl Call {
    /// Where it goes. `None` only for a target that is not in the notation, of which there is none in the
    /// table.
    pub(super) fn target(&self) -> Option<Target> {
        Target::parse(self.target)
    }
}

/// What becomes of the body of a request to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None is sent.
    Nothing,
    /// It goes on as it is, unread.
    AsIs,
    /// It goes on as it is, once its kind is this one.
    Checked(Kind),
    /// An application or process becomes the scheduler's `Version`.
    Version(Kind),
    /// A deployment becomes the scheduler's `DeploymentDef`.
    DeploymentDef,
    /// A daemonset becomes the scheduler's `BcsDaemonsetDef`.
    DaemonsetDef,
    /// A message becomes the scheduler's `BcsMessage`.
    Message,
}

/// The kinds that routes ask for, to the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `application`.
    Application,
    /// `process`.
    Process,
    /// `deployment`.
    Deployment,
    /// `daemonset`.
    Daemonset,
    /// `configmap`.
    ConfigMap,
    /// `secret`.
    Secret,
    /// `service`.
    Service,
    /// `admissionwebhook`.
    AdmissionWebhook,
}

impl Kind {
    /// As it stands in a body.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Process => "process",
            Self::Deployment => "deployment",
            Self::Daemonset => "daemonset",
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Service => "service",
            Self::AdmissionWebhook => "admissionwebhook",
        }
    }
}
