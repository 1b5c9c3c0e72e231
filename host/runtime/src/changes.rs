//! Changes of definitions and modules: how they are read, built, written and made live.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod follow;
pub(crate) mod journal;
mod plan;
pub(crate) mod reload;
pub(crate) mod smallest_first;
pub(crate) mod start;
pub(crate) mod stores;
