//! The configuration and the status of audits.

use std::{collections::BTreeMap, time::Duration};

use admittance::Moment;
use admittance_admission::UserInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The time between the beginnings of two audits.
    pub every: Duration,
    /// The limit of requests to the API server per second.
    pub rate: u32,
    /// The number of objects in a page of a list.
    pub page: u32,
    /// The resources that are audited, such as `pods` or `deployments.apps`. If it is empty, all that match a chain
    /// are.
    pub resources: Vec<String>,
    /// The namespaces that are not audited, in addition to the namespaces that the webhooks exclude.
    pub excluded_namespaces: Vec<String>,
    pub user: UserInfo,
    pub calls_webhooks: bool,
    /// Whether reports are written, if the cluster has a kind of them.
    pub writes_reports: bool,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(3600),
            rate: 20,
            page: 500,
            resources: Vec::new(),
            excluded_namespaces: Vec::new(),
            user: UserInfo::default(),
            calls_webhooks: false,
            writes_reports: true,
        }
    }
}

/// The audits of the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditStatus {
    /// Whether this replica audits now. The other fields are known only to the replica that audits.
    pub is_auditor: bool,
    /// Whether an audit of all objects is running.
    pub running: bool,
    /// The last audit of all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<AuditPass>,
    /// The number of objects with each verdict: `denied`, `failed`, `would-be-denied`, `failure-ignored`, `changed` and
    /// `allowed`.
    #[serde(default)]
    pub objects: BTreeMap<String, u64>,
    /// The kind of reports that are written: `openreports.io/v1alpha1`, `reports.x-k8s.io/v1beta2` or
    /// `wgpolicyk8s.io/v1alpha2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<String>,
    /// The problems of resources that cannot be listed or watched, and of reports that cannot be written.
    #[serde(default)]
    pub problems: BTreeMap<String, String>,
}

/// One audit of all objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPass {
    /// The time at which the audit ended.
    pub at: Moment,
    /// The duration of the audit.
    pub seconds: f64,
    /// The revision of the chains.
    pub revision: u64,
    /// The number of listed objects.
    pub listed: u64,
}
