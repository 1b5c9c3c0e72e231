//! `metadata` of an object that a Kubernetes API server keeps.

/// What the API server, its clients and BCS write there beside name and namespace. None of it means
/// anything here.
pub(crate) const KEPT: [&str; 14] = [
    "annotations",
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
