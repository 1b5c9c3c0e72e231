//! Audits objects in the cluster: evaluates the chains for each object, and reports what they would refuse or change.

mod auditor;
mod client;
mod finding;
mod ledger;
mod report_writer;
mod reports;
mod schedule;
mod status;
mod watch;

pub use auditor::{Auditor, JudgedObject};
pub use client::{AuditClient, AuditedResource, DiscoveredResources, Pages};
pub use finding::{AuditResult, AuditVerdict, Finding};
pub use ledger::MAX_FINDINGS;
pub use reports::ReportApi;
pub use schedule::Audits;
pub use status::{AuditConfig, AuditPass, AuditStatus};
