use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Denial, Failure, FailureKind, FailurePolicy, LogLine, Mode, Object, Patch, Phase, Uid};

/// The result of the chains for a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The uid of the request.
    pub uid: Uid,
    /// Whether the request is allowed.
    pub decision: Decision,
    /// The object after the chains, or at the time of a refusal.
    pub object: Option<Object>,
    /// The patch from the original object to [`object`](Self::object); empty when nothing changed.
    pub patch: Patch,
    /// Warnings for the client, in the order of the stages.
    pub warnings: Vec<String>,
    /// Notes for the audit log.
    pub audit_annotations: Vec<AuditAnnotation>,
    /// The result of each stage of the matching chains, in order.
    pub trace: Vec<TraceRow>,
}

impl Outcome {
    /// Returns whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self.decision, Decision::Allowed)
    }

    /// Creates an outcome without object, patch, warnings, annotations and trace.
    pub fn new(uid: Uid, decision: Decision) -> Self {
        Self {
            uid,
            decision,
            object: None,
            patch: Patch::default(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
            trace: Vec::new(),
        }
    }

    /// Returns whether a stage changed the object.
    pub fn is_changed(&self) -> bool {
        !self.patch.is_empty()
    }
}

/// The decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed.
    Allowed,
    /// Refused.
    Refused(Refusal),
}

/// The refusal of a request. Its message names the stage and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stage's chain.
    pub chain: Arc<str>,
    /// The stage that refused the request; after the deadline, the first one that was not called.
    pub stage: Arc<str>,
    /// A denial, a failure, or the deadline: what decides the status of the reply.
    pub cause: RefusalCause,
}

/// The cause of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The stage denied the request.
    Denied(Denial),
    /// The stage failed, and has the policy `Fail`.
    Failed(Failure),
    /// The request's own deadline passed before all stages had been called. No failure policy applies: a stage that was
    /// not called has not allowed the request (as in kube-apiserver).
    DeadlinePassed,
    /// The request is a dry run, and the stage has side effects that a dry run must not have. No failure policy
    /// applies (as in kube-apiserver).
    DryRunUnsupported,
}

impl Refusal {
    /// Returns the denial of the stage, if it denied the request.
    pub fn denial(&self) -> Option<&Denial> {
        match &self.cause {
            RefusalCause::Denied(denial) => Some(denial),
            _ => None,
        }
    }

    /// Returns the HTTP status: the denial's own, 500 for a failure, 504 for a deadline; 403 when a match condition
    /// failed and 400 for a dry run, as in kube-apiserver.
    pub fn code(&self) -> u16 {
        match &self.cause {
            RefusalCause::Denied(denial) => denial.code(),
            RefusalCause::Failed(failure) if failure.kind == FailureKind::Condition => 403,
            RefusalCause::Failed(_) => 500,
            RefusalCause::DeadlinePassed => 504,
            RefusalCause::DryRunUnsupported => 400,
        }
    }

    /// Returns a machine-readable CamelCase word, as in Kubernetes' `Status`; may be empty.
    pub fn reason(&self) -> &str {
        match &self.cause {
            RefusalCause::Denied(denial) => &denial.reason,
            RefusalCause::Failed(failure) if failure.kind == FailureKind::Condition => "Forbidden",
            RefusalCause::Failed(_) => "InternalError",
            RefusalCause::DeadlinePassed => "Timeout",
            RefusalCause::DryRunUnsupported => "BadRequest",
        }
    }
}

impl RefusalCause {
    /// Returns the name in metrics and reports: `denied`, `failed`, `deadline` or `dry-run`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::DeadlinePassed => "deadline",
            Self::DryRunUnsupported => "dry-run",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, stage, cause } = self;
        match cause {
            RefusalCause::Denied(denial) if denial.is_whole => write!(f, "{denial}"),
            RefusalCause::Denied(denial) => {
                write!(f, "stage {stage} of chain {chain} denied the request: {denial}")
            }
            RefusalCause::Failed(Failure { kind, message, .. }) => {
                write!(f, "stage {stage} of chain {chain} failed ({kind}): {message}")
            }
            RefusalCause::DeadlinePassed => write!(
                f,
                "the request's deadline passed before stage {stage} of chain {chain} could be called"
            ),
            RefusalCause::DryRunUnsupported => {
                write!(f, "stage {stage} of chain {chain} does not support dry run")
            }
        }
    }
}

/// An audit annotation of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditAnnotation {
    /// The name of the stage.
    pub stage: Arc<str>,
    /// The annotation's key, without the stage.
    pub key: String,
    /// The annotation's value.
    pub value: String,
}

/// A row of the trace: what one stage did with one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceRow {
    /// The stage's chain.
    pub chain: Arc<str>,
    /// The chain's phase.
    pub phase: Phase,
    /// The name of the stage.
    pub stage: Arc<str>,
    /// 1, or 2 when it was called again because the object had changed after its first call.
    pub round: u8,
    /// Whether the answer is enforced. In mode `Audit`, the stage would have had this result.
    pub mode: Mode,
    /// The result of the stage.
    pub result: StageResult,
    /// The exception because of which the stage was not called.
    pub exception: Option<Arc<str>>,
    /// The time from the request's entry into the chains to the stage's turn; zero when the stage was not reached.
    pub start: Duration,
    /// The duration of the turn, from the selectors to the applied verdict; zero when the stage was not called.
    pub duration: Duration,
    /// The lines that its plugin logged.
    pub log: Vec<LogLine>,
    /// Whether the stage's candidate was called in place of its plugin.
    pub by_candidate: bool,
}

impl TraceRow {
    /// Creates the row of an enforced stage in its first round.
    pub fn new(
        chain: impl Into<Arc<str>>,
        phase: Phase,
        stage: impl Into<Arc<str>>,
        result: StageResult,
    ) -> Self {
        Self {
            chain: chain.into(),
            phase,
            stage: stage.into(),
            round: 1,
            mode: Mode::Enforce,
            result,
            exception: None,
            start: Duration::ZERO,
            duration: Duration::ZERO,
            log: Vec::new(),
            by_candidate: false,
        }
    }

    /// Returns whether the stage was called, or failed before it was.
    pub fn was_called(&self) -> bool {
        !matches!(self.result, StageResult::Skipped(_) | StageResult::NotReached)
    }
}

/// The result of a stage.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StageResult {
    /// The stage does not apply to this request.
    Skipped(SkipReason),
    /// An earlier stage had refused the request, or its deadline had passed.
    NotReached,
    /// The stage allowed the request unchanged.
    Allowed,
    /// The stage changed the object by this patch.
    Changed(Patch),
    /// The stage refused the request.
    Denied(Denial),
    /// The stage failed.
    Failed {
        /// The stage's failure.
        failure: Failure,
        /// The policy that was applied.
        policy: FailurePolicy,
    },
}

impl StageResult {
    /// Returns the word for tables and metrics: `skipped`, `not-reached`, `allow`, `patch`, `deny`, `failed`.
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

/// The reason for which a stage does not apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SkipReason {
    /// The namespace selector does not match the request's namespace.
    NamespaceSelector,
    /// The object selector matches neither the object nor the old object.
    ObjectSelector,
    /// None of its own rules matches the request.
    Rules,
    /// A rule excludes the request.
    Excluded,
    /// One of its match conditions is false.
    MatchCondition,
    /// Another stage takes precedence, and is called for the request.
    Precedence,
    /// The request is a dry run, and the stage has side effects.
    DryRun,
    /// An operator has disabled the stage for a time.
    Disabled,
    /// An exception matches the request. The row of the trace has the exception's name.
    Exception,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NamespaceSelector => "namespaceSelector does not match",
            Self::ObjectSelector => "objectSelector does not match",
            Self::Rules => "no rule of the stage matches",
            Self::Excluded => "a rule of the stage excludes it",
            Self::MatchCondition => "a match condition is false",
            Self::Precedence => "another stage takes precedence",
            Self::DryRun => "a stage with side effects is not called in a dry run",
            Self::Disabled => "the stage is disabled",
            Self::Exception => "an exception matches",
        })
    }
}
