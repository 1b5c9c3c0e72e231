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

const fn route(
    permission: Permission,
    verb: RouteVerb,
    path: &'static str,
    action: RouteAction,
    description: &'static str,
) -> DriverRoute {
    DriverRoute {
        verb,
        path,
        action,
        permission,
        description,
    }
}

const fn scheduler_action(verb: RouteVerb, target: &'static str, body: ForwardedBody) -> RouteAction {
    Scheduler(RouteCall { verb, target, body })
}

const fn definitions_action(verb: RouteVerb, target: &'static str, body: ForwardedBody) -> RouteAction {
    Definitions(RouteCall { verb, target, body })
}

/// All 85 routes of bcs-mesos-driver.
#[rustfmt::skip]
pub(crate) const ROUTES: [DriverRoute; 85] = [
    // Applications.
    route(Write, Post,   "/namespaces/{ns}/applications",                          scheduler_action(Post,   "/v1/apps", Version(Application)), "create an application"),
    route(Write, Put,    "/namespaces/{ns}/applications",                          scheduler_action(Post,   "/v1/apps/{RunAs}/{ID}/update?instances=&args=", Version(Application)), "update an application"),
    route(Write, Delete, "/namespaces/{ns}/applications/{name}",                   scheduler_action(Delete, "/v1/apps/{ns}/{name}?enforce=&kind=application", Nothing), "delete an application"),
    route(Write, Put,    "/namespaces/{ns}/applications/rollback",                 scheduler_action(Post,   "/v1/apps/{RunAs}/{ID}/update?instances={Instances}&kind=application", Version(Application)), "roll an application back"),
    route(Write, Put,    "/namespaces/{ns}/applications/{name}/scale/{instances}", scheduler_action(Post,   "/v1/apps/{ns}/{name}/scale?instances={instances}&kind=application", Nothing), "scale an application"),
    route(Read,  Get,    "/namespaces/{ns}/applications",                          scheduler_action(Get,    "/v1/{ns}/apps?kind=application", Nothing), "list applications"),
    route(Read,  Get,    "/namespaces/{ns}/applications/{name}",                   scheduler_action(Get,    "/v1/apps/{ns}/{name}?kind=application", Nothing), "get an application"),
    // Processes.
    route(Write, Post,   "/namespaces/{ns}/processes",                             scheduler_action(Post,   "/v1/apps", Version(Process)), "create a process"),
    route(Write, Put,    "/namespaces/{ns}/processes",                             scheduler_action(Post,   "/v1/apps/{RunAs}/{ID}/update?instances=&args=", Version(Process)), "update a process"),
    route(Write, Delete, "/namespaces/{ns}/processes/{name}",                      scheduler_action(Delete, "/v1/apps/{ns}/{name}?enforce=&kind=process", Nothing), "delete a process"),
    route(Write, Put,    "/namespaces/{ns}/processes/rollback",                    scheduler_action(Post,   "/v1/apps/{RunAs}/{ID}/update?instances={Instances}&kind=process", Version(Process)), "roll a process back"),
    route(Write, Put,    "/namespaces/{ns}/processes/{name}/scale/{instances}",    scheduler_action(Post,   "/v1/apps/{ns}/{name}/scale?instances={instances}&kind=process", Nothing), "scale a process"),
    route(Read,  Get,    "/namespaces/{ns}/processes",                             scheduler_action(Get,    "/v1/{ns}/apps?kind=process", Nothing), "list processes"),
    route(Read,  Get,    "/namespaces/{ns}/processes/{name}",                      scheduler_action(Get,    "/v1/apps/{ns}/{name}?kind=process", Nothing), "get a process"),
    // Messages, tasks, taskgroups and versions of applications.
    route(Write, Post,   "/namespaces/{ns}/applications/{name}/message",           scheduler_action(Post,   "/v1/apps/{ns}/{name}/message", Message), "send a message to an application"),
    route(Write, Post,   "/namespaces/{ns}/applications/{name}/taskgroups/{taskgroup-name}/message", scheduler_action(Post, "/v1/apps/{ns}/{name}/message/{taskgroup-name}", Message), "send a message to a taskgroup"),
    route(Read,  Get,    "/namespaces/{ns}/applications/{name}/tasks",             scheduler_action(Get,    "/v1/apps/{ns}/{name}/tasks", Nothing), "list the tasks of an application"),
    route(Read,  Get,    "/namespaces/{ns}/applications/{name}/taskgroups",        scheduler_action(Get,    "/v1/apps/{ns}/{name}/taskgroups", Nothing), "list the taskgroups of an application"),
    route(Write, Put,    "/namespaces/{ns}/applications/{appid}/taskgroups/{taskgroupId}/rescheduler", scheduler_action(Put,  "/v1/taskgroup/{taskgroupId}/rescheduler?hostRetainTime=", Nothing), "reschedule a taskgroup"),
    route(Write, Post,   "/namespaces/{ns}/applications/{appid}/taskgroups/{taskGroupID}/restart",     scheduler_action(Post, "/v1/taskgroup/{taskGroupID}/restart", Nothing), "restart a taskgroup"),
    route(Write, Post,   "/namespaces/{ns}/applications/{appid}/taskgroups/{taskGroupID}/reload",      scheduler_action(Post, "/v1/taskgroup/{taskGroupID}/reload", Nothing), "reload a taskgroup"),
    route(Read,  Get,    "/namespaces/{ns}/applications/{name}/versions",          scheduler_action(Get,    "/v1/apps/{ns}/{name}/versions", Nothing), "list the versions of an application"),
    route(Read,  Get,    "/namespaces/{ns}/applications/{name}/versions/{versionid}", scheduler_action(Get, "/v1/apps/{ns}/{name}/versions/{versionid}", Nothing), "get a version of an application"),
    // Config maps, secrets and services.
    route(Write, Post,   "/namespaces/{ns}/configmaps",                            scheduler_action(Post,   "/v1/configmap", Checked(ConfigMap)), "create a config map"),
    route(Write, Put,    "/namespaces/{ns}/configmaps",                            scheduler_action(Put,    "/v1/configmap", Checked(ConfigMap)), "update a config map"),
    route(Write, Delete, "/namespaces/{ns}/configmaps/{name}",                     scheduler_action(Delete, "/v1/configmap/{ns}/{name}", Nothing), "delete a config map"),
    route(Write, Post,   "/namespaces/{ns}/secrets",                               scheduler_action(Post,   "/v1/secret", Checked(Secret)), "create a secret"),
    route(Write, Put,    "/namespaces/{ns}/secrets",                               scheduler_action(Put,    "/v1/secret", Checked(Secret)), "update a secret"),
    route(Write, Delete, "/namespaces/{ns}/secrets/{name}",                        scheduler_action(Delete, "/v1/secret/{ns}/{name}", Nothing), "delete a secret"),
    route(Write, Post,   "/namespaces/{ns}/services",                              scheduler_action(Post,   "/v1/service", Checked(Service)), "create a service"),
    route(Write, Put,    "/namespaces/{ns}/services",                              scheduler_action(Put,    "/v1/service", Checked(Service)), "update a service"),
    route(Write, Delete, "/namespaces/{ns}/services/{name}",                       scheduler_action(Delete, "/v1/service/{ns}/{name}", Nothing), "delete a service"),
    // The cluster as a whole.
    route(Read,  Get,    "/cluster/resources",                                     scheduler_action(Get,    "/v1/cluster/resources", Nothing), "get the resources of the cluster"),
    route(Read,  Get,    "/cluster/endpoints",                                     scheduler_action(Get,    "/v1/cluster/endpoints", Nothing), "get the endpoints of the cluster"),
    route(Read,  Get,    "/cluster/current/offers",                                scheduler_action(Get,    "/v1/cluster/current/offers", Nothing), "get the offers of the cluster"),
    // Deployments.
    route(Write, Post,   "/namespaces/{ns}/deployments",                           scheduler_action(Post,   "/v1/deployment/{metadata.namespace}/{metadata.name}", DeploymentDef), "create a deployment"),
    route(Write, Put,    "/namespaces/{ns}/deployments",                           scheduler_action(Put,    "/v1/deployment/{metadata.namespace}/{metadata.name}?args=", DeploymentDef), "update a deployment"),
    route(Write, Delete, "/namespaces/{ns}/deployments/{name}",                    scheduler_action(Delete, "/v1/deployment/{ns}/{name}?enforce=", Nothing), "delete a deployment"),
    route(Write, Put,    "/namespaces/{ns}/deployments/{name}/cancelupdate",       scheduler_action(Post,   "/v1/deployment/{ns}/{name}/cancelupdate", Nothing), "cancel the update of a deployment"),
    route(Write, Put,    "/namespaces/{ns}/deployments/{name}/pauseupdate",        scheduler_action(Post,   "/v1/deployment/{ns}/{name}/pauseupdate", Nothing), "pause the update of a deployment"),
    route(Write, Put,    "/namespaces/{ns}/deployments/{name}/resumeupdate",       scheduler_action(Post,   "/v1/deployment/{ns}/{name}/resumeupdate", Nothing), "resume the update of a deployment"),
    route(Write, Put,    "/namespaces/{ns}/deployments/{name}/scale/{instances}",  scheduler_action(Put,    "/v1/deployment/{ns}/{name}/scale/{instances:integer}", Nothing), "scale a deployment"),
    // Daemonsets.
    route(Write, Post,   "/namespaces/{ns}/daemonset",                             scheduler_action(Post,   "/v1/daemonsets", DaemonsetDef), "create a daemonset"),
    route(Write, Delete, "/namespaces/{ns}/daemonset/{name}",                      scheduler_action(Delete, "/v1/daemonsets/{ns}/{name}?enforce=", Nothing), "delete a daemonset"),
    // Transactions.
    route(Read,  Get,    "/transactions/{ns}",                                     scheduler_action(Get,    "/v1/transactions/{ns}?objKind=&objName=", Nothing), "list transactions"),
    route(Write, Delete, "/transactions/{ns}/{name}",                              scheduler_action(Delete, "/v1/transactions/{ns}/{name}", Nothing), "delete a transaction"),
    // Settings of agents.
    route(Read,  Get,    "/agentsettings",                                         scheduler_action(Get,    "/v1/agentsettings?ips=", Nothing), "get the settings of agents"),
    route(Write, Delete, "/agentsettings",                                         scheduler_action(Post,   "/v1/agentsettings/delete?ips=", Nothing), "delete the settings of agents"),
    route(Write, Post,   "/agentsettings",                                         scheduler_action(Post,   "/v1/agentsettings", AsIs), "set the settings of agents"),
    route(Write, Post,   "/agentsettings/enable",                                  scheduler_action(Post,   "/v1/agentsettings/enable?ips=", Nothing), "enable agents"),
    route(Write, Post,   "/agentsettings/disable",                                 scheduler_action(Post,   "/v1/agentsettings/disable?ips=", Nothing), "disable agents"),
    route(Write, Put,    "/agentsettings/taint",                                   scheduler_action(Put,    "/v1/agentsettings/taint", AsIs), "taint agents"),
    route(Write, Put,    "/agentsettings/extendedresource",                        scheduler_action(Put,    "/v1/agentsettings/extendedresource", AsIs), "update the extended resources of agents"),
    // Deprecated: custom resources that the scheduler keeps.
    route(Write, Post,   "/crr/register",                                          scheduler_action(Post,   "/v1/crr/register", AsIs), "register a custom resource"),
    route(Write, Post,   "/crd/namespaces/{ns}/{kind}",                            scheduler_action(Post,   "/v1/crd/namespaces/{ns}/{kind}", AsIs), "create a custom resource"),
    route(Write, Put,    "/crd/namespaces/{ns}/{kind}",                            scheduler_action(Put,    "/v1/crd/namespaces/{ns}/{kind}", AsIs), "update a custom resource"),
    route(Write, Delete, "/crd/namespaces/{ns}/{kind}/{name}",                     scheduler_action(Delete, "/v1/crd/namespaces/{ns}/{kind}/{name}", Nothing), "delete a custom resource"),
    route(Read,  Get,    "/crd/namespaces/{ns}/{kind}/{name}",                     scheduler_action(Get,    "/v1/crd/namespaces/{ns}/{kind}/{name}", Nothing), "get a custom resource"),
    route(Read,  Get,    "/crd/namespaces/{ns}/{kind}",                            scheduler_action(Get,    "/v1/crd/namespaces/{ns}/{kind}", Nothing), "list the custom resources of a namespace"),
    route(Read,  Get,    "/crd/{kind}",                                            scheduler_action(Get,    "/v1/crd/{kind}", Nothing), "list all custom resources of a kind"),
    // Images, definitions and commands.
    route(Write, Post,   "/image/commit/{taskgroup}",                              scheduler_action(Post,   "/v1/image/commit/{taskgroup}?image=&url=", Nothing), "commit an image"),
    route(Read,  Get,    "/definition/application/{ns}/{name}",                    scheduler_action(Get,    "/v1/definition/application/{ns}/{name}", Nothing), "get what defined an application"),
    route(Read,  Get,    "/definition/deployment/{ns}/{name}",                     scheduler_action(Get,    "/v1/definition/deployment/{ns}/{name}", Nothing), "get what defined a deployment"),
    route(Write, Post,   "/command/application/{ns}/{name}",                       scheduler_action(Post,   "/v1/command/application/{ns}/{name}", AsIs), "send a command to an application"),
    route(Read,  Get,    "/command/application/{ns}/{name}",                       scheduler_action(Get,    "/v1/command/application/{ns}/{name}?id=", Nothing), "get a command to an application"),
    route(Write, Delete, "/command/application/{ns}/{name}",                       scheduler_action(Delete, "/v1/command/application/{ns}/{name}?id=", Nothing), "delete a command to an application"),
    route(Write, Post,   "/command/deployment/{ns}/{name}",                        scheduler_action(Post,   "/v1/command/deployment/{ns}/{name}", AsIs), "send a command to a deployment"),
    route(Read,  Get,    "/command/deployment/{ns}/{name}",                        scheduler_action(Get,    "/v1/command/deployment/{ns}/{name}?id=", Nothing), "get a command to a deployment"),
    route(Write, Delete, "/command/deployment/{ns}/{name}",                        scheduler_action(Delete, "/v1/command/deployment/{ns}/{name}?id=", Nothing), "delete a command to a deployment"),
    // Definitions of hooks.
    route(Hooks, Post,   "/namespaces/{ns}/admissionwebhook",                      definitions_action(Post,   "/v1/admissionwebhook", Checked(AdmissionWebhook)), "create a definition"),
    route(Hooks, Put,    "/namespaces/{ns}/admissionwebhook",                      definitions_action(Put,    "/v1/admissionwebhook", Checked(AdmissionWebhook)), "update a definition"),
    route(Hooks, Delete, "/namespaces/{ns}/admissionwebhook/{name}",               definitions_action(Delete, "/v1/admissionwebhook/{ns}/{name}", Nothing), "delete a definition"),
    route(Read,  Get,    "/namespaces/{ns}/admissionwebhook/{name}",               definitions_action(Get,    "/v1/admissionwebhook/{ns}/{name}", Nothing), "get a definition"),
    route(Read,  Get,    "/admissionwebhooks",                                     definitions_action(Get,    "/v1/admissionwebhooks", Nothing), "list definitions"),
    // Servers besides the scheduler.
    route(Write, Get,    "/webconsole/{uri:*}",                                    Console, "use a console"),
    route(Write, Post,   "/webconsole/{uri:*}",                                    Console, "use a console"),
    route(Read,  Get,    "/customresourcedefinitions/{name}",                      CustomResourceDefinitions, "get a definition of custom resources"),
    route(Hooks, Delete, "/customresourcedefinitions/{name}",                      CustomResourceDefinitions, "delete a definition of custom resources"),
    route(Hooks, Put,    "/customresourcedefinitions/{name}",                      CustomResourceDefinitions, "update a definition of custom resources"),
    route(Read,  Get,    "/customresourcedefinitions",                             CustomResourceDefinitions, "list definitions of custom resources"),
    route(Hooks, Post,   "/customresourcedefinitions",                             CustomResourceDefinitions, "create a definition of custom resources"),
    route(Read,  Get,    "/customresources/{uri:*}",                               CustomResources, "read custom resources"),
    route(Hooks, Delete, "/customresources/{uri:*}",                               CustomResources, "delete custom resources"),
    route(Hooks, Put,    "/customresources/{uri:*}",                               CustomResources, "update a custom resource"),
    route(Hooks, Post,   "/customresources/{uri:*}",                               CustomResources, "create a custom resource"),
];

/// The routes that bcs-mesos-driver documents but does not implement. Here, they serve the definitions of hooks.
#[rustfmt::skip]
pub(crate) const DOCUMENTED_ROUTES: [DriverRoute; 4] = [
    route(Hooks, Post,   "/crd/namespaces/{ns}/admissionwebhook",                  definitions_action(Post,   "/v1/admissionwebhook", Checked(AdmissionWebhook)), "create a definition"),
    route(Hooks, Put,    "/crd/namespaces/{ns}/admissionwebhook",                  definitions_action(Put,    "/v1/admissionwebhook", Checked(AdmissionWebhook)), "update a definition"),
    route(Hooks, Delete, "/crd/namespaces/{ns}/admissionwebhook/{name}",           definitions_action(Delete, "/v1/admissionwebhook/{ns}/{name}", Nothing), "delete a definition"),
    route(Read,  Get,    "/crd/namespaces/{ns}/admissionwebhook/{name}",           definitions_action(Get,    "/v1/admissionwebhook/{ns}/{name}", Nothing), "get a definition"),
];
