//! The errors of compiling and evaluating expressions.

use std::{fmt, sync::Arc};

use crate::{
    MatchCondition,
    machine::{Fault, Halt},
};

/// The reason why a condition or expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The name of the condition is not a qualified name.
    #[error("the name of a match condition cannot be `{name}`: {why}")]
    Name {
        /// The invalid name of the condition.
        name: String,
        /// The rule for qualified names that the name violates.
        why: String,
    },
    /// The expression nests more deeply than this limit.
    #[error("the expression is nested more than {0} levels deep; split it into several conditions")]
    TooDeep(usize),
    /// The expression has a syntax or type error.
    #[error("compilation failed at line {line}, column {column}: {message}")]
    Compile {
        /// The line of the error in the expression, counted from 1.
        line: usize,
        /// The column of the error in characters, counted from 1.
        column: usize,
        /// The message of the parser or of the type checker.
        message: String,
    },
    /// The expression is empty, too long, unparsable, or of a type that is not allowed. The text is a sentence.
    #[error("{0}")]
    Refused(String),
}

/// The reason why a stage's match conditions could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionFailure {
    failed_conditions: Vec<FailedCondition>,
}

/// A condition that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCondition {
    /// The name of the condition.
    pub name: Arc<str>,
    /// The error message in kube-apiserver's wording: `expression '<text>' resulted in error: <why>`.
    pub message: String,
}

impl FailedCondition {
    pub(crate) fn new(condition: &MatchCondition, fault: &Fault) -> Self {
        Self {
            name: Arc::clone(&condition.name),
            message: failure_message(condition.expression(), fault),
        }
    }
}

pub(crate) fn failure_message(expression: &str, fault: &Fault) -> String {
    let because = |why: &str| format!("expression '{expression}' resulted in error: {why}");
    match fault {
        Fault::Error(why) => because(why),
        Fault::Halt(Halt::Cost) => because("operation cancelled: actual cost limit exceeded"),
        Fault::Halt(Halt::TotalCost) => {
            "validation failed due to running out of cost budget, no further validation rules will be run".to_owned()
        }
        Fault::Halt(Halt::Deadline) => because("operation interrupted: the deadline has passed"),
        Fault::Halt(Halt::Question(_)) => because("the authorizer was not called"),
        Fault::Halt(Halt::Lookup(_)) => because("the cluster was not asked"),
        Fault::Halt(Halt::MoveThread) => because("it was not evaluated again"),
    }
}

impl ConditionFailure {
    pub(crate) fn new(failed: Vec<FailedCondition>) -> Self {
        Self {
            failed_conditions: failed,
        }
    }

    /// Returns the conditions that failed, in the order of their evaluation. There is at least one.
    pub fn failed_conditions(&self) -> &[FailedCondition] {
        &self.failed_conditions
    }

    /// Returns the messages of all failed conditions as in kube-apiserver. Several messages are listed in brackets.
    pub fn message(&self) -> String {
        let messages: Vec<&str> = self
            .failed_conditions
            .iter()
            .map(|failed| failed.message.as_str())
            .collect();
        match messages.as_slice() {
            [only] => (*only).to_owned(),
            messages => format!("[{}]", messages.join(", ")),
        }
    }
}

impl fmt::Display for ConditionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, failed) in self.failed_conditions.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}match condition `{}`: {}", failed.name, failed.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConditionFailure {}
