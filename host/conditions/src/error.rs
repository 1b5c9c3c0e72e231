//! Errors of compilation and of evaluation.

use std::{fmt, sync::Arc};

use crate::{
    MatchCondition,
    machine::{Fault, Halt},
};

/// The errors of compiling a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The name is not a valid qualified name.
    #[error("the name of a match condition cannot be `{name}`: {why}")]
    Name {
        /// The name that is not valid.
        name: String,
        /// The rule that it violates.
        why: String,
    },
    /// The expression is empty.
    #[error("the expression is empty; write one that is true for the requests that the hook is for")]
    Empty,
    /// The expression is too long.
    #[error(
        "the expression has {length} bytes; make it shorter than {limit}, or split it into several conditions"
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The largest size, in bytes.
        limit: usize,
    },
    /// The expression nests too deeply.
    #[error("the expression is nested more than {limit} levels deep; split it into several conditions")]
    TooDeep {
        /// The largest depth.
        limit: usize,
    },
    /// A syntax or type error.
    #[error("compilation failed at line {line}, column {column}: {message}")]
    Compile {
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// The parser's or the checker's message.
        message: String,
    },
    /// The type of the expression is not bool.
    #[error("must evaluate to bool but got {kind}; compare it with what you expect")]
    NotBool {
        /// The type of the value that the expression has.
        kind: String,
    },
    /// The type of the expression is not what is needed there.
    #[error("must evaluate to {wanted} but got {kind}")]
    WrongType {
        /// The types that it may have.
        wanted: String,
        /// The type of the value that the expression has.
        kind: String,
    },
    /// The parser failed.
    #[error("the parser failed: {0}")]
    Parser(String),
}

/// The conditions of a stage could not be evaluated for a request.
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
    pub(crate) fn new(condition: &MatchCondition, fault: &Fault) -> Self {
        Self {
            name: Arc::clone(&condition.name),
            message: because(condition.expression(), fault),
        }
    }
}

/// Words the failure of an expression as kube-apiserver does.
pub(crate) fn because(expression: &str, fault: &Fault) -> String {
    let because = |why: &str| format!("expression '{expression}' resulted in error: {why}");
    match fault {
        Fault::Error(why) => because(why),
        Fault::Halt(Halt::Cost) => because("operation cancelled: actual cost limit exceeded"),
        Fault::Halt(Halt::TotalCost) => {
            "validation failed due to running out of cost budget, no further validation rules will be run"
                .to_owned()
        }
        Fault::Halt(Halt::Deadline) => because("operation interrupted: the deadline has passed"),
        Fault::Halt(Halt::Question(_)) => because("the authorizer was not called"),
        Fault::Halt(Halt::Leave) => because("it was not evaluated again"),
    }
}

impl ConditionFailure {
    pub(crate) fn new(failed: Vec<FailedCondition>) -> Self {
        Self { failed }
    }

    /// Each condition that failed, in their order; at least one.
    pub fn failed(&self) -> &[FailedCondition] {
        &self.failed
    }

    /// The messages as kube-apiserver words them: without names, several in brackets.
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
