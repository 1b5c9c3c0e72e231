use std::time::Duration;

use crate::Error;

/// Progress of a fetch or push, in this order; nothing is reported for what is already in the store.
#[derive(Clone, Debug)]
pub enum FetchProgress {
    /// It starts, or starts again after [`Retrying`](Self::Retrying).
    Started {
        /// What is fetched or pushed, as the operator wrote it.
        reference: String,
        /// Its size in bytes, if the server sends it.
        total: Option<u64>,
    },
    /// More bytes were received.
    Received {
        /// The bytes received so far, including those of earlier attempts.
        bytes: u64,
    },
    /// An attempt failed and is retried.
    Retrying {
        /// The pause before the next attempt.
        after: Duration,
        /// The error.
        error: Error,
    },
    /// It is complete, and its digest was checked.
    Finished,
}

/// A progress callback. It is called from the task that fetches, so it must not block.
pub type OnProgress<'a> = &'a (dyn Fn(FetchProgress) + Send + Sync);
