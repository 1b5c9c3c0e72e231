//! The configuration and the status of audits.

use std::{collections::BTreeMap, time::Duration};

use admittance::Moment;
use admittance_admission::UserInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The time from the beginning of an audit to the beginning of the next one.
    pub interval: Duration,
    /// The maximum number of requests per second that audits send to the API server.
    pub requests_per_second: u32,
    /// The maximum number of objects that audits request in one page of a list.
    pub page_size: u32,
    /// The audited resources, such as `pods` or `deployments.apps`; if empty, all resources that a chain matches.
    pub resources: Vec<String>,
    /// The namespaces that are not audited, in addition to those that the webhooks exclude.
    pub excluded_namespaces: Vec<String>,
    pub user: UserInfo,
    pub calls_webhooks: bool,
    /// Whether reports are written, if the cluster serves an API of reports.
    pub writes_reports: bool,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(3600),
            requests_per_second: 20,
            page_size: 500,
            resources: Vec::new(),
            excluded_namespaces: Vec::new(),
            user: UserInfo::default(),
            calls_webhooks: false,
            writes_reports: true,
        }
    }
}

/// The status of the leader's audits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditStatus {
    /// Whether this replica audits now. If it does not, the other fields of this status are empty.
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
    /// The API of the written reports: `openreports.io/v1alpha1`, `reports.x-k8s.io/v1beta2` or
    /// `wgpolicyk8s.io/v1alpha2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<String>,
    /// The present problems of the audits. Each key is a resource, an API group, `audit` or `reports`.
    #[serde(default)]
    pub problems: BTreeMap<String, String>,
}

/// An audit of all objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPass {
    /// The time at which the audit ended.
    pub at: Moment,
    /// The duration of the audit.
    pub seconds: f64,
    /// The revision of the audited chains.
    pub revision: u64,
    /// The number of listed objects.
    pub listed: u64,
}
