//! One stage's turn for one request: whether it is called, and its answer.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::time::timeout_at;

use crate::{
    Deadline, Effect, Failure, FailureKind, Object, Phase, Request, Response, SkipReason, Stage, Surroundings,
};

/// A request at a stage, and the lookups that it may use. Lives as long as the turn.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) request: &'a Request,
    pub(crate) deadline: Deadline,
    pub(crate) surroundings: Surroundings<'a>,
}

/// The result of a stage's turn.
pub(crate) enum Step {
    /// The request's deadline had already passed.
    DeadlinePassed,
    /// The stage does not apply to the request.
    Skipped(SkipReason),
    /// Whether it applies could not be determined.
    Unselected(Failure),
    /// The hook was called.
    Answered(Result<(Effect, Notes), Failure>),
}

/// Warnings and audit annotations of a verdict.
pub(crate) struct Notes {
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: Vec<(String, String)>,
}

impl Turn<'_> {
    /// Runs the turn of a stage of a chain of this phase.
    pub(crate) async fn take(&self, phase: Phase, stage: &Stage) -> Step {
        if self.deadline.has_passed() {
            return Step::DeadlinePassed;
        }
        let deadline = self.deadline.within(stage.spec.timeout);
        match self.select(stage, deadline).await {
            Ok(Some(reason)) => return Step::Skipped(reason),
            Err(failure) => return Step::Unselected(failure),
            Ok(None) => {}
        }
        if self.request.dry_run && !stage.spec.side_effects.allow_dry_run() {
            return Step::Skipped(SkipReason::DryRun);
        }
        Step::Answered(match self.call(stage, deadline).await {
            Ok(response) => {
                let response = response.with_message(stage.spec.message.as_deref());
                let response = response.named_by(&stage.spec);
                self.judge(phase, response.bounded(), deadline).await
            }
            Err(failure) => Err(failure),
        })
    }

    /// Why the stage does not apply to this request, if it does not.
    async fn select(&self, stage: &Stage, deadline: Deadline) -> Result<Option<SkipReason>, Failure> {
        let request = self.request;
        if !stage.spec.rules.is_empty() && !stage.spec.rules.iter().any(|rule| rule.matches(request)) {
            return Ok(Some(SkipReason::Rules));
        }
        if stage.spec.exclude_rules.iter().any(|rule| rule.matches(request)) {
            return Ok(Some(SkipReason::Excluded));
        }
        if let Some(selector) = &stage.spec.namespace_selector {
            let matches = selector.matches(request, self.surroundings.namespaces);
            let matches = timeout_at(deadline.instant(), matches)
                .await
                .map_err(|_| timed_out("timeout while reading the labels of the namespace"))?
                .map_err(|error| Failure::new(FailureKind::NamespaceUnknown, error.to_string()))?;
            if !matches {
                return Ok(Some(SkipReason::NamespaceSelector));
            }
        }
        let selector = &stage.spec.object_selector;
        // kube-apiserver: an object without metadata matches no selector but the empty one.
        let chosen = |object: &Option<Object>| {
            object
                .as_ref()
                .is_some_and(|object| object.head().has_metadata && selector.matches(object.labels()))
        };
        if !selector.is_empty() && !chosen(&request.object) && !chosen(&request.old_object) {
            return Ok(Some(SkipReason::ObjectSelector));
        }
        let conditions = &stage.spec.match_conditions;
        if !conditions
            .matches(request, self.surroundings.authorizer, deadline)
            .await?
        {
            return Ok(Some(SkipReason::MatchCondition));
        }
        Ok(None)
    }

    async fn call(&self, stage: &Stage, deadline: Deadline) -> Result<Response, Failure> {
        // A panic in a native hook is a failure of that stage only.
        let call = AssertUnwindSafe(stage.hook.admit(self.request, deadline)).catch_unwind();
        match timeout_at(deadline.instant(), call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(Failure::new(FailureKind::Trap, panic_message(&*panic))),
            Err(_) if deadline == self.deadline => Err(timed_out("no verdict before the request's deadline")),
            Err(_) => Err(timed_out(&format!(
                "no verdict within the stage's timeout of {:?}",
                stage.spec.timeout
            ))),
        }
    }

    /// The effect of the response on the object, and its notes.
    async fn judge(
        &self,
        phase: Phase,
        response: Response,
        deadline: Deadline,
    ) -> Result<(Effect, Notes), Failure> {
        let Response {
            verdict,
            warnings,
            audit_annotations,
        } = response;
        let effect = verdict.effect(self.request, deadline).await?;
        if phase == Phase::Validating && matches!(effect, Effect::Change(..)) {
            return Err(Failure::new(
                FailureKind::InvalidResponse,
                "the verdict changes the object, but a stage of a validating chain may only allow or deny",
            ));
        }
        let notes = Notes {
            warnings,
            audit_annotations,
        };
        Ok((effect, notes))
    }
}

fn timed_out(what: &str) -> Failure {
    Failure::new(FailureKind::Timeout, what)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the hook panicked: {}", text.unwrap_or("no message"))
}
