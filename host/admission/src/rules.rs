//! Rules and selectors, which select the requests for chains and stages.

pub(crate) mod condition;
pub(crate) mod index;
pub(crate) mod labels;
pub(crate) mod mismatch;
pub(crate) mod namespace;
pub mod path;
pub(crate) mod reach;
pub(crate) mod rule;
