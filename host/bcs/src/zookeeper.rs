//! Sessions with ZooKeeper that reconnect, discovery of members, and registration.
//!
//! - [`ZooKeeper`] is one ensemble. It connects in the background, and reports its state ([`SessionState`]).
//! - [`FollowedChildren`] lists follow the children of a node. While the session is lost, a list stays unchanged and
//!   has the reason why it may be stale.
//! - [`HeldRegistration`] keeps an ephemeral node in existence: it is created again after the session is lost or the
//!   node is deleted.
//!
//! Only features of ZooKeeper 3.4 are used, including watches that fire once ([`NodeWatch`]). The session is
//! authenticated (scheme `digest`); the connection is plain TCP, because the servers that BCS runs offer nothing else.

mod children;
mod config;
mod ensembles;
mod error;
mod path;
mod registration;
mod servers;
mod session;
mod watches;

pub(crate) use self::{children::sequence_number, error::AtNode, path::join};
pub use self::{
    children::{Child, ChildList, FollowedChildren, RegisteredMember},
    config::{EnsembleConfig, ZooKeeperDigest},
    ensembles::{Ensembles, NoEnsemble, ZooKeeperConfig},
    error::ZooKeeperError,
    path::{InvalidNodePath, NodePath, check_path},
    registration::{HeldRegistration, NodeRegistration, RegistrationState},
    servers::{EnsembleAddress, EnsembleServer, ServersError},
    session::{SessionState, ZooKeeper},
    watches::NodeWatch,
};
