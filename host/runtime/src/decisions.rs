//! The log of decisions: the results of the chains for the last requests, in memory.
//!
//! A request pays for one copy of its texts. Decisions are redacted and written as JSON when someone reads them.

pub(crate) mod audit;
pub(crate) mod observer;
pub(crate) mod recording;

mod decided;
mod filter;
mod log;
mod packed;
mod rates;
mod record;
mod replay;
mod ring;
mod write;

pub(crate) use self::decided::{DecidedRequest, ObjectTexts};
pub use self::{
    filter::DecisionFilter,
    log::{DecisionLog, DecisionStream, LoggedDecision, StreamItem},
    record::{ChainRates, DecisionDetail, DecisionList, DecisionRecord, DecisionVerdict, StageRecord},
    replay::ReplayError,
};
use crate::Redaction;

/// The bounds of the log of decisions in memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DecisionsConfig {
    /// The number of decisions to keep; 0 for none. Default: 10,000.
    pub count: usize,
    /// The limit of the memory that decisions take, in bytes. Default: 64 MiB.
    pub bytes: usize,
    /// Values to redact in objects and patches. Objects that are Secrets are never kept.
    pub redact: Vec<Redaction>,
}

impl Default for DecisionsConfig {
    fn default() -> Self {
        Self {
            count: 10_000,
            bytes: 64 << 20,
            redact: Vec::new(),
        }
    }
}
