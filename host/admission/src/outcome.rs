use std::{fmt, sync::Arc, time::Duration};

use crate::{Denial, Failure, FailureKind, FailurePolicy, Mode, Object, Patch, Phase, Uid};

/// What the chains say of a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The request's.
    pub uid: Uid,
    /// Whether it may pass.
    pub decision: Decision,
    /// The object as the chains left it. After a refusal: as it was when it was refused.
    pub object: Option<Object>,
    /// From the original object to [`object`](Self::object); empty when nothing changed.
    pub patch: Patch,
    /// Sentences for whoever sent the request, in the order of the stages.
    pub warnings: Vec<String>,
    /// Notes for the audit log.
    pub audit_annotations: Vec<AuditAnnotation>,
    /// What each stage of the matching chains did, in order.
    pub trace: Vec<TraceRow>,
}

impl Outcome {
    /// Whether the request may pass.
    pub fn is_allowed(&self) -> bool {
        matches!(self.decision, Decision::Allowed)
    }

    /// Whether a stage changed the object.
    pub fn is_changed(&self) -> bool {
        !self.patch.is_empty()
    }
}

/// Whether a request may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allowed,
    /// It may not.
    Refused(Refusal),
}

/// Why a request may not pass. As text: a sentence that says which stage and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A stage denied it.
    Denied {
        /// The stage's chain.
        chain: Arc<str>,
        /// The stage.
        stage: Arc<str>,
        /// In the stage's own words.
        denial: Denial,
    },
    /// A stage with the policy `Fail` failed.
    Failed {
        /// The stage's chain.
        chain: Arc<str>,
        /// The stage.
        stage: Arc<str>,
        /// How.
        failure: Failure,
    },
    /// The request's own deadline passed before all stages had been called. No policy covers that:
    /// what was not called did not agree (as kube-apiserver has it).
    DeadlinePassed {
        /// The chain of the first stage that was not called.
        chain: Arc<str>,
        /// That stage.
        stage: Arc<str>,
    },
    /// The request is a dry run, and a stage has side effects that a dry run must not have. No policy
    /// covers that either (as kube-apiserver has it).
    DryRunUnsupported {
        /// The stage's chain.
        chain: Arc<str>,
        /// The stage.
        stage: Arc<str>,
    },
}

impl Refusal {
    /// The HTTP status for it: the denial's own, 500 for a failure, 504 for a deadline; 403 when a match
    /// condition failed and 400 for a dry run, as kube-apiserver answers them.
    pub fn code(&self) -> u16 {
        match self {
            Self::Denied { denial, .. } => denial.code(),
            Self::Failed { failure, .. } if failure.kind == FailureKind::Condition => 403,
            Self::Failed { .. } => 500,
            Self::DeadlinePassed { .. } => 504,
            Self::DryRunUnsupported { .. } => 400,
        }
    }

    /// One CamelCase word for machines, as Kubernetes' `Status` has it; may be empty.
    pub fn reason(&self) -> &str {
        match self {
            Self::Denied { denial, .. } => &denial.reason,
            Self::Failed { failure, .. } if failure.kind == FailureKind::Condition => "Forbidden",
            Self::Failed { .. } => "InternalError",
            Self::DeadlinePassed { .. } => "Timeout",
            Self::DryRunUnsupported { .. } => "BadRequest",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { chain, stage, denial } => {
                write!(f, "stage {stage} of chain {chain} denied the request: {denial}")
            }
            Self::Failed {
                chain,
                stage,
                failure,
            } => {
                write!(
                    f,
                    "stage {stage} of chain {chain} failed ({}): {}",
                    failure.kind, failure.message
                )
            }
            Self::DeadlinePassed { chain, stage } => {
                write!(
                    f,
                    "the request's deadline passed before stage {stage} of chain {chain} could be called"
                )
            }
            Self::DryRunUnsupported { chain, stage } => {
                write!(f, "stage {stage} of chain {chain} does not support dry run")
            }
        }
    }
}

/// A note of one stage for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditAnnotation {
    /// Who noted it.
    pub stage: Arc<str>,
    /// What about.
    pub key: String,
    /// The note.
    pub value: String,
}

/// What one stage did with one request.
#[derive(Clone, Debug)]
pub struct TraceRow {
    /// The stage's chain.
    pub chain: Arc<str>,
    /// The chain's phase.
    pub phase: Phase,
    /// The stage.
    pub stage: Arc<str>,
    /// 1, or 2 when it was called again because the object had changed after its first call.
    pub round: u8,
    /// Whether its answer counts. In mode `Audit` the result is what it would have done.
    pub mode: Mode,
    /// What came of it.
    pub result: StageResult,
    /// From the selectors to the applied verdict; zero when it was not called.
    pub duration: Duration,
}

/// What came of a stage.
#[derive(Clone, Debug, PartialEq)]
pub enum StageResult {
    /// It is not for this request.
    Skipped(SkipReason),
    /// An earlier stage had refused the request, or its deadline had passed.
    NotReached,
    /// It let the request pass as it is.
    Allowed,
    /// It changed the object by this patch.
    Changed(Patch),
    /// It refused the request.
    Denied(Denial),
    /// It failed.
    Failed {
        /// How.
        failure: Failure,
        /// The policy that held.
        policy: FailurePolicy,
    },
}

impl StageResult {
    /// One word for tables and metrics: `skipped`, `not-reached`, `allow`, `patch`, `deny`, `failed`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Skipped(_) => "skipped",
            Self::NotReached => "not-reached",
            Self::Allowed => "allow",
            Self::Changed(_) => "patch",
            Self::Denied(_) => "deny",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Why a stage is not for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// Its namespace selector does not choose the request's namespace.
    NamespaceSelector,
    /// Its object selector chooses neither the object nor the old one.
    ObjectSelector,
    /// None of its own rules matches the request.
    Rules,
    /// One of its match conditions is false.
    MatchCondition,
    /// The request is a dry run, and the stage has side effects.
    DryRun,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NamespaceSelector => "namespaceSelector does not match",
            Self::ObjectSelector => "objectSelector does not match",
            Self::Rules => "no rule of the stage matches",
            Self::MatchCondition => "a match condition is false",
            Self::DryRun => "a stage with side effects is not called in a dry run",
        })
    }
}
