//! The environment of the whole-program tests, the demo and the benchmarks: the real program as a child process, a
//! control plane behind it, and a client in front of it.
//!
//! Everything listens on ports chosen by the kernel, and waits for observable events: a log line, a reply, the
//! end of a process.

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

/// Compiles and runs the examples in the README and on the page for plugin authors. The SDK cannot include that page,
/// since the SDK's package contains only its own files.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/authors.md")]
    struct Authors;
}
