//! CEL conditions that decide whether a stage is called: kube-apiserver's `matchConditions`.
//!
//! An expression sees `object` and `oldObject` (null when there is none), `request` (the fields of an
//! AdmissionRequest without uid and objects; empty fields are absent), `authorizer`,
//! `authorizer.requestResource`, and `namespaceObject`, which is always null for webhooks.
//!
//! # Functions
//!
//! - Operators, `in`, `?:`, indexes, selects; optional ones too: `object.?spec.?nodeName.orValue('')`.
//! - Macros: `has`, `all`, `exists`, `exists_one` (and `existsOne`), `map`, `filter`, `optMap`,
//!   `optFlatMap`.
//! - Conversions: `int`, `uint`, `double`, `string`, `bytes`, `bool`, `type`, `dyn`; and `size`.
//! - Strings: `startsWith`, `endsWith`, `contains`, `charAt`, `indexOf`, `lastIndexOf`, `substring`,
//!   `replace`, `split`, `join`, `trim`, `lowerAscii`, `upperAscii`.
//! - Regular expressions as Go reads them: `matches`, `find`, `findAll`.
//! - Lists: `indexOf`, `lastIndexOf`, `isSorted`, `min`, `max`, `sum`; `sets.contains`,
//!   `sets.equivalent`, `sets.intersects`.
//! - Time: `timestamp`, `duration`, arithmetic, `getFullYear` and the other parts (in UTC or at an offset;
//!   zones have no names here).
//! - Optional values: `optional.of`, `optional.ofNonZeroValue`, `optional.none`, `hasValue`, `value`, `or`,
//!   `orValue`.
//! - The authorizer: `path`, `group`, `resource`, `subresource`, `namespace`, `name`, `serviceAccount`,
//!   `check`, `allowed`, `reason`, `errored`, `error`.
//! - Networks: `isIP`, `ip`, `ip.isCanonical`, `family`, `isUnspecified`, `isLoopback`,
//!   `isLinkLocalMulticast`, `isLinkLocalUnicast`, `isGlobalUnicast`; `isCIDR`, `cidr`, `containsIP`,
//!   `containsCIDR`, `masked`, `prefixLength`.
//! - Quantities: `isQuantity`, `quantity`, `sign`, `isInteger`, `asInteger`, `asApproximateFloat`,
//!   `compareTo`, `isLessThan`, `isGreaterThan`, `add`, `sub`.
//!
//! Kubernetes has more (`format`, `quote`, `url`, `semver`, field and label selectors of the authorizer,
//! macros with two variables): a condition that calls one of those does not compile, and the error names it.
//!
//! # Cost
//!
//! Every operation is charged before it runs, in about the units of kube-apiserver and with its limits:
//! 1,000,000 for an expression, 2,500,000 for all of a stage. That bounds time and memory of an evaluation,
//! whatever is in the object.

use std::sync::Arc;

use admittance_admission::{
    Authorizer, Conditions, Deadline, Failure, FailureKind, MatchConditions, Request, async_trait,
};
use check::Checked;
use functions::authorizer::Answers;
use machine::{Fault, Halt, Machine};
use value::Value;
use variables::{Uses, Variables};

mod check;
mod compile;
mod error;
mod expression;
mod functions;
mod machine;
mod types;
mod value;
mod variables;

#[cfg(test)]
mod tests;

pub use error::{ConditionError, ConditionFailure, FailedCondition};

/// The cost limit of all conditions of a stage together: kube-apiserver's limit for a webhook.
const TOTAL_COST: u64 = 2_500_000;
/// A condition yields to other tasks after this cost.
const YIELD_COST: u64 = 100_000;

/// One compiled condition.
#[derive(Debug)]
pub struct MatchCondition {
    name: Arc<str>,
    text: Box<str>,
    checked: Checked,
}

impl MatchCondition {
    /// The most conditions that a stage may have: kube-apiserver's limit.
    pub const MOST: usize = 64;

    /// Compile a condition. The name is a qualified name (an optional DNS name and `/`, then at most 63
    /// letters, digits, `-`, `_` and `.`). The expression is at most 16 KiB, and its type is bool.
    ///
    /// # Errors
    ///
    /// Everything that can be checked without a request: the name, the syntax, unknown variables, functions
    /// or fields of `request`, type errors, invalid regular expressions.
    pub fn compile(name: &str, expression: &str) -> Result<Self, ConditionError> {
        compile::check_name(name)?;
        Ok(Self {
            name: name.into(),
            text: expression.into(),
            checked: compile::compile(expression)?,
        })
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The expression as it was written.
    pub fn expression(&self) -> &str {
        &self.text
    }

    /// Evaluates it with the known answers of the authorizer. The cost is taken from `budget`, unless it has
    /// to be evaluated again.
    fn evaluate(
        &self,
        variables: &Variables<'_>,
        answers: &Answers,
        budget: &mut u64,
        deadline: Deadline,
    ) -> Result<bool, Fault> {
        let mut machine = Machine::new(variables, answers, *budget, deadline);
        let outcome = machine.evaluate(&self.checked.expression);
        if !matches!(outcome, Err(Fault::Halt(Halt::Question(_)))) {
            *budget = budget.saturating_sub(machine.cost());
        }
        match outcome? {
            Value::Bool(value) => Ok(value),
            _ => Err(Fault::no_overload()),
        }
    }
}

/// The compiled conditions of a stage, in the order in which they are evaluated.
#[derive(Debug)]
pub struct CelConditions {
    conditions: Vec<MatchCondition>,
    uses: Uses,
}

impl FromIterator<MatchCondition> for CelConditions {
    fn from_iter<T: IntoIterator<Item = MatchCondition>>(conditions: T) -> Self {
        let conditions: Vec<_> = conditions.into_iter().collect();
        let uses = conditions
            .iter()
            .fold(Uses::default(), |uses, condition| uses.or(condition.checked.uses));
        Self { conditions, uses }
    }
}

impl From<CelConditions> for MatchConditions {
    fn from(conditions: CelConditions) -> Self {
        Self::new(conditions)
    }
}

impl CelConditions {
    /// Whether the request matches: `None` when every condition is true, or the name of the first that is
    /// false. A false condition takes precedence over failed ones, as in kube-apiserver.
    ///
    /// No thread is blocked: an expression that calls the authorizer is evaluated again when the answer has
    /// arrived. The cost limits allow two calls in an expression, and seven in all conditions of a stage.
    ///
    /// # Errors
    ///
    /// When none is false and at least one fails: because of its values, its cost, or the deadline.
    pub async fn evaluate(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, ConditionFailure> {
        let variables = Variables::new(request, self.uses);
        let mut answers = Answers::default();
        let mut budget = TOTAL_COST;
        let mut failed = Vec::new();
        for condition in &self.conditions {
            let before = budget;
            let outcome = loop {
                match condition.evaluate(&variables, &answers, &mut budget, deadline) {
                    Err(Fault::Halt(Halt::Question(question))) => {
                        let user = question.user.as_ref().unwrap_or(&request.user);
                        let answer = authorizer.authorize(user, &question.attributes);
                        match tokio::time::timeout_at(deadline.instant(), answer).await {
                            Ok(answer) => answers.insert(*question, answer),
                            Err(_) => break Err(Fault::Halt(Halt::Deadline)),
                        }
                    }
                    outcome => break outcome,
                }
            };
            if before.saturating_sub(budget) >= YIELD_COST {
                tokio::task::yield_now().await;
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Arc::clone(&condition.name))),
                Err(fault) => {
                    let is_last = matches!(fault, Fault::Halt(Halt::TotalCost | Halt::Deadline));
                    failed.push(FailedCondition::new(condition, fault));
                    if is_last {
                        break;
                    }
                }
            }
        }
        if failed.is_empty() {
            Ok(None)
        } else {
            Err(ConditionFailure::new(failed))
        }
    }
}

#[async_trait]
impl Conditions for CelConditions {
    async fn matches(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        match self.evaluate(request, authorizer, deadline).await {
            Ok(first_false) => Ok(first_false.is_none()),
            Err(failure) => Err(Failure::new(FailureKind::Condition, failure.to_string())),
        }
    }

    fn uses_authorizer(&self) -> bool {
        self.uses.authorizer
    }

    fn expressions(&self) -> Vec<(&str, &str)> {
        self.conditions
            .iter()
            .map(|condition| (condition.name(), condition.expression()))
            .collect()
    }
}
