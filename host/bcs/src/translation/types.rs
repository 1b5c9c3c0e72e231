//! The types that bcs-mesos-driver decodes, as tables. A table has the keys of a type in the documented spelling, and
//! the type of each value. The types are defined in the package `types` of bcs-common, in the files `rc.go`,
//! `deployment.go`, `daemonset.go`, `meta.go` and `constraint.go`.

use super::go::{
    Field,
    GoType::{self, Any, Flag, Integer, List, Number, Struct, Text, Texts, Time},
    Width::{Signed32, Signed64, Unsigned32, Unsigned64},
};

pub(crate) const TYPE_META: GoType = Struct(&[Field("apiVersion", Text), Field("kind", Text)]);

/// BCS's type `ReplicaController`, for applications and processes.
pub(crate) const REPLICA_CONTROLLER: GoType = Struct(&[
    Field("apiVersion", Text),
    Field("kind", Text),
    Field("metadata", OBJECT_META),
    Field("spec", WORKLOAD_SPEC),
    Field("updatePolicy", UPDATE_POLICY),
    Field("restartPolicy", RESTART_POLICY),
    Field("killPolicy", KILL_POLICY),
    Field("constraint", CONSTRAINT),
]);

pub(crate) const DEPLOYMENT: GoType = Struct(&[
    Field("apiVersion", Text),
    Field("kind", Text),
    Field("metadata", OBJECT_META),
    Field(
        "spec",
        Struct(&[
            Field("instance", Integer(Signed32)),
            Field("selector", Texts),
            Field("template", POD_TEMPLATE),
            Field("strategy", STRATEGY),
            Field("pauseDeployment", Flag),
        ]),
    ),
    Field("updatePolicy", UPDATE_POLICY),
    Field("restartPolicy", RESTART_POLICY),
    Field("killPolicy", KILL_POLICY),
    Field("constraint", CONSTRAINT),
]);

pub(crate) const DAEMONSET: GoType = Struct(&[
    Field("apiVersion", Text),
    Field("kind", Text),
    Field("metadata", OBJECT_META),
    Field("spec", WORKLOAD_SPEC),
    Field("restartPolicy", RESTART_POLICY),
    Field("killPolicy", KILL_POLICY),
]);

/// BCS's type `SendMsgOpeParam`, for a message to an application.
pub(crate) const MESSAGE: GoType = Struct(&[
    Field("name", Text),
    Field("namespace", Text),
    Field("setid", Text),
    Field("moduleid", Text),
    Field("msgtype", Text),
    Field("msgdata", Any),
    Field("taskgroupid", Text),
]);

const WORKLOAD_SPEC: GoType = Struct(&[
    Field("instance", Integer(Signed32)),
    Field("selector", Texts),
    Field("template", POD_TEMPLATE),
]);

const OBJECT_META: GoType = Struct(&[
    Field("name", Text),
    Field("namespace", Text),
    Field("creationTimestamp", Time),
    Field("labels", Texts),
    Field("annotations", Texts),
    Field("clusterName", Text),
]);

const UPDATE_POLICY: GoType = Struct(&[
    Field("updateDelay", Integer(Signed64)),
    Field("maxRetries", Integer(Signed64)),
    Field("maxFailovers", Integer(Signed64)),
    Field("action", Text),
]);

const RESTART_POLICY: GoType = Struct(&[
    Field("policy", Text),
    Field("interval", Integer(Signed64)),
    Field("backoff", Integer(Signed64)),
    Field("maxtimes", Integer(Signed64)),
    Field("hostRetainTime", Integer(Signed64)),
]);

const KILL_POLICY: GoType = Struct(&[Field("gracePeriod", Integer(Signed64))]);

const STRATEGY: GoType = Struct(&[
    Field("type", Text),
    Field(
        "rollingupdate",
        Struct(&[
            Field("maxUnavilable", Integer(Signed64)),
            Field("maxSurge", Integer(Signed64)),
            Field("upgradeDuration", Integer(Unsigned32)),
            Field("rollingManually", Flag),
            Field("rollingOrder", Text),
        ]),
    ),
]);

const CONSTRAINT: GoType = Struct(&[
    Field("intersectionItem", List(&CONSTRAINT_ITEM)),
    Field("nodeSelector", Texts),
]);

const CONSTRAINT_ITEM: GoType = Struct(&[Field("unionData", List(&CONSTRAINT_DATA))]);

const CONSTRAINT_DATA: GoType = Struct(&[
    Field("name", Text),
    Field("operate", Text),
    Field("type", Integer(Signed32)),
    Field("scalar", Struct(&[Field("value", Number)])),
    Field("ranges", List(&RANGE)),
    Field("text", Struct(&[Field("value", Text)])),
    Field("set", Struct(&[Field("item", List(&Text))])),
]);

const RANGE: GoType = Struct(&[Field("begin", Integer(Unsigned64)), Field("end", Integer(Unsigned64))]);

const POD_TEMPLATE: GoType = Struct(&[
    Field("metadata", OBJECT_META),
    Field(
        "spec",
        Struct(&[
            Field("nodeSelector", Texts),
            Field("containers", List(&CONTAINER)),
            Field("processes", List(&PROCESS)),
            Field("networkMode", Text),
            Field("networkType", Text),
            Field("netLimit", Struct(&[Field("egressLimit", Integer(Signed64))])),
        ]),
    ),
]);

const CONTAINER: GoType = Struct(&[
    Field("name", Text),
    Field("hostname", Text),
    Field("command", Text),
    Field("args", List(&Text)),
    Field("parameters", List(&KEY_VALUE)),
    Field("type", Text),
    Field("image", Text),
    Field("imagePullUser", Text),
    Field("imagePullPasswd", Text),
    Field("imagePullPolicy", Text),
    Field("privileged", Flag),
    Field("env", List(&ENVIRONMENT)),
    Field("workingDir", Text),
    Field("ports", List(&PORT)),
    Field("healthChecks", List(&HEALTH_CHECK)),
    Field("resources", RESOURCES),
    Field("volumes", List(&VOLUME)),
    Field("configmaps", List(&CONFIG_MAP)),
    Field("secrets", List(&SECRET)),
]);

const PROCESS: GoType = Struct(&[
    Field("procName", Text),
    Field("workPath", Text),
    Field("uris", List(&URI)),
    Field("pidFile", Text),
    Field("startCmd", Text),
    Field("checkCmd", Text),
    Field("stopCmd", Text),
    Field("restartCmd", Text),
    Field("reloadCmd", Text),
    Field("killCmd", Text),
    Field("logPath", Text),
    Field("cfgPath", Text),
    Field("user", Text),
    Field("procGroup", Text),
    Field("env", List(&ENVIRONMENT)),
    Field("healthChecks", List(&HEALTH_CHECK)),
    Field("resources", RESOURCES),
    Field("configmaps", List(&CONFIG_MAP)),
    Field("secrets", List(&SECRET)),
    Field("ports", List(&PORT)),
    Field("startGracePeriod", Integer(Signed64)),
]);

/// BCS's type declares no JSON keys for these fields, so they are spelled as in the documentation, in lower case.
const URI: GoType = Struct(&[
    Field("value", Text),
    Field("user", Text),
    Field("pwd", Text),
    Field("outputDir", Text),
]);

const KEY_VALUE: GoType = Struct(&[Field("key", Text), Field("value", Text)]);

const ENVIRONMENT: GoType = Struct(&[
    Field("name", Text),
    Field("value", Text),
    Field(
        "valueFrom",
        Struct(&[Field("resourceFieldRef", Struct(&[Field("resource", Text)]))]),
    ),
]);

const PORT: GoType = Struct(&[
    Field("name", Text),
    Field("hostPort", Integer(Signed32)),
    Field("containerPort", Integer(Signed32)),
    Field("hostIP", Text),
    Field("protocol", Text),
]);

const HEALTH_CHECK: GoType = Struct(&[
    Field("type", Text),
    Field("delaySeconds", Integer(Signed64)),
    Field("gracePeriodSeconds", Integer(Signed64)),
    Field("intervalSeconds", Integer(Signed64)),
    Field("timeoutSeconds", Integer(Signed64)),
    Field("consecutiveFailures", Integer(Unsigned32)),
    Field("command", Struct(&[Field("value", Text)])),
    Field(
        "http",
        Struct(&[
            Field("port", Integer(Signed32)),
            Field("portName", Text),
            Field("scheme", Text),
            Field("path", Text),
            Field("headers", Texts),
        ]),
    ),
    Field(
        "tcp",
        Struct(&[Field("port", Integer(Signed32)), Field("portName", Text)]),
    ),
]);

const RESOURCES: GoType = Struct(&[
    Field("limits", QUANTITIES),
    Field("requests", QUANTITIES),
    Field("extendedResources", List(&EXTENDED_RESOURCE)),
]);

const QUANTITIES: GoType = Struct(&[Field("cpu", Text), Field("memory", Text), Field("storage", Text)]);

const EXTENDED_RESOURCE: GoType = Struct(&[Field("name", Text), Field("value", Number)]);

const VOLUME: GoType = Struct(&[
    Field("name", Text),
    Field(
        "volume",
        Struct(&[
            Field("hostPath", Text),
            Field("mountPath", Text),
            Field("subPath", Text),
            Field("readOnly", Flag),
        ]),
    ),
]);

const CONFIG_MAP: GoType = Struct(&[Field("name", Text), Field("items", List(&CONFIG_MAP_ITEM))]);

const CONFIG_MAP_ITEM: GoType = Struct(&[
    Field("type", Text),
    Field("dataKey", Text),
    Field("dataKeyAlias", Text),
    Field("keyOrPath", Text),
    Field("subPath", Text),
    Field("readOnly", Flag),
    Field("user", Text),
]);

const SECRET: GoType = Struct(&[Field("secretName", Text), Field("items", List(&SECRET_ITEM))]);

const SECRET_ITEM: GoType = Struct(&[
    Field("type", Text),
    Field("dataKey", Text),
    Field("keyOrPath", Text),
    Field("subPath", Text),
    Field("readOnly", Flag),
    Field("user", Text),
]);
