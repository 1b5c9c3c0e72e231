//! Compiles and evaluates CEL expressions: match conditions, which decide whether a stage is called, and policies.
//!
//! A match condition may use `object` and `oldObject` (null if there is none), `request` (the fields of an
//! AdmissionRequest without UID and objects; empty fields are absent), `authorizer`, `authorizer.requestResource`, and
//! `namespaceObject` (always null for webhooks). A [`CompiledPolicy`] may also use `params` and `variables`.
//!
//! # Functions
//!
//! Expressions have the functions of kube-apiserver 1.36, which `docs/kubernetes-policies.md` lists by library.
//! Expressions of Kyverno policies also have Kyverno's functions, which `docs/kyverno.md` lists.
//!
//! # Cost
//!
//! Every operation is charged before it runs, with roughly kube-apiserver's costs and with its limits: 1,000,000 for an
//! expression, 2,500,000 for the conditions of a stage, 10,000,000 for a policy. The limits bound time and memory.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::sync::Arc;

use admittance_admission::{
    Authorizer, CompiledConditions, Deadline, Failure, FailureKind, MatchConditions, Request, async_trait,
};
use check::{CheckScope, CheckedExpression};
use machine::{Fault, Halt, Machine, ValueSources};
use types::Type;
use value::Value;
use variables::{Uses, Variables};

mod apply;
mod check;
mod compile;
mod error;
mod expression;
mod functions;
mod group;
mod hook;
mod machine;
mod policy;
mod schema;
mod structure;
mod types;
mod value;
mod variables;

#[cfg(test)]
mod tests;

pub use error::{ConditionError, ConditionFailure, FailedCondition};
pub use group::GroupExpression;
pub use hook::{Action, Allowance, Binding, MessageWording, ParamsMissing, ParamsSelector, PolicyHook, PolicyParams};
pub use policy::{CompiledPolicy, DenialReason, PolicyCompiler, PolicyExpression, Role, Validation};
pub use schema::{Components, ObjectSchema};
pub use structure::Structure;

/// The cost limit of all conditions of a stage together. kube-apiserver has it for the conditions of a webhook.
const TOTAL_COST_LIMIT: u64 = 2_500_000;

/// A compiled match condition of a stage or policy.
#[derive(Debug)]
pub struct MatchCondition {
    name: Arc<str>,
    text: Box<str>,
    checked: CheckedExpression,
}

impl MatchCondition {
    /// The maximum number of match conditions of a stage, as in kube-apiserver.
    pub const MAX_COUNT: usize = 64;

    /// Compiles a match condition. Its name must be a qualified name: an optional DNS name and `/`, then at most 63
    /// letters, digits, `-`, `_` and `.`. Its expression may have at most 16 KiB, and must have the type bool.
    ///
    /// # Errors
    ///
    /// Returns a mistake that can be found without a request: an invalid name or regular expression, a syntax or type
    /// error, or an unknown variable, function or field of `request`.
    pub fn compile(name: &str, expression: &str) -> Result<Self, ConditionError> {
        Self::compile_in(name, expression, &CheckScope::default())
    }

    pub(crate) fn compile_in(name: &str, expression: &str, scope: &CheckScope) -> Result<Self, ConditionError> {
        // Kyverno allows any name for a match condition.
        if scope.kyverno.is_none() {
            compile::check_name(name)?;
        }
        Ok(Self {
            name: name.into(),
            text: expression.into(),
            checked: compile::compile(expression, scope, &[Type::Bool])?,
        })
    }

    /// Returns the name of the condition.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text of the condition's expression.
    pub fn expression(&self) -> &str {
        &self.text
    }
}

impl PartialEq for MatchCondition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.text == other.text
    }
}

/// The compiled match conditions of a stage, in the order of their evaluation.
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
            .fold(Uses::default(), |uses, condition| uses.union(condition.checked.uses));
        Self { conditions, uses }
    }
}

impl From<CelConditions> for MatchConditions {
    fn from(conditions: CelConditions) -> Self {
        Self::new(conditions)
    }
}

impl CelConditions {
    /// Returns the name of the first condition that is false; `None` if all conditions are true. As in kube-apiserver,
    /// if one condition is false and another one fails, the false one decides.
    ///
    /// An expression that calls the authorizer does not block its thread: when the reply has arrived, the expression is
    /// evaluated again. The cost limits allow two calls in an expression, and seven in all conditions of a stage.
    ///
    /// # Errors
    ///
    /// Fails if no condition is false, and at least one fails because of its values, its cost or the deadline.
    pub async fn evaluate(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, ConditionFailure> {
        let variables = Variables::new(request, self.uses);
        let mut machine = Machine::new(&variables, &[], TOTAL_COST_LIMIT, deadline);
        let sources = ValueSources {
            request,
            authorizer,
            cluster: None,
            http: None,
        };
        find_first_false(&mut machine, &self.conditions, sources)
            .await
            .map_err(ConditionFailure::new)
    }
}

async fn find_first_false<'a>(
    machine: &mut Machine<'a>,
    conditions: &'a [MatchCondition],
    sources: ValueSources<'_>,
) -> Result<Option<Arc<str>>, Vec<FailedCondition>> {
    let mut failed_conditions = Vec::new();
    for condition in conditions {
        let expression = &condition.checked.expression;
        let fault = match machine.settle(expression, sources).await {
            Ok(Value::Bool(true)) => continue,
            Ok(Value::Bool(false)) => return Ok(Some(Arc::clone(&condition.name))),
            Ok(_) => Fault::no_overload(),
            Err(fault) => fault,
        };
        failed_conditions.push(FailedCondition::new(condition, &fault));
        if matches!(fault, Fault::Halt(Halt::TotalCost | Halt::Deadline)) {
            break;
        }
    }
    if failed_conditions.is_empty() {
        Ok(None)
    } else {
        Err(failed_conditions)
    }
}

#[async_trait]
impl CompiledConditions for CelConditions {
    async fn first_false_condition(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, Failure> {
        let evaluated = self.evaluate(request, authorizer, deadline).await;
        evaluated.map_err(|failure| Failure::new(FailureKind::Condition, failure.to_string()))
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
