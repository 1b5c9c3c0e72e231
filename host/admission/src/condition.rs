//! Conditions in CEL on whether a stage is called: kube-apiserver's `matchConditions`.
//!
//! An expression sees `object` and `oldObject` (null when there is none), `request` (the fields of an
//! AdmissionRequest without uid and objects; what is empty is not there), `authorizer`,
//! `authorizer.requestResource`, and `namespaceObject`, which is always null for webhooks.
//!
//! # Functions
//!
//! - Operators, `in`, `?:`, indexes, selects; optional ones too: `object.?spec.?nodeName.orValue('')`.
//! - Macros: `has`, `all`, `exists`, `exists_one` (and `existsOne`), `map`, `filter`, `optMap`,
//!   `optFlatMap`.
//! - Conversions: `int`, `uint`, `double`, `string`, `bytes`, `bool`, `type`, `dyn`; and `size`.
//! - Texts: `startsWith`, `endsWith`, `contains`, `charAt`, `indexOf`, `lastIndexOf`, `substring`,
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
//! macros of two variables): a condition that calls one of those does not compile, and the error names it.
//!
//! # Cost
//!
//! Everything that is evaluated pays before it is done, in about the units of kube-apiserver and with its
//! limits: 1,000,000 for an expression, 2,500,000 for all of a stage. So neither time nor memory of an
//! evaluation depends on what is in an object beyond that.

use std::{fmt, sync::Arc};

use expression::Expression;
use machine::{Fault, Halt, Machine};
use permission::Answers;
use value::Value;
use variables::{Uses, Variables};

use crate::{Deadline, Request};

mod authorizer;
mod check;
mod expression;
mod functions;
mod machine;
mod name;
mod pattern;
mod permission;
mod source;
mod types;
mod value;
mod variables;

#[cfg(test)]
mod tests;

pub use authorizer::{Access, AccessAttributes, Authorizer, AuthorizerError, NoAuthorizer};

/// What all conditions of a stage may cost together: kube-apiserver's limit of a webhook.
const TOTAL: u64 = 2_500_000;
/// After a condition that cost this much, other work of the thread gets its turn.
const LONG: u64 = 100_000;

/// One compiled condition. Cheap to clone.
#[derive(Clone)]
pub struct MatchCondition(Arc<Compiled>);

struct Compiled {
    name: Arc<str>,
    text: Box<str>,
    expression: Expression,
    uses: Uses,
}

impl MatchCondition {
    /// The most that a stage may have: kube-apiserver's limit.
    pub const MOST: usize = 64;

    /// Compile a condition. The name is a qualified name (an optional DNS name and `/`, then at most 63
    /// letters, digits, `-`, `_` and `.`). The expression is at most 16 KiB, and a bool.
    ///
    /// # Errors
    ///
    /// Whatever can be seen to be wrong without a request: the name, the syntax, a name or a function that
    /// there is not, an unknown field of `request`, types that do not fit, a pattern that is no regular
    /// expression.
    pub fn compile(name: &str, expression: &str) -> Result<Self, ConditionError> {
        name::check(name)?;
        let checked = source::compile(expression)?;
        Ok(Self(Arc::new(Compiled {
            name: name.into(),
            text: expression.into(),
            expression: checked.expression,
            uses: checked.uses,
        })))
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The expression as it was written.
    pub fn expression(&self) -> &str {
        &self.0.text
    }

    /// Whether it may ask the authorizer: it needs a cluster then.
    pub fn uses_authorizer(&self) -> bool {
        self.0.uses.authorizer
    }
}

impl fmt::Debug for MatchCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatchCondition")
            .field("name", &self.name())
            .field("expression", &self.expression())
            .finish()
    }
}

impl PartialEq for MatchCondition {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.expression() == other.expression()
    }
}

impl Eq for MatchCondition {}

/// Why a condition cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The name is no qualified name.
    #[error("the name of a match condition cannot be `{name}`: {why}")]
    Name {
        /// The name.
        name: String,
        /// Which rule it breaks, and how to keep it.
        why: String,
    },
    /// There is no expression.
    #[error("the expression is empty; write one that is true for the requests that the hook is for")]
    Empty,
    /// The expression is longer than a condition may be.
    #[error("the expression has {length} bytes; make it shorter than {limit}, or several conditions of it")]
    TooLong {
        /// Its bytes.
        length: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The expression nests too deeply.
    #[error("the expression is nested more than {limit} deep; make several conditions of it")]
    TooDeep {
        /// How deep it may be.
        limit: usize,
    },
    /// Something in the expression cannot be read, or does not fit.
    #[error("compilation failed at line {line}, column {column}: {message}")]
    Compile {
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// The expression is not a bool.
    #[error("must evaluate to bool but got {kind}; compare it with what you expect")]
    NotBool {
        /// What it is.
        kind: String,
    },
    /// The parser failed.
    #[error("the parser failed: {0}")]
    Parser(String),
}

/// All conditions of a stage. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchConditions(Arc<[MatchCondition]>);

impl MatchConditions {
    /// These conditions, in the order in which they are evaluated.
    pub fn new(conditions: Vec<MatchCondition>) -> Self {
        Self(conditions.into())
    }

    /// Whether there are none: every request matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &MatchCondition> {
        self.0.iter()
    }

    /// Whether any of them may ask the authorizer: the stage needs a cluster then.
    pub fn uses_authorizer(&self) -> bool {
        self.iter().any(MatchCondition::uses_authorizer)
    }

    /// Whether the request matches: `None` when every condition is true, or the name of the first that is
    /// false. One that is false outweighs all that fail, as in kube-apiserver.
    ///
    /// No thread is blocked: when an expression asks the authorizer, it is evaluated again when the answer
    /// is there. An expression can ask two questions, and all conditions of a stage seven.
    ///
    /// # Errors
    ///
    /// When none is false and at least one fails: at its values, its cost, or the deadline.
    pub async fn evaluate(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, ConditionFailure> {
        if self.is_empty() {
            return Ok(None);
        }
        let uses = self.iter().fold(Uses::default(), |uses, condition| Uses {
            request: uses.request || condition.0.uses.request,
            authorizer: uses.authorizer || condition.0.uses.authorizer,
        });
        let variables = Variables::new(request, uses);
        let mut answers = Answers::default();
        let mut left = TOTAL;
        let mut failed = Vec::new();
        for condition in self.iter() {
            let before = left;
            let outcome = loop {
                match once(condition, &variables, &answers, &mut left, deadline) {
                    Err(Fault::Halt(Halt::Question(question))) => {
                        let user = question.user.as_ref().unwrap_or(&request.user);
                        let asked = authorizer.authorize(user, &question.attributes);
                        match tokio::time::timeout_at(deadline.instant(), asked).await {
                            Ok(answer) => answers.insert(*question, answer),
                            Err(_) => break Err(Fault::Halt(Halt::Deadline)),
                        }
                    }
                    outcome => break outcome,
                }
            };
            if before.saturating_sub(left) >= LONG {
                tokio::task::yield_now().await;
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Arc::clone(&condition.0.name))),
                Err(fault) => {
                    let over = matches!(fault, Fault::Halt(Halt::TotalCost | Halt::Deadline));
                    failed.push(FailedCondition::new(condition, fault));
                    if over {
                        break;
                    }
                }
            }
        }
        if failed.is_empty() {
            Ok(None)
        } else {
            Err(ConditionFailure { failed })
        }
    }
}

/// Evaluate one condition with the answers that are known. What it cost is taken from `left`, unless it
/// has to be evaluated again.
fn once(
    condition: &MatchCondition,
    variables: &Variables<'_>,
    answers: &Answers,
    left: &mut u64,
    deadline: Deadline,
) -> Result<bool, Fault> {
    let mut machine = Machine::new(variables, answers, *left, deadline);
    let outcome = machine.evaluate(&condition.0.expression);
    if !matches!(outcome, Err(Fault::Halt(Halt::Question(_)))) {
        *left = left.saturating_sub(machine.cost());
    }
    match outcome? {
        Value::Bool(value) => Ok(value),
        _ => Err(Fault::no_overload()),
    }
}

/// Why it cannot be told whether a request matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionFailure {
    failed: Vec<FailedCondition>,
}

/// One condition that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCondition {
    /// The condition's name.
    pub name: Arc<str>,
    /// `expression '<text>' resulted in error: <why>`, as kube-apiserver words it.
    pub message: String,
}

impl FailedCondition {
    fn new(condition: &MatchCondition, fault: Fault) -> Self {
        let because = |why: &str| format!("expression '{}' resulted in error: {why}", condition.expression());
        let message = match fault {
            Fault::Error(why) => because(&why),
            Fault::Halt(Halt::Cost) => because("operation cancelled: actual cost limit exceeded"),
            Fault::Halt(Halt::TotalCost) => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
            Fault::Halt(Halt::Deadline) => because("operation interrupted: the deadline has passed"),
            Fault::Halt(Halt::Question(_)) => because("the authorizer was not asked"),
        };
        Self {
            name: Arc::clone(&condition.0.name),
            message,
        }
    }
}

impl ConditionFailure {
    /// Each condition that failed, in their order; at least one.
    pub fn failed(&self) -> &[FailedCondition] {
        &self.failed
    }

    /// What kube-apiserver would say: the messages without names, several in brackets.
    pub fn message(&self) -> String {
        let messages: Vec<&str> = self.failed.iter().map(|failed| failed.message.as_str()).collect();
        match messages.as_slice() {
            [only] => (*only).to_owned(),
            messages => format!("[{}]", messages.join(", ")),
        }
    }
}

impl fmt::Display for ConditionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, failed) in self.failed.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(
                f,
                "{separator}match condition `{}`: {}",
                failed.name, failed.message
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for ConditionFailure {}
