//! The types of the original scheduler's objects, as far as the fake scheduler checks them. They come from its files
//! `schetypes/application.go`, `deployment.go` and `daemonset.go`. Their fields have the names of the Go fields. All
//! fields of a `Version` are always present.

use super::shape::{
    BodyShape::{self, Flag, List, Number, Object, OneOf, StringMap, Text, Whole},
    SchedulerField, may, must,
};

const METADATA: BodyShape = Object(&[
    SchedulerField("name", must(&Text)),
    SchedulerField("namespace", must(&Text)),
    SchedulerField("creationTimestamp", may(&Text)),
    SchedulerField("labels", may(&StringMap)),
    SchedulerField("annotations", may(&StringMap)),
    SchedulerField("clusterName", may(&Text)),
]);

/// The type of an object that the scheduler stores unchanged. Only its metadata are checked.
pub(super) const NAMED: BodyShape = Object(&[SchedulerField("metadata", must(&METADATA))]);

const RESOURCES: BodyShape = Object(&[
    SchedulerField("Cpus", must(&Number)),
    SchedulerField("Mem", must(&Number)),
    SchedulerField("Disk", must(&Number)),
]);

const PORT_MAPPING: BodyShape = Object(&[
    SchedulerField("ContainerPort", must(&Whole)),
    SchedulerField("HostPort", must(&Whole)),
    SchedulerField("Name", must(&Text)),
    SchedulerField("Protocol", must(&Text)),
]);

const DOCKER: BodyShape = Object(&[
    SchedulerField("Hostname", must(&Text)),
    SchedulerField("ForcePullImage", must(&Flag)),
    SchedulerField("Image", must(&Text)),
    SchedulerField("ImagePullUser", must(&Text)),
    SchedulerField("ImagePullPasswd", must(&Text)),
    SchedulerField("Network", must(&Text)),
    SchedulerField("NetworkType", must(&Text)),
    SchedulerField("Command", must(&Text)),
    SchedulerField("Arguments", must(&List(&Text))),
    SchedulerField("Parameters", must(&List(&Object(&[])))),
    SchedulerField("PortMappings", must(&List(&PORT_MAPPING))),
    SchedulerField("Env", must(&StringMap)),
    SchedulerField("Privileged", must(&Flag)),
]);

const VOLUME: BodyShape = Object(&[
    SchedulerField("ContainerPath", must(&Text)),
    SchedulerField("HostPath", must(&Text)),
    SchedulerField("Mode", must(&OneOf(&["RW", "R"]))),
]);

const CONTAINER: BodyShape = Object(&[
    SchedulerField("Type", must(&Text)),
    SchedulerField("Docker", must(&DOCKER)),
    SchedulerField("Volumes", must(&List(&VOLUME))),
    SchedulerField("Resources", must(&RESOURCES)),
    SchedulerField("LimitResoures", must(&RESOURCES)),
    SchedulerField("ConfigMaps", must(&List(&Object(&[])))),
    SchedulerField("Secrets", must(&List(&Object(&[])))),
    SchedulerField("HealthChecks", must(&List(&Object(&[])))),
]);

const POLICIES: [BodyShape; 2] = [
    Object(&[SchedulerField("gracePeriod", must(&Whole))]),
    Object(&[
        SchedulerField("policy", must(&OneOf(&["OnFailure", "Always", "Never"]))),
        SchedulerField("interval", may(&Whole)),
        SchedulerField("backoff", may(&Whole)),
    ]),
];

/// The type of a version of an application or a process. Versions of daemonsets have a type of their own, which lacks
/// the field `raw_json`.
pub(super) const VERSION: BodyShape = Object(&[
    SchedulerField("ID", must(&Text)),
    SchedulerField("Name", must(&Text)),
    SchedulerField("ObjectMeta", must(&METADATA)),
    SchedulerField("PodObjectMeta", must(&METADATA)),
    SchedulerField("Instances", must(&Whole)),
    SchedulerField("RunAs", must(&Text)),
    SchedulerField("Container", must(&List(&CONTAINER))),
    SchedulerField("Process", must(&List(&Object(&[])))),
    SchedulerField("Labels", must(&StringMap)),
    SchedulerField("KillPolicy", must(&POLICIES[0])),
    SchedulerField("RestartPolicy", must(&POLICIES[1])),
    SchedulerField("Constraints", must(&Object(&[]))),
    SchedulerField("Uris", must(&List(&Text))),
    SchedulerField("Ip", must(&List(&Text))),
    SchedulerField("Mode", must(&Text)),
    SchedulerField("Kind", must(&OneOf(&["application", "process", "daemonset"]))),
    SchedulerField("raw_json", may(&Object(&[SchedulerField("kind", must(&Text))]))),
]);

pub(super) const DEPLOYMENT_DEF: BodyShape = Object(&[
    SchedulerField("metadata", must(&METADATA)),
    SchedulerField("selector", may(&StringMap)),
    SchedulerField("version", must(&VERSION)),
    SchedulerField("strategy", must(&Object(&[SchedulerField("type", must(&Text))]))),
    SchedulerField("raw_json", must(&Object(&[SchedulerField("kind", must(&Text))]))),
]);

/// The type of a daemonset. The metadata of daemonsets are fields of the object itself.
pub(super) const DAEMONSET_DEF: BodyShape = Object(&[
    SchedulerField("name", must(&Text)),
    SchedulerField("namespace", must(&Text)),
    SchedulerField("version", must(&VERSION)),
]);

pub(super) const MESSAGE: BodyShape = Object(&[
    SchedulerField("Id", must(&Whole)),
    SchedulerField("Type", must(&Whole)),
    SchedulerField(
        "Sig",
        may(&Object(&[
            SchedulerField("Signal", must(&Whole)),
            SchedulerField("ProcessName", must(&Text)),
        ])),
    ),
    SchedulerField(
        "Env",
        may(&Object(&[
            SchedulerField("Name", must(&Text)),
            SchedulerField("Value", must(&Text)),
        ])),
    ),
    SchedulerField(
        "Local",
        may(&Object(&[
            SchedulerField("To", must(&Text)),
            SchedulerField("Base64", must(&Text)),
        ])),
    ),
    SchedulerField(
        "Remote",
        may(&Object(&[
            SchedulerField("To", must(&Text)),
            SchedulerField("From", must(&Text)),
        ])),
    ),
]);
