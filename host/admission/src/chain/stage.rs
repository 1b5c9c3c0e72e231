use std::{sync::Arc, time::Duration};

use crate::{Exception, Hook, LabelSelector, MatchConditions, NamespaceSelector, ObjectGenerator, Rule, keywords};

/// A hook in a chain, with settings for when it is called and how its verdict is applied.
#[derive(Clone, derive_more::Debug)]
#[debug("Stage {{ spec: {spec:?}, .. }}")]
pub struct Stage {
    /// The settings of this stage.
    pub spec: StageSpec,
    /// The hook that gives the verdict of this stage.
    pub hook: Arc<dyn Hook>,
}

/// The settings of a stage.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageSpec {
    /// The stage's name in traces, metrics and refusals. It is unique in its chain.
    pub name: Arc<str>,
    /// Generates another object from the request's object, such as the Pod of a Deployment. If this is set, the stage
    /// and its selectors get the generated object, and not the object of the request.
    pub expansion: Option<Arc<dyn ObjectGenerator>>,
    /// The stage's rules. A request must match at least one of them; an empty list matches every request of the chain.
    pub rules: Vec<Rule>,
    /// The rules that exclude requests from the stage. The hook is called only if the request matches none of them.
    pub exclude_rules: Vec<Rule>,
    /// The namespaces for which the hook is called; `None` includes all.
    pub namespace_selector: Option<NamespaceSelector>,
    /// The labels of the objects for which the hook is called; an empty selector includes all objects.
    pub object_selector: LabelSelector,
    /// Conditions on the request, which must all be true for the hook to be called.
    pub match_conditions: MatchConditions,
    /// Stages of other chains that take precedence over this stage. If one of them selects a request, the hook of this
    /// stage is not called.
    pub yields_to: Vec<Arc<Precedence>>,
    /// The exceptions from the stage. The hook is not called for a request that matches any of them.
    pub exceptions: Vec<Arc<Exception>>,
    /// The treatment of the request when the stage's hook fails.
    pub failure_policy: FailurePolicy,
    /// The maximum duration of a call of the hook. The call ends earlier if the request's deadline is earlier.
    pub timeout: Duration,
    /// Whether the hook's verdict is enforced.
    pub mode: Mode,
    /// The side effects of calling the hook.
    pub side_effects: SideEffects,
    /// Whether the stage's hook is called again when the object changed after its call.
    pub reinvocation: Reinvocation,
    /// Whether the hook is also called again after it has changed the object itself, as kube-apiserver does with
    /// policies. If not, only changes by other stages count.
    pub reinvoked_by_itself: bool,
    /// The message of the stage's denials. The hook's own message becomes a cause in the details.
    pub message: Option<Arc<str>>,
    /// Whether the hook's denial messages name the policy. If so, clients get these messages without the names of stage
    /// and chain. If several such stages deny a request, their messages are joined, one per line.
    pub denials_name_policy: bool,
    /// Whether an operator has disabled the stage for some time, so that its hook is not called.
    pub is_disabled: bool,
}

/// A stage that takes precedence over another stage, and the requests that it selects. The other stage's hook is not
/// called for these requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Precedence {
    /// The chain of the stage that takes precedence over the other stage.
    pub chain: Arc<str>,
    /// The namespace selector of the stage that takes precedence over the other stage; `None` selects all namespaces.
    pub namespaces: Option<NamespaceSelector>,
    /// The object selector of the stage that takes precedence over the other stage; if empty, it selects all objects.
    pub objects: LabelSelector,
}

impl StageSpec {
    /// The default timeout: 1 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// Creates the default settings: the hook is called for every request of the chain, its verdict is enforced, a
    /// failure refuses the request, and the timeout is [`DEFAULT_TIMEOUT`](Self::DEFAULT_TIMEOUT).
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
            denials_name_policy: false,
            is_disabled: false,
        }
    }

    /// Returns whether match conditions of the stage or of its exceptions may call the authorizer.
    pub fn uses_authorizer(&self) -> bool {
        let of_exceptions = self.exceptions.iter();
        let mut all = of_exceptions.map(|exception| &exception.match_conditions);
        self.match_conditions.uses_authorizer() || all.any(MatchConditions::uses_authorizer)
    }

    /// Creates a stage with these settings and this hook.
    pub fn with_hook(self, hook: impl Hook) -> Stage {
        Stage {
            spec: self,
            hook: Arc::new(hook),
        }
    }
}

impl Stage {
    /// Creates a stage with the settings of [`StageSpec::new`].
    pub fn new(name: impl Into<Arc<str>>, hook: impl Hook) -> Self {
        StageSpec::new(name).with_hook(hook)
    }
}

/// The effect of a failure of a stage's hook on the request. A denial is not a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The request continues with the object that it had before the stage.
    Ignore,
}

keywords!(FailurePolicy, "failure policy": Fail = "Fail", Ignore = "Ignore");

/// Whether a stage's verdict is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The verdict is enforced.
    #[default]
    Enforce,
    /// The hook is called and its verdict recorded, but it neither changes nor refuses the request.
    Audit,
}

keywords!(Mode, "mode": Enforce = "Enforce", Audit = "Audit");

/// The side effects of calling a hook, as in Kubernetes' `sideEffects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SideEffects {
    /// Calls of the hook have no side effects.
    #[default]
    None,
    /// Calls of the hook have no side effects if the request is a dry run.
    NoneOnDryRun,
    /// Calls of the hook have side effects, even if the request is a dry run.
    Some,
    /// It is unknown whether calls of the hook have side effects.
    Unknown,
}

keywords!(SideEffects, "kind of side effects": None = "None", NoneOnDryRun = "NoneOnDryRun", Some = "Some", Unknown = "Unknown");

impl SideEffects {
    /// Returns whether a hook with these side effects may be called for a dry run.
    pub fn allow_dry_run(self) -> bool {
        matches!(self, Self::None | Self::NoneOnDryRun)
    }
}

/// Whether a mutating stage's hook is called again when the object changed later, as in `reinvocationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reinvocation {
    /// The hook is called once.
    #[default]
    Never,
    /// The hook is called a second time if a later stage, in any chain, changed the object.
    IfNeeded,
}

keywords!(Reinvocation, "reinvocation policy": Never = "Never", IfNeeded = "IfNeeded");
