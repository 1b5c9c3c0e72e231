//! Definition stores that several drivers share: nodes of ZooKeeper, resources of a Kubernetes cluster.
//!
//! Both hold definitions of BCS, the documents `admissionwebhook`, where BCS itself keeps them and as it
//! writes them: what is there is read as it is, and a driver of BCS beside this program reads what is
//! written here. Nothing is kept in memory between two reads. A watch only tells when to read again.

mod custom_resources;
mod document;
mod zookeeper;

pub use custom_resources::CustomResourceStore;
pub use zookeeper::ZooKeeperStore;
