//! The routes of bcs-mesos-driver: what a route is, the table of them, and which one a request is for.

mod lookup;
pub(crate) mod table;
mod target;

use http::Method;

#[cfg(test)]
pub(crate) use self::lookup::pattern;
pub use self::lookup::{Lookup, Matched, lookup};
use self::target::Target;
pub(crate) use self::target::{Address, SEGMENT, first};
use crate::Permission;

pub(crate) const PREFIX: &str = "/mesosdriver/v4";

/// The routes of the driver: those of the original, in its order, and those that its documents have beside them.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    table::ROUTES.iter().chain(&table::DOCUMENTED)
}

/// The methods that the driver has routes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub const ALL: [Self; 4] = [Self::Get, Self::Post, Self::Put, Self::Delete];

    /// Whether a body says what is to be.
    pub(crate) fn creates_or_changes(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }

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
    pub verb: Verb,
    /// Below `/mesosdriver/v4`, with parameters: `/namespaces/{ns}/applications`. `{uri:*}` takes the rest
    /// of the path.
    pub path: &'static str,
    pub action: Action,
    /// What the holder of a token must be allowed for it.
    pub permission: Permission,
    /// What the route does, in a few words.
    pub does: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Action {
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

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub verb: Verb,
    /// Its path and query, with places to fill in: `/v1/apps/{ns}/{name}/scale?instances={instances}`. A
    /// parameter of the query without a value is the request's own.
    pub target: &'static str,
    pub body: Body,
}

impl Call {
    /// Where it goes. `None` only for a target that is not in the notation, of which there is none in the
    /// table.
    pub(crate) fn target(&self) -> Option<Target> {
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
    Application,
    Process,
    Deployment,
    Daemonset,
    ConfigMap,
    Secret,
    Service,
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
