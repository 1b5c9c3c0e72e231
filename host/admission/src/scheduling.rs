//! Deadlines, and work that would delay other requests if it stayed on their threads.

pub(crate) mod deadline;
pub(crate) mod long;
pub(crate) mod offload;
pub(crate) mod reschedule;
pub(crate) mod ticker;
