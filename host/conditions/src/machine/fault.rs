use admittance_admission::{Failure, shorten};

use crate::functions::{authorizer::AuthorizerQuestion, lookup::Lookup};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    Error(String),
    Halt(Halt),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Halt {
    Cost,
    TotalCost,
    Deadline,
    /// The authorizer must be called before the evaluation can continue.
    Question(Box<AuthorizerQuestion>),
    Lookup(Box<Lookup>),
    /// The evaluation must move to a thread for long work before it can continue.
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
