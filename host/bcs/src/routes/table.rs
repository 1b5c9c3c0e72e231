//! The routes of bcs-mesos-driver, in the order of its list. Each route has the request that it sends to the scheduler.
//!
//! A row has, in this order: permission, method, path below `/mesosdriver/v4`, the scheduler's method and path, the
//! handling of the body, and a description. The notation of the scheduler's path is explained at
//! [`SchedulerTarget`](super::target::SchedulerTarget).

use super::{
    DriverRoute,
    ForwardedBody::{self, AsIs, Checked, DaemonsetDef, DeploymentDef, Message, Nothing, Version},
    Permission::{self, Hooks, Read, Write},
    RequiredKind::{AdmissionWebhook, Application, ConfigMap, Process, Secret, Service},
    RouteAction::{self, Console, CustomResourceDefinitions, CustomResources, Definitions, Scheduler},
    RouteCall,
    RouteVerb::{self, Delete, Get, Post, Put},
};

const fn row(
    permission: Permission,
    verb: RouteVerb,
    path: &'static str,
    action: RouteAction,
    does: &'static str,
) -> DriverRoute {
    DriverRoute {
        verb,
        path,
        action,
        permission,
        does,
    }
}

const fn send(verb: RouteVerb, target: &'static str, body: ForwardedBody) -> RouteAction {
    Scheduler(RouteCall { verb, target, body })
}

const fn define(verb: RouteVerb, target: &'static str, body: ForwardedBody) -> RouteAction {
    Definitions(RouteCall { verb, target, body })
}

/// All 85 routes of bcs-mesos-driver.
#[rustfmt::skip]
pub(crate) const ROUTES: [DriverRoute; 85] = [
    // Applications.
    row(Write, Post,   "/namespaces/{ns}/applications",                          send(Post,   "/v1/apps", Version(Application)), "create an application"),
    row(Write, Put,    "/namespaces/{ns}/applications",                          send(Post,   "/v1/apps/{RunAs}/{ID}/update?instances=&args=", Version(Application)), "update an application"),
    row(Write, Delete, "/namespaces/{ns}/applications/{name}",                   send(Delete, "/v1/apps/{ns}/{name}?enforce=&kind=application", Nothing), "delete an application"),
    row(Write, Put,    "/namespaces/{ns}/applications/rollback",                 send(Post,   "/v1/apps/{RunAs}/{ID}/update?instances={Instances}&kind=application", Version(Application)), "roll an application back"),
    row(Write, Put,    "/namespaces/{ns}/applications/{name}/scale/{instances}", send(Post,   "/v1/apps/{ns}/{name}/scale?instances={instances}&kind=application", Nothing), "scale an application"),
    row(Read,  Get,    "/namespaces/{ns}/applications",                          send(Get,    "/v1/{ns}/apps?kind=application", Nothing), "list applications"),
    row(Read,  Get,    "/namespaces/{ns}/applications/{name}",                   send(Get,    "/v1/apps/{ns}/{name}?kind=application", Nothing), "get an application"),
    // Processes.
    row(Write, Post,   "/namespaces/{ns}/processes",                             send(Post,   "/v1/apps", Version(Process)), "create a process"),
    row(Write, Put,    "/namespaces/{ns}/processes",                             send(Post,   "/v1/apps/{RunAs}/{ID}/update?instances=&args=", Version(Process)), "update a process"),
    row(Write, Delete, "/namespaces/{ns}/processes/{name}",                      send(Delete, "/v1/apps/{ns}/{name}?enforce=&kind=process", Nothing), "delete a process"),
    row(Write, Put,    "/namespaces/{ns}/processes/rollback",                    send(Post,   "/v1/apps/{RunAs}/{ID}/update?instances={Instances}&kind=process", Version(Process)), "roll a process back"),
    row(Write, Put,    "/namespaces/{ns}/processes/{name}/scale/{instances}",    send(Post,   "/v1/apps/{ns}/{name}/scale?instances={instances}&kind=process", Nothing), "scale a process"),
    row(Read,  Get,    "/namespaces/{ns}/processes",                             send(Get,    "/v1/{ns}/apps?kind=process", Nothing), "list processes"),
    row(Read,  Get,    "/namespaces/{ns}/processes/{name}",                      send(Get,    "/v1/apps/{ns}/{name}?kind=process", Nothing), "get a process"),
    // Messages, tasks, taskgroups and versions of applications.
    row(Write, Post,   "/namespaces/{ns}/applications/{name}/message",           send(Post,   "/v1/apps/{ns}/{name}/message", Message), "send a message to an application"),
    row(Write, Post,   "/namespaces/{ns}/applications/{name}/taskgroups/{taskgroup-name}/message", send(Post, "/v1/apps/{ns}/{name}/message/{taskgroup-name}", Message), "send a message to a taskgroup"),
    row(Read,  Get,    "/namespaces/{ns}/applications/{name}/tasks",             send(Get,    "/v1/apps/{ns}/{name}/tasks", Nothing), "list the tasks of an application"),
    row(Read,  Get,    "/namespaces/{ns}/applications/{name}/taskgroups",        send(Get,    "/v1/apps/{ns}/{name}/taskgroups", Nothing), "list the taskgroups of an application"),
    row(Write, Put,    "/namespaces/{ns}/applications/{appid}/taskgroups/{taskgroupId}/rescheduler", send(Put,  "/v1/taskgroup/{taskgroupId}/rescheduler?hostRetainTime=", Nothing), "reschedule a taskgroup"),
    row(Write, Post,   "/namespaces/{ns}/applications/{appid}/taskgroups/{taskGroupID}/restart",     send(Post, "/v1/taskgroup/{taskGroupID}/restart", Nothing), "restart a taskgroup"),
    row(Write, Post,   "/namespaces/{ns}/applications/{appid}/taskgroups/{taskGroupID}/reload",      send(Post, "/v1/taskgroup/{taskGroupID}/reload", Nothing), "reload a taskgroup"),
    row(Read,  Get,    "/namespaces/{ns}/applications/{name}/versions",          send(Get,    "/v1/apps/{ns}/{name}/versions", Nothing), "list the versions of an application"),
    row(Read,  Get,    "/namespaces/{ns}/applications/{name}/versions/{versionid}", send(Get, "/v1/apps/{ns}/{name}/versions/{versionid}", Nothing), "get a version of an application"),
    // Config maps, secrets and services.
    row(Write, Post,   "/namespaces/{ns}/configmaps",                            send(Post,   "/v1/configmap", Checked(ConfigMap)), "create a config map"),
    row(Write, Put,    "/namespaces/{ns}/configmaps",                            send(Put,    "/v1/configmap", Checked(ConfigMap)), "update a config map"),
    row(Write, Delete, "/namespaces/{ns}/configmaps/{name}",                     send(Delete, "/v1/configmap/{ns}/{name}", Nothing), "delete a config map"),
    row(Write, Post,   "/namespaces/{ns}/secrets",                               send(Post,   "/v1/secret", Checked(Secret)), "create a secret"),
    row(Write, Put,    "/namespaces/{ns}/secrets",                               send(Put,    "/v1/secret", Checked(Secret)), "update a secret"),
    row(Write, Delete, "/namespaces/{ns}/secrets/{name}",                        send(Delete, "/v1/secret/{ns}/{name}", Nothing), "delete a secret"),
    row(Write, Post,   "/namespaces/{ns}/services",                              send(Post,   "/v1/service", Checked(Service)), "create a service"),
    row(Write, Put,    "/namespaces/{ns}/services",                              send(Put,    "/v1/service", Checked(Service)), "update a service"),
    row(Write, Delete, "/namespaces/{ns}/services/{name}",                       send(Delete, "/v1/service/{ns}/{name}", Nothing), "delete a service"),
    // The cluster as a whole.
    row(Read,  Get,    "/cluster/resources",                                     send(Get,    "/v1/cluster/resources", Nothing), "get the resources of the cluster"),
    row(Read,  Get,    "/cluster/endpoints",                                     send(Get,    "/v1/cluster/endpoints", Nothing), "get the endpoints of the cluster"),
    row(Read,  Get,    "/cluster/current/offers",                                send(Get,    "/v1/cluster/current/offers", Nothing), "get the offers of the cluster"),
    // Deployments.
    row(Write, Post,   "/namespaces/{ns}/deployments",                           send(Post,   "/v1/deployment/{metadata.namespace}/{metadata.name}", DeploymentDef), "create a deployment"),
    row(Write, Put,    "/namespaces/{ns}/deployments",                           send(Put,    "/v1/deployment/{metadata.namespace}/{metadata.name}?args=", DeploymentDef), "update a deployment"),
    row(Write, Delete, "/namespaces/{ns}/deployments/{name}",                    send(Delete, "/v1/deployment/{ns}/{name}?enforce=", Nothing), "delete a deployment"),
    row(Write, Put,    "/namespaces/{ns}/deployments/{name}/cancelupdate",       send(Post,   "/v1/deployment/{ns}/{name}/cancelupdate", Nothing), "cancel the update of a deployment"),
    row(Write, Put,    "/namespaces/{ns}/deployments/{name}/pauseupdate",        send(Post,   "/v1/deployment/{ns}/{name}/pauseupdate", Nothing), "pause the update of a deployment"),
    row(Write, Put,    "/namespaces/{ns}/deployments/{name}/resumeupdate",       send(Post,   "/v1/deployment/{ns}/{name}/resumeupdate", Nothing), "resume the update of a deployment"),
    row(Write, Put,    "/namespaces/{ns}/deployments/{name}/scale/{instances}",  send(Put,    "/v1/deployment/{ns}/{name}/scale/{instances:integer}", Nothing), "scale a deployment"),
    // Daemonsets.
    row(Write, Post,   "/namespaces/{ns}/daemonset",                             send(Post,   "/v1/daemonsets", DaemonsetDef), "create a daemonset"),
    row(Write, Delete, "/namespaces/{ns}/daemonset/{name}",                      send(Delete, "/v1/daemonsets/{ns}/{name}?enforce=", Nothing), "delete a daemonset"),
    // Transactions.
    row(Read,  Get,    "/transactions/{ns}",                                     send(Get,    "/v1/transactions/{ns}?objKind=&objName=", Nothing), "list transactions"),
    row(Write, Delete, "/transactions/{ns}/{name}",                              send(Delete, "/v1/transactions/{ns}/{name}", Nothing), "delete a transaction"),
    // Settings of agents.
    row(Read,  Get,    "/agentsettings",                                         send(Get,    "/v1/agentsettings?ips=", Nothing), "get the settings of agents"),
    row(Write, Delete, "/agentsettings",                                         send(Post,   "/v1/agentsettings/delete?ips=", Nothing), "delete the settings of agents"),
    row(Write, Post,   "/agentsettings",                                         send(Post,   "/v1/agentsettings", AsIs), "set the settings of agents"),
    row(Write, Post,   "/agentsettings/enable",                                  send(Post,   "/v1/agentsettings/enable?ips=", Nothing), "enable agents"),
    row(Write, Post,   "/agentsettings/disable",                                 send(Post,   "/v1/agentsettings/disable?ips=", Nothing), "disable agents"),
    row(Write, Put,    "/agentsettings/taint",                                   send(Put,    "/v1/agentsettings/taint", AsIs), "taint agents"),
    row(Write, Put,    "/agentsettings/extendedresource",                        send(Put,    "/v1/agentsettings/extendedresource", AsIs), "update the extended resources of agents"),
    // Deprecated: custom resources that the scheduler keeps.
    row(Write, Post,   "/crr/register",                                          send(Post,   "/v1/crr/register", AsIs), "register a custom resource"),
    row(Write, Post,   "/crd/namespaces/{ns}/{kind}",                            send(Post,   "/v1/crd/namespaces/{ns}/{kind}", AsIs), "create a custom resource"),
    row(Write, Put,    "/crd/namespaces/{ns}/{kind}",                            send(Put,    "/v1/crd/namespaces/{ns}/{kind}", AsIs), "update a custom resource"),
    row(Write, Delete, "/crd/namespaces/{ns}/{kind}/{name}",                     send(Delete, "/v1/crd/namespaces/{ns}/{kind}/{name}", Nothing), "delete a custom resource"),
    row(Read,  Get,    "/crd/namespaces/{ns}/{kind}/{name}",                     send(Get,    "/v1/crd/namespaces/{ns}/{kind}/{name}", Nothing), "get a custom resource"),
    row(Read,  Get,    "/crd/namespaces/{ns}/{kind}",                            send(Get,    "/v1/crd/namespaces/{ns}/{kind}", Nothing), "list the custom resources of a namespace"),
    row(Read,  Get,    "/crd/{kind}",                                            send(Get,    "/v1/crd/{kind}", Nothing), "list all custom resources of a kind"),
    // Images, definitions and commands.
    row(Write, Post,   "/image/commit/{taskgroup}",                              send(Post,   "/v1/image/commit/{taskgroup}?image=&url=", Nothing), "commit an image"),
    row(Read,  Get,    "/definition/application/{ns}/{name}",                    send(Get,    "/v1/definition/application/{ns}/{name}", Nothing), "get what defined an application"),
    row(Read,  Get,    "/definition/deployment/{ns}/{name}",                     send(Get,    "/v1/definition/deployment/{ns}/{name}", Nothing), "get what defined a deployment"),
    row(Write, Post,   "/command/application/{ns}/{name}",                       send(Post,   "/v1/command/application/{ns}/{name}", AsIs), "send a command to an application"),
    row(Read,  Get,    "/command/application/{ns}/{name}",                       send(Get,    "/v1/command/application/{ns}/{name}?id=", Nothing), "get a command to an application"),
    row(Write, Delete, "/command/application/{ns}/{name}",                       send(Delete, "/v1/command/application/{ns}/{name}?id=", Nothing), "delete a command to an application"),
    row(Write, Post,   "/command/deployment/{ns}/{name}",                        send(Post,   "/v1/command/deployment/{ns}/{name}", AsIs), "send a command to a deployment"),
    row(Read,  Get,    "/command/deployment/{ns}/{name}",                        send(Get,    "/v1/command/deployment/{ns}/{name}?id=", Nothing), "get a command to a deployment"),
    row(Write, Delete, "/command/deployment/{ns}/{name}",                        send(Delete, "/v1/command/deployment/{ns}/{name}?id=", Nothing), "delete a command to a deployment"),
    // Definitions of hooks.
    row(Hooks, Post,   "/namespaces/{ns}/admissionwebhook",                      define(Post,   "/v1/admissionwebhook", Checked(AdmissionWebhook)), "create a definition"),
    row(Hooks, Put,    "/namespaces/{ns}/admissionwebhook",                      define(Put,    "/v1/admissionwebhook", Checked(AdmissionWebhook)), "update a definition"),
    row(Hooks, Delete, "/namespaces/{ns}/admissionwebhook/{name}",               define(Delete, "/v1/admissionwebhook/{ns}/{name}", Nothing), "delete a definition"),
    row(Read,  Get,    "/namespaces/{ns}/admissionwebhook/{name}",               define(Get,    "/v1/admissionwebhook/{ns}/{name}", Nothing), "get a definition"),
    row(Read,  Get,    "/admissionwebhooks",                                     define(Get,    "/v1/admissionwebhooks", Nothing), "list definitions"),
    // Servers besides the scheduler.
    row(Write, Get,    "/webconsole/{uri:*}",                                    Console, "use a console"),
    row(Write, Post,   "/webconsole/{uri:*}",                                    Console, "use a console"),
    row(Read,  Get,    "/customresourcedefinitions/{name}",                      CustomResourceDefinitions, "get a definition of custom resources"),
    row(Hooks, Delete, "/customresourcedefinitions/{name}",                      CustomResourceDefinitions, "delete a definition of custom resources"),
    row(Hooks, Put,    "/customresourcedefinitions/{name}",                      CustomResourceDefinitions, "update a definition of custom resources"),
    row(Read,  Get,    "/customresourcedefinitions",                             CustomResourceDefinitions, "list definitions of custom resources"),
    row(Hooks, Post,   "/customresourcedefinitions",                             CustomResourceDefinitions, "create a definition of custom resources"),
    row(Read,  Get,    "/customresources/{uri:*}",                               CustomResources, "read custom resources"),
    row(Hooks, Delete, "/customresources/{uri:*}",                               CustomResources, "delete custom resources"),
    row(Hooks, Put,    "/customresources/{uri:*}",                               CustomResources, "update a custom resource"),
    row(Hooks, Post,   "/customresources/{uri:*}",                               CustomResources, "create a custom resource"),
];

/// The routes that bcs-mesos-driver documents but does not implement. Here, they serve the definitions of hooks.
#[rustfmt::skip]
pub(crate) const DOCUMENTED: [DriverRoute; 4] = [
    row(Hooks, Post,   "/crd/namespaces/{ns}/admissionwebhook",                  define(Post,   "/v1/admissionwebhook", Checked(AdmissionWebhook)), "create a definition"),
    row(Hooks, Put,    "/crd/namespaces/{ns}/admissionwebhook",                  define(Put,    "/v1/admissionwebhook", Checked(AdmissionWebhook)), "update a definition"),
    row(Hooks, Delete, "/crd/namespaces/{ns}/admissionwebhook/{name}",           define(Delete, "/v1/admissionwebhook/{ns}/{name}", Nothing), "delete a definition"),
    row(Read,  Get,    "/crd/namespaces/{ns}/admissionwebhook/{name}",           define(Get,    "/v1/admissionwebhook/{ns}/{name}", Nothing), "get a definition"),
];
