use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Denial, Failure, FailureKind, FailurePolicy, LogLine, Mode, Object, Patch, Phase, Uid};

/// The result of all chains for a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The UID of the request.
    pub uid: Uid,
    /// Whether the request is allowed or refused.
    pub decision: Decision,
    /// The object with the changes of all stages. For a refused request, it has the changes up to the refusal.
    pub object: Option<Object>,
    /// The patch from the original object to [`object`](Self::object); empty when nothing changed.
    pub patch: Patch,
    /// Warnings for the client, in the order of the stages.
    pub warnings: Vec<String>,
    /// The stages' annotations for the audit log.
    pub audit_annotations: Vec<AuditAnnotation>,
    /// The trace, with a row for each stage of the matching chains, in the order of the stages.
    pub trace: Vec<TraceRow>,
}

impl Outcome {
    /// Returns whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self.decision, Decision::Allowed)
    }

    /// Creates an outcome of a UID and a decision, without object, patch, warnings, annotations and trace.
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
    /// The request is allowed.
    Allowed,
    /// The request is refused.
    Refused(RequestRefusal),
}

/// The refusal of a request. Its message names the stage and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// The chain to which the refusing stage belongs.
    pub chain: Arc<str>,
    /// The stage that refused the request. If the deadline passed, this is the first stage that was not called.
    pub stage: Arc<str>,
    /// The cause of the refusal, which determines the HTTP status of the reply.
    pub cause: RefusalCause,
}

/// The cause of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The stage denied the request.
    Denied(Denial),
    /// The stage failed, and its failure policy is `Fail`.
    Failed(Failure),
    /// The request's deadline passed before all stages were called. As in kube-apiserver, the failure policy does not
    /// matter, because a stage that was not called has not allowed the request.
    DeadlinePassed,
    /// The request is a dry run, but the hook has side effects. As in kube-apiserver, no failure policy applies.
    DryRunUnsupported,
}

impl RequestRefusal {
    /// Returns the denial of the stage; `None` if the cause of the refusal is not a denial.
    pub fn denial(&self) -> Option<&Denial> {
        match &self.cause {
            RefusalCause::Denied(denial) => Some(denial),
            _ => None,
        }
    }

    /// Returns the HTTP status code of the refusal: 500 if a hook failed, 403 if a match condition failed, 504 if the
    /// deadline passed, 400 if the request is a dry run and the hook has side effects, and otherwise the code of the
    /// denial. kube-apiserver also uses 403 and 400 for this.
    pub fn code(&self) -> u16 {
        match &self.cause {
            RefusalCause::Denied(denial) => denial.code(),
            RefusalCause::Failed(failure) if failure.kind == FailureKind::Condition => 403,
            RefusalCause::Failed(_) => 500,
            RefusalCause::DeadlinePassed => 504,
            RefusalCause::DryRunUnsupported => 400,
        }
    }

    /// Returns the reason of the refusal as a CamelCase word for programs, such as `Forbidden`. It is the `reason` of
    /// Kubernetes' `Status`, and may be empty.
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
    /// Returns the name of the cause in metrics and reports: `denied`, `failed`, `deadline` or `dry-run`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::DeadlinePassed => "deadline",
            Self::DryRunUnsupported => "dry-run",
        }
    }
}

impl fmt::Display for RequestRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, stage, cause } = self;
        match cause {
            RefusalCause::Denied(denial) if denial.names_policy => write!(f, "{denial}"),
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

/// An audit annotation that a stage added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditAnnotation {
    /// The name of the stage that added the annotation.
    pub stage: Arc<str>,
    /// The key of the annotation, without the name of the stage.
    pub key: String,
    /// The value of the annotation.
    pub value: String,
}

/// A row of the trace, which describes how one stage handled the request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceRow {
    /// The chain to which the stage belongs.
    pub chain: Arc<str>,
    /// The phase of the stage's chain.
    pub phase: Phase,
    /// The name of the stage that the row describes.
    pub stage: Arc<str>,
    /// The round in which the stage was called: 1 for its first call, 2 for a second call after the object changed.
    pub round: u8,
    /// The mode of the stage. In mode `Audit`, the result shows what the stage would have done.
    pub mode: Mode,
    /// The result of the stage's turn.
    pub result: StageResult,
    /// The name of the exception that exempts the request, so that the stage's hook was not called.
    pub exception: Option<Arc<str>>,
    /// The time between the request's arrival at the chains and the stage's turn; zero if the stage had no turn.
    pub start: Duration,
    /// The duration of the stage's turn, from the selectors to applying the verdict; zero if it had no turn.
    pub duration: Duration,
    /// The log lines of the stage's plugin.
    pub log: Vec<LogLine>,
    /// Whether the stage's candidate plugin was called instead of its plugin.
    pub by_candidate: bool,
}

impl TraceRow {
    /// Creates the row of a stage in mode `Enforce`, in the first round.
    pub fn new(chain: impl Into<Arc<str>>, phase: Phase, stage: impl Into<Arc<str>>, result: StageResult) -> Self {
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

    /// Returns whether the stage's hook was called, or the stage failed before the call.
    pub fn was_called(&self) -> bool {
        !matches!(self.result, StageResult::Skipped(_) | StageResult::NotReached)
    }
}

/// The result of a stage's turn, for its row of the trace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StageResult {
    /// The stage does not apply to this request.
    Skipped(SkipReason),
    /// An earlier stage refused the request, or the request's deadline had passed.
    NotReached,
    /// The stage allowed the request unchanged.
    Allowed,
    /// The stage changed the object with this patch.
    Changed(Patch),
    /// The stage denied the request.
    Denied(Denial),
    /// The stage failed.
    Failed {
        /// The stage's failure.
        failure: Failure,
        /// The failure policy of the stage, which decides what the failure does to the request.
        policy: FailurePolicy,
    },
}

impl StageResult {
    /// Returns the result's name in tables and metrics: `skipped`, `not-reached`, `allow`, `patch`, `deny` or `failed`.
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

/// The reason why a stage's hook is not called for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, derive_more::Display)]
#[non_exhaustive]
pub enum SkipReason {
    /// The stage's namespace selector does not match the namespace of the request.
    #[display("namespaceSelector does not match")]
    NamespaceSelector,
    /// The stage's object selector matches neither the new nor the old object.
    #[display("objectSelector does not match")]
    ObjectSelector,
    /// None of the stage's rules matches the request.
    #[display("no rule of the stage matches")]
    Rules,
    /// One of the stage's rules for exclusion matches the request.
    #[display("a rule of the stage excludes it")]
    Excluded,
    /// A match condition of the stage is false.
    #[display("a match condition is false")]
    MatchCondition,
    /// A stage of another chain selects the request, and takes precedence over this stage.
    #[display("another stage takes precedence")]
    Precedence,
    /// The request is a dry run, and the stage's hook has side effects.
    #[display("a stage with side effects is not called in a dry run")]
    DryRun,
    /// An operator has temporarily disabled the stage.
    #[display("the stage is disabled")]
    Disabled,
    /// An exception from the stage matches the request. The stage's row in the trace names it.
    #[display("an exception matches")]
    Exception,
}
