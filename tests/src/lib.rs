//! What the whole-program tests, the demo and the benchmarks share: the real program as a child process,
//! a control plane behind it, and a client in front of it.
//!
//! Everything listens on ports that the kernel chooses, and everything that is waited for is read: a log
//! line, a reply, the end of a process.

mod artifacts;
mod client;
mod error;
mod program;
mod upstream;

pub use artifacts::{Artifacts, repository};
pub use client::{Client, Reply, Trust};
pub use error::Error;
pub use program::{Admittance, Finished, LogLine, Metrics, Serve};
pub use upstream::{Gate, Received, Upstream};
