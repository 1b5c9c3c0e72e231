//! Definition stores that several drivers share: nodes of ZooKeeper, and resources of a Kubernetes cluster.
//!
//! These stores hold definitions of BCS, the documents `admissionwebhook`, in the place and format of BCS itself:
//! existing definitions are read as they are, and BCS's own driver can read the definitions that are written here.
//! Nothing is kept in memory between two reads. A watch only triggers the next read.

mod custom_resources;
mod document;
mod zookeeper;

pub use custom_resources::CustomResourceStore;
pub use zookeeper::ZooKeeperStore;
