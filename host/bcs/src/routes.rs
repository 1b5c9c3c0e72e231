//! The table of bcs-mesos-driver's routes, and the lookup of a request's route in it.

mod lookup;
pub(crate) mod table;
mod target;

use admittance_admission::keywords;
use http::Method;

pub(crate) use self::lookup::needs_kind;
#[cfg(test)]
pub(crate) use self::lookup::router_pattern;
pub use self::lookup::{MatchedTarget, RouteLookup, lookup};
use self::target::SchedulerTarget;
pub(crate) use self::target::{SEGMENT, TargetValues, query_value};

pub const PREFIX: &str = "/mesosdriver/v4";

/// Returns all routes: first those that bcs-mesos-driver implements, in the order of its own list, and then those that
/// exist only in its documentation.
pub fn routes() -> impl Iterator<Item = &'static DriverRoute> {
    table::ROUTES.iter().chain(&table::DOCUMENTED_ROUTES)
}

/// The methods of bcs-mesos-driver's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteVerb {
    Get,
    Post,
    Put,
    Delete,
}

impl RouteVerb {
    pub const ALL: [Self; 4] = [Self::Get, Self::Post, Self::Put, Self::Delete];

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

/// A route of bcs-mesos-driver: the requests that match it, and how they are handled.
#[derive(Clone, Copy, Debug)]
pub struct DriverRoute {
    pub verb: RouteVerb,
    /// The path below `/mesosdriver/v4`, such as `/namespaces/{ns}/applications`. `{uri:*}` is the rest of the path.
    pub path: &'static str,
    pub action: RouteAction,
    pub permission: Permission,
    pub description: &'static str,
}

/// The permission of a token for a cluster. Each permission includes those before it in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Allows read requests on the routes of bcs-mesos-driver.
    Read,
    /// Includes `Read`, and allows changes of workloads: all writes to the scheduler, the use of consoles, and changes
    /// of those custom resources whose groups are listed in the gateway's configuration.
    Write,
    /// Includes `Write`, and allows everything else: requests for unknown routes, and changes of what controls
    /// admission, such as the definitions of hooks.
    Hooks,
}

keywords!(Permission, "permission": Read = "Read", Write = "Write", Hooks = "Hooks");

#[derive(Clone, Copy, Debug)]
pub enum RouteAction {
    Scheduler(RouteCall),
    /// The request reads or changes definitions of hooks, and this program answers it. bcs-mesos-driver would make this
    /// call to the scheduler instead.
    Definitions(RouteCall),
    /// The request is forwarded to a console on a host of the cluster.
    Console,
    /// The request is for definitions of custom resources, and is forwarded to the kube-apiserver.
    CustomResourceDefinitions,
    /// The request is for custom resources, and is forwarded to the kube-apiserver.
    CustomResources,
}

#[derive(Clone, Copy, Debug)]
pub struct RouteCall {
    pub verb: RouteVerb,
    /// The path and query of the request to the scheduler, such as `/v1/apps/{ns}/{name}/scale?instances={instances}`.
    /// A query parameter without a value gets its value from the client's request.
    pub target: &'static str,
    pub body: ForwardedBody,
}

impl RouteCall {
    /// Returns the parsed template of the scheduler's path and query. Never `None`: a test checks all templates.
    pub(crate) fn target(&self) -> Option<SchedulerTarget> {
        SchedulerTarget::parse(self.target)
    }
}

/// The way in which the body of the request to the scheduler is made from the client's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedBody {
    /// The request to the scheduler has no body.
    Nothing,
    /// The client's body is forwarded unchanged, without being parsed.
    AsIs,
    /// The client's body is forwarded unchanged, but must contain an object of this kind.
    Checked(RequiredKind),
    /// The application or process in the client's body is translated to the scheduler's `Version`.
    Version(RequiredKind),
    /// The deployment in the client's body is translated to the scheduler's `DeploymentDef`.
    DeploymentDef,
    /// The daemonset in the client's body is translated to the scheduler's `BcsDaemonsetDef`.
    DaemonsetDef,
    /// The message in the client's body is translated to the scheduler's `BcsMessage`.
    Message,
}

impl ForwardedBody {
    fn needs_kind(self) -> bool {
        match self {
            Self::Nothing | Self::AsIs | Self::Message => false,
            Self::Checked(_) | Self::Version(_) | Self::DeploymentDef | Self::DaemonsetDef => true,
        }
    }
}

/// The kinds of objects that routes require. Their case must be exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequiredKind {
    Application,
    Process,
    Deployment,
    Daemonset,
    ConfigMap,
    Secret,
    Service,
    AdmissionWebhook,
}

keywords!(RequiredKind, "kind": Application = "application", Process = "process", Deployment = "deployment",
    Daemonset = "daemonset", ConfigMap = "configmap", Secret = "secret", Service = "service",
    AdmissionWebhook = "admissionwebhook");
