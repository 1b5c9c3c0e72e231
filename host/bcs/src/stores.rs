//! Definition stores that several drivers share: nodes of ZooKeeper, and resources of a Kubernetes cluster.
//!
//! These stores hold definitions of BCS, documents of the kind `admissionwebhook`, in the place and format that BCS
//! uses: existing definitions are read unchanged, and BCS's own driver can read the definitions that are written here.
//! Nothing is cached between two reads; a watch only triggers the next read.

mod custom_resources;
mod document;
mod zookeeper;

pub use custom_resources::CustomResourceStore;
pub use zookeeper::ZooKeeperStore;
