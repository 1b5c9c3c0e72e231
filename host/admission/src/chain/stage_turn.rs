//! Calls one stage for one request, if the stage applies to it.

use std::{borrow::Cow, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::{
    Deadline, Effect, EvaluationSources, Failure, FailureKind, LabelSelector, NamespaceSelector, Object, Phase,
    Request, Response, SkipReason, Stage, StageSpec, chain::expansion::GeneratedObjects, chain::spans,
};

#[derive(Clone, Copy)]
pub(crate) struct StageTurn<'a> {
    pub(crate) request: &'a Arc<Request>,
    pub(crate) start_time: Instant,
    pub(crate) deadline: Deadline,
    pub(crate) sources: EvaluationSources<'a>,
    pub(crate) generated_objects: &'a GeneratedObjects,
}

pub(crate) enum TurnResult {
    DeadlinePassed,
    Skipped {
        reason: SkipReason,
        exception: Option<Arc<str>>,
    },
    /// A check whether the stage applies to the request failed, so the hook was not called.
    Unselected(Failure),
    Answered(Result<(Effect, ResponseNotes), Failure>),
}

impl TurnResult {
    fn from_skip_reason(reason: SkipReason) -> Self {
        Self::Skipped {
            reason,
            exception: None,
        }
    }
}

pub(crate) struct ResponseNotes {
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: Vec<(String, String)>,
}

impl Stage {
    /// Returns the reason why the stage's hook would not be called for this request; `None` if it would be called. The
    /// rules of the chain are not checked, and no hook is called.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be determined whether the stage applies, for example because the namespace's labels cannot
    /// be read. During the evaluation of a request, the stage fails in this case.
    pub async fn skip_reason(
        &self,
        request: &Request,
        sources: EvaluationSources<'_>,
        deadline: Deadline,
    ) -> Result<Option<SkipReason>, Failure> {
        let turn = StageTurn {
            request: &Arc::new(request.clone()),
            start_time: Instant::now(),
            deadline,
            sources,
            generated_objects: &GeneratedObjects::default(),
        };
        if self.spec.is_disabled {
            return Ok(Some(SkipReason::Disabled));
        }
        let possible_request = turn.stage_request(&self.spec, deadline).await;
        Ok(turn
            .find_skip(self, &possible_request, deadline)
            .await?
            .map(|(reason, _)| reason))
    }
}

impl StageTurn<'_> {
    pub(crate) async fn take(&self, phase: Phase, stage: &Stage) -> TurnResult {
        // A disabled stage must not refuse any request, even after the deadline.
        if stage.spec.is_disabled {
            return TurnResult::from_skip_reason(SkipReason::Disabled);
        }
        if self.deadline.has_passed() {
            return TurnResult::DeadlinePassed;
        }
        let deadline = self.deadline.within(stage.spec.timeout);
        let possible_request = self.stage_request(&stage.spec, deadline).await;
        match self.find_skip(stage, &possible_request, deadline).await {
            Ok(Some((reason, exception))) => return TurnResult::Skipped { reason, exception },
            Err(failure) => return TurnResult::Unselected(failure),
            Ok(None) => {}
        }
        // `possible_request` has a request here: else `find_skip` gives a reason or a failure, and this function
        // returns above. So the fallback is never used.
        let stage_request = possible_request.ok().flatten().unwrap_or(Cow::Borrowed(self.request));
        let turn = StageTurn {
            request: &stage_request,
            ..*self
        };
        let span = spans::new_stage_span(stage);
        let answer = turn
            .answer_request(phase, stage, deadline)
            .instrument(span.clone())
            .await;
        spans::record_answer(&span, &answer);
        TurnResult::Answered(answer)
    }

    /// Returns the request that the stage gets. If the stage has an expansion, this is a request for the object that
    /// the expansion generates; `None` if it generates no object.
    async fn stage_request(
        &self,
        spec: &StageSpec,
        deadline: Deadline,
    ) -> Result<Option<Cow<'_, Arc<Request>>>, Failure> {
        let Some(expansion) = &spec.expansion else {
            return Ok(Some(Cow::Borrowed(self.request)));
        };
        let expanded_request = self
            .generated_objects
            .get(expansion, self.request, self.sources, deadline);
        Ok(expanded_request.await?.map(Cow::Owned))
    }

    async fn answer_request(
        &self,
        phase: Phase,
        stage: &Stage,
        deadline: Deadline,
    ) -> Result<(Effect, ResponseNotes), Failure> {
        let response = self
            .call(stage, deadline)
            .await?
            .with_message(stage.spec.message.as_deref())
            .with_names_policy(&stage.spec);
        self.apply_verdict(phase, response.into_bounded(), deadline).await
    }

    async fn find_skip(
        &self,
        stage: &Stage,
        possible_request: &Result<Option<Cow<'_, Arc<Request>>>, Failure>,
        deadline: Deadline,
    ) -> Result<Option<(SkipReason, Option<Arc<str>>)>, Failure> {
        let rules_skip_reason = match possible_request {
            Ok(Some(request)) => stage.spec.skip_reason(request, self.sources, deadline).await,
            Ok(None) => Ok(Some(SkipReason::Rules)),
            Err(failure) => Err(failure.clone()),
        };
        if let Ok(Some(reason)) = rules_skip_reason {
            return Ok(Some((reason, None)));
        }
        // The evaluation of the rules and selectors may have failed. An exception exempts the request even then, so the
        // exceptions are checked before the failure is returned.
        if let Some(exception) = self.matching_exception(stage).await {
            return Ok(Some((SkipReason::Exception, Some(exception))));
        }
        rules_skip_reason?;
        let is_refused = self.request.dry_run && !stage.spec.side_effects.allow_dry_run();
        Ok(is_refused.then_some((SkipReason::DryRun, None)))
    }

    async fn matching_exception(&self, stage: &Stage) -> Option<Arc<str>> {
        for exception in &stage.spec.exceptions {
            let authorizer = self.sources.authorizer;
            if exception.matches(self.request, authorizer, self.deadline).await {
                return Some(exception.name.clone());
            }
        }
        None
    }

    async fn call(&self, stage: &Stage, deadline: Deadline) -> Result<Response, Failure> {
        // If a native hook panics, its stage fails, and other stages continue.
        let call = AssertUnwindSafe(stage.hook.admit(self.request, deadline)).catch_unwind();
        match timeout_at(deadline.instant(), call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(Failure::new(FailureKind::Trap, panic_message(&*panic))),
            Err(_) if deadline == self.deadline => Err(timeout_failure("no verdict before the request's deadline")),
            Err(_) => Err(timeout_failure(&format!(
                "no verdict within the stage's timeout of {:?}",
                stage.spec.timeout
            ))),
        }
    }

    async fn apply_verdict(
        &self,
        phase: Phase,
        response: Response,
        deadline: Deadline,
    ) -> Result<(Effect, ResponseNotes), Failure> {
        let Response {
            verdict,
            warnings,
            audit_annotations,
        } = response;
        let effect = verdict.into_effect(self.request, deadline).await?;
        if phase == Phase::Validating && matches!(effect, Effect::Change(..)) {
            return Err(Failure::new(
                FailureKind::InvalidResponse,
                "the verdict changes the object, but a stage of a validating chain may only allow or deny",
            ));
        }
        let notes = ResponseNotes {
            warnings,
            audit_annotations,
        };
        Ok((effect, notes))
    }
}

impl StageSpec {
    /// Returns the first setting of the stage that excludes this request: the rules, a selector, a match condition, or
    /// another stage's precedence; `None` if no setting excludes the request. The stage's exceptions are not checked.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be determined whether the request is excluded.
    pub async fn skip_reason(
        &self,
        request: &Request,
        sources: EvaluationSources<'_>,
        deadline: Deadline,
    ) -> Result<Option<SkipReason>, Failure> {
        if !self.rules.is_empty() && !self.rules.iter().any(|rule| rule.matches(request)) {
            return Ok(Some(SkipReason::Rules));
        }
        if self.exclude_rules.iter().any(|rule| rule.matches(request)) {
            return Ok(Some(SkipReason::Excluded));
        }
        let selectors = (self.namespace_selector.as_ref(), &self.object_selector);
        if let Some(reason) = selector_skip_reason(selectors, request, sources, deadline).await? {
            return Ok(Some(reason));
        }
        let conditions = &self.match_conditions;
        if !conditions.matches(request, sources.authorizer, deadline).await? {
            return Ok(Some(SkipReason::MatchCondition));
        }
        for other in &self.yields_to {
            let selectors = (other.namespaces.as_ref(), &other.objects);
            if selector_skip_reason(selectors, request, sources, deadline)
                .await?
                .is_none()
            {
                return Ok(Some(SkipReason::Precedence));
            }
        }
        Ok(None)
    }
}

async fn selector_skip_reason(
    (namespaces, objects): (Option<&NamespaceSelector>, &LabelSelector),
    request: &Request,
    sources: EvaluationSources<'_>,
    deadline: Deadline,
) -> Result<Option<SkipReason>, Failure> {
    if let Some(selector) = namespaces {
        let matches = selector.matches(request, sources.namespaces);
        let matches = timeout_at(deadline.instant(), matches)
            .await
            .map_err(|_| timeout_failure("timeout while reading the labels of the namespace"))?
            .map_err(|error| Failure::new(FailureKind::NamespaceUnknown, error.to_string()))?;
        if !matches {
            return Ok(Some(SkipReason::NamespaceSelector));
        }
    }
    // As in kube-apiserver, an object without metadata matches only the empty selector.
    let is_selected = |object: &Option<Object>| {
        object
            .as_ref()
            .is_some_and(|object| object.head().has_metadata && objects.matches(object.labels()))
    };
    if !objects.is_empty() && !is_selected(&request.object) && !is_selected(&request.old_object) {
        return Ok(Some(SkipReason::ObjectSelector));
    }
    Ok(None)
}

fn timeout_failure(message: &str) -> Failure {
    Failure::new(FailureKind::Timeout, message)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the hook panicked: {}", text.unwrap_or("no message"))
}
