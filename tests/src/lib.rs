//! The environment of the tests, the demo and the benchmarks that run the whole program: the real program as a child
//! process, a control plane behind it, and a client in front of it.
//!
//! All servers listen on ports that the kernel chooses. Tests do not sleep for a fixed time, but wait for an observable
//! event: a line of the log, a reply, or the end of a process.

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
pub use answers::{TimedAnswer, longest_overlap};
pub use artifacts::{Artifacts, repository};
pub use client::{ATTACKING_SEND_BUFFER, Client, ClientTrust, Reply};
pub use comparison::{BuildComparison, BuildVerdict};
pub use error::Error;
pub use files::replace;
pub use kills::{KillResult, Kills};
pub use load::{CreationLoad, LoadCounts};
pub use log::{ProgramLogLine, TEST_TIMEOUT};
pub use metrics::ScrapedMetrics;
pub use module_server::{ModuleServer, ServerIdentity};
pub use program::{Admittance, FinishedProgram, Mark, POLL_INTERVAL, finish, resident_memory};
pub use review::review_of_pod;
pub use scheduler::{
    MesosCluster, ObjectKey, Scheduler, SchedulerKind, SchedulerRequest, SchedulerTls, SchedulerVerb, StateWrite,
};
pub use serve::Serve;
pub use swaps::{SwapResult, Swaps};
pub use upstream::{FakeUpstream, ReplyGate, UpstreamReplyForm, UpstreamRequest};
pub use versions::Versions;

/// Compiles and runs the examples in the README and on the page for plugin authors. The crate of the SDK cannot do
/// this, because its package does not contain the page.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/authors.md")]
    struct Authors;
}
