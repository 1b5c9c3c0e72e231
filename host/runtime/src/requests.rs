//! The ways of a request through the live table.

pub(crate) mod applies;
pub(crate) mod body;
pub(crate) mod evaluate;
pub(crate) mod layer;
pub(crate) mod reviews;
pub(crate) mod stored;
pub(crate) mod trace;
