//! The routes of bcs-mesos-driver, their table, and the lookup of a request's route.

mod lookup;
pub(crate) mod table;
mod target;

use admittance_admission::keywords;
use http::Method;

pub(crate) use self::lookup::needs_kind;
#[cfg(test)]
pub(crate) use self::lookup::pattern;
pub use self::lookup::{Matched, RouteLookup, lookup};
use self::target::Target;
pub(crate) use self::target::{Address, SEGMENT, first};

pub const PREFIX: &str = "/mesosdriver/v4";

/// Returns the routes of bcs-mesos-driver, in its order, and then the routes that exist only in its documentation.
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

    /// Returns whether the body of a request with this method is the object to create or update.
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

/// One route of the driver, and the handling of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub verb: Verb,
    /// The path below `/mesosdriver/v4`, such as `/namespaces/{ns}/applications`. `{uri:*}` is the rest of the path.
    pub path: &'static str,
    pub action: Action,
    pub permission: Permission,
    pub does: &'static str,
}

/// A permission that a token has for a cluster. A greater permission includes the lesser ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Allows read requests on the routes of a driver.
    Read,
    /// Also allows changes of workloads: everything that the scheduler does, consoles, and the custom resources of
    /// groups that the gateway's configuration lists.
    Write,
    /// Also allows everything else: unknown routes, and changes of whatever controls the admission of all requests,
    /// such as the definitions of hooks.
    Hooks,
}

keywords!(Permission, "permission": Read = "Read", Write = "Write", Hooks = "Hooks");

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Scheduler(Call),
    /// Changes or reads the definitions of hooks. bcs-mesos-driver sends this call to the scheduler, which stores them.
    Definitions(Call),
    /// Forwarded to a console on a host of the cluster.
    Console,
    /// Forwarded to the kube-apiserver: definitions of custom resources.
    CustomResourceDefinitions,
    /// Forwarded to the kube-apiserver: custom resources.
    CustomResources,
}

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub verb: Verb,
    /// The path and query for the scheduler, such as `/v1/apps/{ns}/{name}/scale?instances={instances}`. A query
    /// parameter without a value is copied from the client's request.
    pub target: &'static str,
    pub body: Body,
}

impl Call {
    /// Parses the target; `None` if it is invalid. A test checks that the targets of all routes are valid.
    pub(crate) fn target(&self) -> Option<Target> {
        Target::parse(self.target)
    }
}

/// The origin of the body that the scheduler gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body is sent.
    Nothing,
    /// The body is forwarded unread.
    AsIs,
    /// The body is forwarded unchanged if it has this kind.
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

impl Body {
    /// Returns whether the object in the body must name its kind.
    fn needs_kind(self) -> bool {
        match self {
            Self::Nothing | Self::AsIs | Self::Message => false,
            Self::Checked(_) | Self::Version(_) | Self::DeploymentDef | Self::DaemonsetDef => true,
        }
    }
}

/// The kinds that routes require, in exact case.
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

keywords!(Kind, "kind": Application = "application", Process = "process", Deployment = "deployment",
    Daemonset = "daemonset", ConfigMap = "configmap", Secret = "secret", Service = "service",
    AdmissionWebhook = "admissionwebhook");
