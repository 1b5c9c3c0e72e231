use std::time::Duration;

use crate::Error;

/// What happens while something is fetched or pushed, in this order; nothing is told of what is there
/// already.
#[derive(Clone, Debug)]
pub enum FetchProgress {
    /// It begins, or begins again after [`Retrying`](Self::Retrying).
    Started {
        /// What is fetched or pushed, as the operator wrote it.
        reference: String,
        /// Its size in bytes, if the server tells.
        total: Option<u64>,
    },
    /// More has come.
    Received {
        /// All that there is of it now, in bytes; with what an earlier attempt left.
        bytes: u64,
    },
    /// An attempt failed, and another follows.
    Retrying {
        /// When.
        after: Duration,
        /// Why.
        error: Error,
    },
    /// It is there, and its digest is right.
    Finished,
}

/// Who wants to know. It is called from the task that fetches, so it must not block.
pub type OnProgress<'a> = &'a (dyn Fn(FetchProgress) + Send + Sync);
