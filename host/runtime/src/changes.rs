//! Reads changed definitions and modules, builds tables from them, writes requested changes, and goes live.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod follow;
pub(crate) mod journal;
mod plan;
pub(crate) mod reload;
pub(crate) mod smallest_first;
pub(crate) mod start;
pub(crate) mod stores;
