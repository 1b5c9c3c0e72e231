use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Exception, Hook, LabelSelector, MatchConditions, NamespaceSelector, ObjectGenerator, Rule, words,
};

/// One hook in a chain, with the settings that decide when it is called and what effect its verdict has.
#[derive(Clone)]
pub struct Stage {
    /// The settings of the stage.
    pub spec: StageSpec,
    /// The hook that is called.
    pub hook: Arc<dyn Hook>,
}

/// The settings of a stage, without its hook.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageSpec {
    /// Names the stage in traces, metrics and refusals; unique in its chain.
    pub name: Arc<str>,
    /// Generates the object that the stage sees instead of the request's. Its rules, selectors and conditions apply to
    /// the generated object.
    pub expansion: Option<Arc<dyn ObjectGenerator>>,
    /// The stage is called for requests of its chain that match any of these rules; empty means all.
    pub rules: Vec<Rule>,
    /// The stage is not called for requests that match any of these rules.
    pub exclude_rules: Vec<Rule>,
    /// The namespaces for which it is called; `None` means all.
    pub namespace_selector: Option<NamespaceSelector>,
    /// The objects for which it is called, by their labels; empty means all.
    pub object_selector: LabelSelector,
    /// Further conditions on the request; all must be true.
    pub match_conditions: MatchConditions,
    /// Stages of other chains that take precedence: the stage is not called for a request that one of them selects.
    pub yields_to: Vec<Arc<Precedence>>,
    /// The stage is not called for requests that match any of these exceptions.
    pub exceptions: Vec<Arc<Exception>>,
    /// The effect of a failure.
    pub failure_policy: FailurePolicy,
    /// The maximum duration of one call, within the request's deadline.
    pub timeout: Duration,
    /// Whether the verdict is enforced.
    pub mode: Mode,
    /// The side effects of a call.
    pub side_effects: SideEffects,
    /// Whether it is called again when the object changed after its call.
    pub reinvocation: Reinvocation,
    /// Whether a stage with `IfNeeded` is called again after its own change too, as kube-apiserver does with policies.
    pub reinvoked_by_itself: bool,
    /// The message that clients get for a denial. The hook's own message becomes a cause in the details.
    pub message: Option<Arc<str>>,
    /// Whether the messages of denials name the policy themselves. Clients then get them without the names of stage and
    /// chain, and the messages of all such stages of a request together, one per line.
    pub names_itself: bool,
    /// Whether the stage is not called at all, because an operator has disabled it for a time. No definition contains
    /// this.
    pub is_disabled: bool,
}

/// A stage that takes precedence over others, and the requests for which it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Precedence {
    /// The name of its chain.
    pub chain: Arc<str>,
    /// The namespaces for which it is called; `None` means all.
    pub namespaces: Option<NamespaceSelector>,
    /// The objects for which it is called, by their labels; empty means all.
    pub objects: LabelSelector,
}

impl StageSpec {
    /// The default timeout: 1 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// Creates the settings of a stage that is called for every request of its chain and is enforced, with the policy
    /// `Fail` and the default timeout.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            expansion: None,
            rules: Vec::new(),
            exclude_rules: Vec::new(),
            namespace_selector: None,
            object_selector: LabelSelector::default(),
            match_conditions: MatchConditions::default(),
            yields_to: Vec::new(),
            exceptions: Vec::new(),
            failure_policy: FailurePolicy::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            mode: Mode::default(),
            side_effects: SideEffects::default(),
            reinvocation: Reinvocation::default(),
            reinvoked_by_itself: false,
            message: None,
            names_itself: false,
            is_disabled: false,
        }
    }

    /// Returns whether the match conditions of the stage, or of its exceptions, may use the authorizer.
    pub fn uses_authorizer(&self) -> bool {
        let of_exceptions = self.exceptions.iter();
        let mut all = of_exceptions.map(|exception| &exception.match_conditions);
        self.match_conditions.uses_authorizer() || all.any(MatchConditions::uses_authorizer)
    }

    /// Creates the stage that calls this hook.
    pub fn with(self, hook: impl Hook) -> Stage {
        Stage {
            spec: self,
            hook: Arc::new(hook),
        }
    }
}

impl Stage {
    /// Creates a stage with the defaults of [`StageSpec::new`].
    pub fn new(name: impl Into<Arc<str>>, hook: impl Hook) -> Self {
        StageSpec::new(name).with(hook)
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// The effect of a stage's failure on the request. A denial is not a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The request continues with the object from before the stage.
    Ignore,
}

words!(FailurePolicy, "failure policy": Fail = "Fail", Ignore = "Ignore");

/// Whether a stage's verdict is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The verdict is enforced.
    #[default]
    Enforce,
    /// The stage runs, and what it would have done is recorded; nothing is changed or refused.
    Audit,
}

words!(Mode, "mode": Enforce = "Enforce", Audit = "Audit");

/// The side effects of calling a stage. Kubernetes' `sideEffects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SideEffects {
    /// No side effects.
    #[default]
    None,
    /// No side effects if the request is a dry run.
    NoneOnDryRun,
    /// Side effects, in a dry run too.
    Some,
    /// It is unknown whether there are side effects.
    Unknown,
}

words!(SideEffects, "kind of side effects": None = "None", NoneOnDryRun = "NoneOnDryRun", Some = "Some", Unknown = "Unknown");

impl SideEffects {
    /// Returns whether the stage may be called in a dry run.
    pub fn allow_dry_run(self) -> bool {
        matches!(self, Self::None | Self::NoneOnDryRun)
    }
}

/// Whether a stage is called again when the object changed after its call. Kubernetes' `reinvocationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reinvocation {
    /// The stage is called once.
    #[default]
    Never,
    /// The stage is called a second time if a later stage, of this chain or another, changed the object.
    IfNeeded,
}

words!(Reinvocation, "reinvocation policy": Never = "Never", IfNeeded = "IfNeeded");
