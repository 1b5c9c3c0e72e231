//! The types of the original scheduler's objects, as far as the fake scheduler checks them. They come from its files
//! `schetypes/application.go`, `deployment.go` and `daemonset.go`. Their fields have the names of the Go fields. All
//! fields of a `Version` are always present.

use super::shape::{
    Field,
    Shape::{self, Flag, List, Number, Object, OneOf, StringMap, Text, Whole},
    may, must,
};

const METADATA: Shape = Object(&[
    Field("name", must(&Text)),
    Field("namespace", must(&Text)),
    Field("creationTimestamp", may(&Text)),
    Field("labels", may(&StringMap)),
    Field("annotations", may(&StringMap)),
    Field("clusterName", may(&Text)),
]);

/// The type of an object that the scheduler stores unchanged. Only its metadata are checked.
pub(super) const NAMED: Shape = Object(&[Field("metadata", must(&METADATA))]);

const RESOURCES: Shape = Object(&[
    Field("Cpus", must(&Number)),
    Field("Mem", must(&Number)),
    Field("Disk", must(&Number)),
]);

const PORT_MAPPING: Shape = Object(&[
    Field("ContainerPort", must(&Whole)),
    Field("HostPort", must(&Whole)),
    Field("Name", must(&Text)),
    Field("Protocol", must(&Text)),
]);

const DOCKER: Shape = Object(&[
    Field("Hostname", must(&Text)),
    Field("ForcePullImage", must(&Flag)),
    Field("Image", must(&Text)),
    Field("ImagePullUser", must(&Text)),
    Field("ImagePullPasswd", must(&Text)),
    Field("Network", must(&Text)),
    Field("NetworkType", must(&Text)),
    Field("Command", must(&Text)),
    Field("Arguments", must(&List(&Text))),
    Field("Parameters", must(&List(&Object(&[])))),
    Field("PortMappings", must(&List(&PORT_MAPPING))),
    Field("Env", must(&StringMap)),
    Field("Privileged", must(&Flag)),
]);

const VOLUME: Shape = Object(&[
    Field("ContainerPath", must(&Text)),
    Field("HostPath", must(&Text)),
    Field("Mode", must(&OneOf(&["RW", "R"]))),
]);

const CONTAINER: Shape = Object(&[
    Field("Type", must(&Text)),
    Field("Docker", must(&DOCKER)),
    Field("Volumes", must(&List(&VOLUME))),
    Field("Resources", must(&RESOURCES)),
    Field("LimitResoures", must(&RESOURCES)),
    Field("ConfigMaps", must(&List(&Object(&[])))),
    Field("Secrets", must(&List(&Object(&[])))),
    Field("HealthChecks", must(&List(&Object(&[])))),
]);

const POLICIES: [Shape; 2] = [
    Object(&[Field("gracePeriod", must(&Whole))]),
    Object(&[
        Field("policy", must(&OneOf(&["OnFailure", "Always", "Never"]))),
        Field("interval", may(&Whole)),
        Field("backoff", may(&Whole)),
    ]),
];

/// The type of a version of an application or a process. Versions of daemonsets differ: they have no `raw_json`.
pub(super) const VERSION: Shape = Object(&[
    Field("ID", must(&Text)),
    Field("Name", must(&Text)),
    Field("ObjectMeta", must(&METADATA)),
    Field("PodObjectMeta", must(&METADATA)),
    Field("Instances", must(&Whole)),
    Field("RunAs", must(&Text)),
    Field("Container", must(&List(&CONTAINER))),
    Field("Process", must(&List(&Object(&[])))),
    Field("Labels", must(&StringMap)),
    Field("KillPolicy", must(&POLICIES[0])),
    Field("RestartPolicy", must(&POLICIES[1])),
    Field("Constraints", must(&Object(&[]))),
    Field("Uris", must(&List(&Text))),
    Field("Ip", must(&List(&Text))),
    Field("Mode", must(&Text)),
    Field("Kind", must(&OneOf(&["application", "process", "daemonset"]))),
    Field("raw_json", may(&Object(&[Field("kind", must(&Text))]))),
]);

pub(super) const DEPLOYMENT_DEF: Shape = Object(&[
    Field("metadata", must(&METADATA)),
    Field("selector", may(&StringMap)),
    Field("version", must(&VERSION)),
    Field("strategy", must(&Object(&[Field("type", must(&Text))]))),
    Field("raw_json", must(&Object(&[Field("kind", must(&Text))]))),
]);

/// The type of a daemonset. The metadata of daemonsets are fields of the object itself.
pub(super) const DAEMONSET_DEF: Shape = Object(&[
    Field("name", must(&Text)),
    Field("namespace", must(&Text)),
    Field("version", must(&VERSION)),
]);

pub(super) const MESSAGE: Shape = Object(&[
    Field("Id", must(&Whole)),
    Field("Type", must(&Whole)),
    Field(
        "Sig",
        may(&Object(&[
            Field("Signal", must(&Whole)),
            Field("ProcessName", must(&Text)),
        ])),
    ),
    Field(
        "Env",
        may(&Object(&[
            Field("Name", must(&Text)),
            Field("Value", must(&Text)),
        ])),
    ),
    Field(
        "Local",
        may(&Object(&[Field("To", must(&Text)), Field("Base64", must(&Text))])),
    ),
    Field(
        "Remote",
        may(&Object(&[Field("To", must(&Text)), Field("From", must(&Text))])),
    ),
]);
