use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Hook, LabelSelector, MatchConditions, NamespaceSelector, Rule};

/// One hook in a chain, with everything that decides when it is called and what its answer does.
#[derive(Clone)]
pub struct Stage {
    /// Names the stage in traces, metrics and refusals; unique in its chain.
    pub name: Arc<str>,
    /// What is called.
    pub hook: Arc<dyn Hook>,
    /// The requests of its chain that it is for: those that any of these matches; empty means all.
    pub rules: Vec<Rule>,
    /// The namespaces that it is for; none means all.
    pub namespace_selector: Option<NamespaceSelector>,
    /// The objects that it is for, by their labels; empty means all.
    pub object_selector: LabelSelector,
    /// What must be true of the request beside that; empty means nothing.
    pub match_conditions: MatchConditions,
    /// What a failure does.
    pub failure_policy: FailurePolicy,
    /// How long one call may take, within the request's deadline. Default: 1 s.
    pub timeout: Duration,
    /// Whether the answer counts.
    pub mode: Mode,
    /// What a call does beside answering.
    pub side_effects: SideEffects,
    /// Whether it is called again when the object changed after its call.
    pub reinvocation: Reinvocation,
}

impl Stage {
    /// The timeout of a stage that is given none.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// A stage for every request of its chain, with policy `Fail`, the default timeout, enforced.
    pub fn new(name: impl Into<Arc<str>>, hook: impl Hook) -> Self {
        Self {
            name: name.into(),
            hook: Arc::new(hook),
            rules: Vec::new(),
            namespace_selector: None,
            object_selector: LabelSelector::default(),
            match_conditions: MatchConditions::default(),
            failure_policy: FailurePolicy::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            mode: Mode::default(),
            side_effects: SideEffects::default(),
            reinvocation: Reinvocation::default(),
        }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("name", &self.name)
            .field("rules", &self.rules)
            .field("namespace_selector", &self.namespace_selector)
            .field("object_selector", &self.object_selector)
            .field("match_conditions", &self.match_conditions)
            .field("failure_policy", &self.failure_policy)
            .field("timeout", &self.timeout)
            .field("mode", &self.mode)
            .field("side_effects", &self.side_effects)
            .field("reinvocation", &self.reinvocation)
            .finish_non_exhaustive()
    }
}

/// What a stage's failure does to the request. A denial is not a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The request goes on with the last good object.
    Ignore,
}

impl FailurePolicy {
    /// Every policy.
    pub const ALL: [Self; 2] = [Self::Fail, Self::Ignore];

    /// As documents write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a stage's answer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// The stage runs, and what it would have done is recorded; nothing is changed or refused.
    Audit,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Enforce, Self::Audit];

    /// As documents write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "Enforce",
            Self::Audit => "Audit",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a call of a stage does beside answering. Kubernetes' `sideEffects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SideEffects {
    /// Nothing.
    #[default]
    None,
    /// Nothing when the request is a dry run.
    NoneOnDryRun,
    /// Something, in a dry run too.
    Some,
    /// Nobody knows.
    Unknown,
}

impl SideEffects {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::NoneOnDryRun, Self::Some, Self::Unknown];

    /// As documents write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
            Self::Some => "Some",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether the stage may be called in a dry run.
    pub fn allow_dry_run(self) -> bool {
        matches!(self, Self::None | Self::NoneOnDryRun)
    }
}

/// Whether a stage is called again when the object changed after its call. Kubernetes'
/// `reinvocationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reinvocation {
    /// It is called once.
    #[default]
    Never,
    /// It is called a second time if a later stage, of this chain or another, changed the object.
    IfNeeded,
}

impl Reinvocation {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Never, Self::IfNeeded];

    /// As documents write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNeeded => "IfNeeded",
        }
    }
}
