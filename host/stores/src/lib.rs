//! Definition stores that several drivers share: nodes of ZooKeeper, resources of a Kubernetes cluster.
