//! The types of the original scheduler's objects, as far as the fake scheduler checks them. They come from its files
//! `schetypes/application.go`, `deployment.go` and `daemonset.go`. Their fields have the names of the Go fields. All
//! fields of a `Version` are always present.

use super::shape::{
    BodyShape::{self, Flag, List, Number, Object, OneOf, StringMap, Text, Whole},
    ObjectField, may, must,
};

const METADATA: BodyShape = Object(&[
    ObjectField("name", must(&Text)),
    ObjectField("namespace", must(&Text)),
    ObjectField("creationTimestamp", may(&Text)),
    ObjectField("labels", may(&StringMap)),
    ObjectField("annotations", may(&StringMap)),
    ObjectField("clusterName", may(&Text)),
]);

/// The type of an object that the scheduler stores unchanged. Only its metadata are checked.
pub(super) const NAMED_OBJECT: BodyShape = Object(&[ObjectField("metadata", must(&METADATA))]);

const RESOURCES: BodyShape = Object(&[
    ObjectField("Cpus", must(&Number)),
    ObjectField("Mem", must(&Number)),
    ObjectField("Disk", must(&Number)),
]);

const PORT_MAPPING: BodyShape = Object(&[
    ObjectField("ContainerPort", must(&Whole)),
    ObjectField("HostPort", must(&Whole)),
    ObjectField("Name", must(&Text)),
    ObjectField("Protocol", must(&Text)),
]);

const DOCKER: BodyShape = Object(&[
    ObjectField("Hostname", must(&Text)),
    ObjectField("ForcePullImage", must(&Flag)),
    ObjectField("Image", must(&Text)),
    ObjectField("ImagePullUser", must(&Text)),
    ObjectField("ImagePullPasswd", must(&Text)),
    ObjectField("Network", must(&Text)),
    ObjectField("NetworkType", must(&Text)),
    ObjectField("Command", must(&Text)),
    ObjectField("Arguments", must(&List(&Text))),
    ObjectField("Parameters", must(&List(&Object(&[])))),
    ObjectField("PortMappings", must(&List(&PORT_MAPPING))),
    ObjectField("Env", must(&StringMap)),
    ObjectField("Privileged", must(&Flag)),
]);

const VOLUME: BodyShape = Object(&[
    ObjectField("ContainerPath", must(&Text)),
    ObjectField("HostPath", must(&Text)),
    ObjectField("Mode", must(&OneOf(&["RW", "R"]))),
]);

const CONTAINER: BodyShape = Object(&[
    ObjectField("Type", must(&Text)),
    ObjectField("Docker", must(&DOCKER)),
    ObjectField("Volumes", must(&List(&VOLUME))),
    ObjectField("Resources", must(&RESOURCES)),
    ObjectField("LimitResoures", must(&RESOURCES)),
    ObjectField("ConfigMaps", must(&List(&Object(&[])))),
    ObjectField("Secrets", must(&List(&Object(&[])))),
    ObjectField("HealthChecks", must(&List(&Object(&[])))),
]);

const POLICIES: [BodyShape; 2] = [
    Object(&[ObjectField("gracePeriod", must(&Whole))]),
    Object(&[
        ObjectField("policy", must(&OneOf(&["OnFailure", "Always", "Never"]))),
        ObjectField("interval", may(&Whole)),
        ObjectField("backoff", may(&Whole)),
    ]),
];

/// The type of a version of an application or a process. Versions of daemonsets have a type of their own, which lacks
/// the field `raw_json`.
pub(super) const VERSION: BodyShape = Object(&[
    ObjectField("ID", must(&Text)),
    ObjectField("Name", must(&Text)),
    ObjectField("ObjectMeta", must(&METADATA)),
    ObjectField("PodObjectMeta", must(&METADATA)),
    ObjectField("Instances", must(&Whole)),
    ObjectField("RunAs", must(&Text)),
    ObjectField("Container", must(&List(&CONTAINER))),
    ObjectField("Process", must(&List(&Object(&[])))),
    ObjectField("Labels", must(&StringMap)),
    ObjectField("KillPolicy", must(&POLICIES[0])),
    ObjectField("RestartPolicy", must(&POLICIES[1])),
    ObjectField("Constraints", must(&Object(&[]))),
    ObjectField("Uris", must(&List(&Text))),
    ObjectField("Ip", must(&List(&Text))),
    ObjectField("Mode", must(&Text)),
    ObjectField("Kind", must(&OneOf(&["application", "process", "daemonset"]))),
    ObjectField("raw_json", may(&Object(&[ObjectField("kind", must(&Text))]))),
]);

pub(super) const DEPLOYMENT_DEF: BodyShape = Object(&[
    ObjectField("metadata", must(&METADATA)),
    ObjectField("selector", may(&StringMap)),
    ObjectField("version", must(&VERSION)),
    ObjectField("strategy", must(&Object(&[ObjectField("type", must(&Text))]))),
    ObjectField("raw_json", must(&Object(&[ObjectField("kind", must(&Text))]))),
]);

/// The type of a daemonset. The metadata of daemonsets are fields of the object itself.
pub(super) const DAEMONSET_DEF: BodyShape = Object(&[
    ObjectField("name", must(&Text)),
    ObjectField("namespace", must(&Text)),
    ObjectField("version", must(&VERSION)),
]);

pub(super) const MESSAGE: BodyShape = Object(&[
    ObjectField("Id", must(&Whole)),
    ObjectField("Type", must(&Whole)),
    ObjectField(
        "Sig",
        may(&Object(&[
            ObjectField("Signal", must(&Whole)),
            ObjectField("ProcessName", must(&Text)),
        ])),
    ),
    ObjectField(
        "Env",
        may(&Object(&[
            ObjectField("Name", must(&Text)),
            ObjectField("Value", must(&Text)),
        ])),
    ),
    ObjectField(
        "Local",
        may(&Object(&[
            ObjectField("To", must(&Text)),
            ObjectField("Base64", must(&Text)),
        ])),
    ),
    ObjectField(
        "Remote",
        may(&Object(&[
            ObjectField("To", must(&Text)),
            ObjectField("From", must(&Text)),
        ])),
    ),
]);
