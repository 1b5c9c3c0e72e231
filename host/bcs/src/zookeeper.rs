//! A session with ZooKeeper that is made again when it is lost, who is registered there, and registering.
//!
//! - [`ZooKeeper`] is one ensemble. It connects in the background, for as long as somebody holds it, and says
//!   how it is ([`SessionState`]). Nothing waits for it without bound.
//! - [`Followed`] lists follow the children of a node. While the session is away, a list stays as
//!   it was and says why it may be stale; a session that is back reads it again at once. A node that is not
//!   there has no children, which is not the same as not knowing.
//! - [`Registered`] keeps an ephemeral node of one's own there: made once however often the connection breaks
//!   while it is made, made again after a session was lost or somebody deleted it.
//!
//! Of ZooKeeper only what version 3.4 knows is used here, watches that fire once among it ([`Watch`]). What is
//! authenticated is the session (the scheme `digest`); the connection is plain TCP, as the servers that BCS
//! runs offer no other.

mod config;
mod ensembles;
mod error;
mod follow;
mod members;
mod path;
mod registration;
mod servers;
mod session;
mod watches;

pub use self::{
    config::{Digest, EnsembleConfig},
    ensembles::{Ensembles, NoEnsemble, ZooKeeperConfig},
    error::{ZooKeeperError, check_path},
    follow::Followed,
    members::{ChildList, Member, MemberList},
    path::{InvalidNodePath, NodePath},
    registration::{Registered, Registration, RegistrationState},
    servers::{Server, Servers, ServersError},
    session::{SessionState, ZooKeeper},
    watches::Watch,
};
