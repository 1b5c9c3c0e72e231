//! Much memory is returned by one thread at a time.
//!
//! The kernel takes some milliseconds to take back tens of megabytes, and holds the lock of the address space meanwhile, as a
//! reader. Calls need it as readers too, to find what they have written, and go on. But a thread that waits to change the
//! address space, for a guest whose memory grows, makes all later readers wait with it. So that thread waits here first.

use std::{thread::sleep, time::Duration};

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use wasmtime::Store;

use crate::store::CallState;

/// Less memory than this is returned fast, in bytes.
pub(crate) const MUCH: usize = 4 << 20;

/// Between two looks whether another thread has returned its memory.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// One permit: the address space is that of the process.
static RETURNING: Semaphore = Semaphore::const_new(1);

/// Waits until no other thread returns much memory. The kernel would make this thread wait as well, and others with it.
pub(crate) fn wait() -> Option<SemaphorePermit<'static>> {
    loop {
        match RETURNING.try_acquire() {
            Ok(permit) => return Some(permit),
            Err(TryAcquireError::NoPermits) => sleep(LOOK_AGAIN),
            // It is never closed.
            Err(TryAcquireError::Closed) => return None,
        }
    }
}

/// The store of one call, which returns its memory alone if that is much, also when the call is given up.
pub(crate) struct CallStore {
    pub(crate) store: Store<CallState>,
    /// Dropped after the store.
    permit: Option<SemaphorePermit<'static>>,
}

impl From<Store<CallState>> for CallStore {
    fn from(store: Store<CallState>) -> Self {
        Self { store, permit: None }
    }
}

impl Drop for CallStore {
    fn drop(&mut self) {
        if self.store.data().grown() >= MUCH {
            self.permit = wait();
        }
    }
}
