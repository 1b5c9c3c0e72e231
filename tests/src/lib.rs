//! The environment of the tests, the demo and the benchmarks that run the whole program: the real program as a child
//! process, a control plane behind it, and a client in front of it.
//!
//! All servers listen on ports that the kernel chooses. Instead of pausing, tests wait for observable events: a line of
//! the log, a reply, or the end of a process.

#![allow(missing_docs, reason = "only this repository uses the library")]

mod agent;
mod answers;
mod artifacts;
mod client;
mod comparison;
mod error;
mod files;
#[path = "../guests/versioned/src/names.rs"]
pub mod guest_names;
mod kills;
mod load;
mod log;
mod metrics;
mod module_server;
pub mod modules;
mod program;
mod review;
mod scheduler;
mod serve;
mod swaps;
mod upstream;
mod versions;

pub use agent::{EndlessReply, TunnelFlood};
pub use answers::{Answer, longest_overlap};
pub use artifacts::{Artifacts, repository};
pub use client::{ATTACKING_SEND_BUFFER, Client, Reply, Trust};
pub use comparison::{Comparison, Verdict};
pub use error::Error;
pub use files::replace;
pub use kills::{Killed, Kills};
pub use load::{Load, LoadCounts};
pub use log::{LogLine, NEVER};
pub use metrics::Metrics;
pub use module_server::{Identity, ModuleServer};
pub use program::{Admittance, Finished, Mark, POLL, finish, resident_memory};
pub use review::review_of_pod;
pub use scheduler::{Kind, MesosCluster, ObjectKey, Scheduler, SchedulerRequest, SchedulerTls, Verb, Write};
pub use serve::Serve;
pub use swaps::{Swapped, Swaps};
pub use upstream::{Received, ReplyForm, ReplyGate, Upstream};
pub use versions::Versions;

/// Compiles and runs the examples in the README and on the page for plugin authors. This is not done in the SDK,
/// because its package does not contain that page.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/authors.md")]
    struct Authors;
}
