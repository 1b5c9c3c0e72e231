//! Evaluates whole expressions, including the variables of the policy and the calls of the authorizer that they need.

use std::mem;

use admittance_admission::{
    Authorizer, PolicyHttp, RecordedCluster, Request, is_call_movable, move_to_long_work_thread,
};

use super::{DEADLINE_INTERVAL, ExpressionMeter, Fault, Halt, Machine, Outcome};
use crate::expression::Expression;

/// The total cost of expressions after which the task yields.
const YIELD_COST: u64 = 100_000;

#[derive(Clone, Copy)]
pub(crate) struct ValueSources<'s> {
    pub(crate) request: &'s Request,
    pub(crate) authorizer: &'s dyn Authorizer,
    pub(crate) cluster: Option<RecordedCluster<'s>>,
    pub(crate) http: Option<&'s PolicyHttp>,
}

impl<'a> Machine<'a> {
    /// Evaluates an expression. If it needs a value that the request does not contain, such as the authorizer's reply,
    /// the evaluation stops, the value is fetched, and the evaluation starts again. If the evaluation becomes
    /// expensive, it also stops, and starts again on a thread for long work.
    pub(crate) async fn settle(&mut self, expression: &'a Expression, sources: ValueSources<'_>) -> Outcome<'a> {
        let outcome = loop {
            match self.run(expression) {
                Err(Fault::Halt(Halt::Question(question))) => {
                    let user = question.user.as_ref().unwrap_or(&sources.request.user);
                    let answer = sources.authorizer.authorize(user, &question.attributes);
                    match tokio::time::timeout_at(self.deadline.instant(), answer).await {
                        Ok(answer) => {
                            if let (Some(recorder), Ok(access)) = (&sources.request.recorder, &answer) {
                                recorder.record_access(user, &question.attributes, access.allowed);
                            }
                            self.authorizer_answers.insert(*question, answer);
                        }
                        Err(_) => break Err(Fault::Halt(Halt::Deadline)),
                    }
                }
                Err(Fault::Halt(Halt::Lookup(lookup))) => {
                    let value_lookup = lookup.find(&sources, self.deadline);
                    match tokio::time::timeout_at(self.deadline.instant(), value_lookup).await {
                        Ok(value) => self.lookups.insert(*lookup, value),
                        Err(_) => break Err(Fault::Halt(Halt::Deadline)),
                    }
                }
                Err(Fault::Halt(Halt::MoveThread)) => move_to_long_work_thread().await,
                outcome => break outcome,
            }
        };
        if self.cost_since_pause >= DEADLINE_INTERVAL && is_call_movable() {
            move_to_long_work_thread().await;
        } else if self.cost_since_pause >= YIELD_COST {
            self.cost_since_pause = 0;
            tokio::task::yield_now().await;
        }
        outcome
    }

    pub(crate) fn run(&mut self, expression: &'a Expression) -> Outcome<'a> {
        let outer = mem::replace(&mut self.meter, ExpressionMeter::with_budget(self.budget));
        let locals = mem::take(&mut self.locals);
        let outcome = self.evaluate(expression);
        self.locals = locals;
        let inner = mem::replace(&mut self.meter, outer);
        if !matches!(&outcome, Err(Fault::Halt(halt)) if halt.is_pause()) {
            self.budget = self.budget.saturating_sub(inner.cost);
            self.cost_since_pause = self.cost_since_pause.saturating_add(inner.computed_cost());
        }
        outcome
    }

    pub(crate) fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Returns the value of a policy's variable, which is evaluated at its first use, with a cost limit of its own.
    #[inline(never)]
    pub(super) fn evaluate_composed(&mut self, index: usize) -> Outcome<'a> {
        self.charge(1)?;
        if let Some(Some(cached_value)) = self.composed_values.get(index) {
            return cached_value.clone().map_err(Fault::Error);
        }
        let Some(definition) = self.definitions.get(index) else {
            return Err(Fault::error("no such attribute"));
        };
        let outer = self.meter.cost;
        self.budget = self.budget.saturating_sub(outer);
        let outcome = self.run(&definition.expression);
        self.budget = self.budget.saturating_add(outer);
        if self.budget < self.meter.limit {
            self.meter.limit = self.budget;
            self.meter.limit_halt = Halt::TotalCost;
        }
        let because = |why: &str| format!("composited variable {:?} fails to evaluate: {why}", definition.name);
        let result = match outcome {
            Ok(value) => Ok(value),
            Err(Fault::Error(why)) => Err(because(&why)),
            Err(Fault::Halt(Halt::Cost)) => Err(because("operation cancelled: actual cost limit exceeded")),
            Err(halt) => return Err(halt),
        };
        if let Some(slot) = self.composed_values.get_mut(index) {
            *slot = Some(result.clone());
        }
        result.map_err(Fault::Error)
    }
}
