use admittance_admission::{Failure, shorten};

use crate::functions::{authorizer::AuthorizerQuestion, lookup::Lookup};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    Error(String),
    Halt(Halt),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Halt {
    /// The cost limit of an expression is exceeded.
    Cost,
    /// The cost limit for all expressions of a stage or policy together is exceeded.
    TotalCost,
    /// The deadline passed during the evaluation.
    Deadline,
    /// Before the evaluation can continue, the authorizer must be called.
    Question(Box<AuthorizerQuestion>),
    /// Before the evaluation can continue, this value must be looked up.
    Lookup(Box<Lookup>),
    /// Before the evaluation can continue, it must move to a thread for long work.
    MoveThread,
}

impl Halt {
    pub(super) fn is_pause(&self) -> bool {
        matches!(self, Self::Question(_) | Self::Lookup(_) | Self::MoveThread)
    }
}

impl Fault {
    pub(crate) fn error(text: impl Into<String>) -> Self {
        let mut text = text.into();
        shorten(&mut text, Failure::MAX_MESSAGE);
        Self::Error(text)
    }

    /// Returns the error for a function call whose arguments no overload accepts.
    pub(crate) fn no_overload() -> Self {
        Self::error("no such overload")
    }

    pub(super) fn unsupported_index(kind: &str) -> Self {
        Self::error(format!("unsupported index type '{kind}' in list"))
    }

    pub(super) fn no_key(key: &str) -> Self {
        Self::error(format!("no such key: {key}"))
    }
}
