//! Keeps the decisions on the latest requests in memory.
//!
//! While a request is handled, only the strings of its decision are copied. The decision is redacted and converted to
//! JSON later, when a client reads it.

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

/// The limits of the log of decisions, which is kept in memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DecisionsConfig {
    /// The maximum number of decisions in the log; 0 to keep none. Default: 10,000.
    pub count: usize,
    /// The maximum memory of the decisions in the log, in bytes. Default: 64 MiB.
    pub bytes: usize,
    /// The values to redact in the objects and patches of decisions. The content of Secrets is never kept.
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
