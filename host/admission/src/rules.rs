//! Rules and selectors, which determine the requests for which chains and stages are called.

pub(crate) mod condition;
pub(crate) mod index;
pub(crate) mod labels;
pub(crate) mod mismatch;
pub(crate) mod namespace;
pub mod path;
pub(crate) mod rule;
pub(crate) mod unreached;
