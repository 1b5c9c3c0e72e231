//! Audits: evaluates the chains for objects that are already in the cluster.

mod auditor;
mod finding;
mod ledger;
mod reader;
mod reports;
mod schedule;
mod status;
mod watch;
mod writer;

pub use auditor::{Auditor, JudgedObject};
pub use finding::{Finding, Judgement, Verdict};
pub use ledger::FINDINGS;
pub use reader::{DiscoveredResources, Pages, Reader, Resource};
pub use reports::ReportApi;
pub use schedule::Audits;
pub use status::{AuditConfig, AuditPass, AuditStatus};
