//! Deadlines, and threads for work that would delay other requests.

pub(crate) mod deadline;
pub(crate) mod long_calls;
pub(crate) mod offload;
pub(crate) mod reschedule;
pub(crate) mod ticker;
