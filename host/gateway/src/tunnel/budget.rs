//! Limits the memory of all tunnels of a gateway, of each user's tunnels, of each tunnel, and of each connection.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, futures::Notified};

/// Limits how much memory one part of a budget can take. A part gets more memory only while it holds less than three
/// times the memory that is still free in the whole budget.
const FREE_FACTOR: usize = 3;

/// A limit on memory, in bytes. It can be a part of a larger budget: then each charge also counts in the larger budget.
/// All charges are released when the budget is dropped.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    charged_bytes: AtomicUsize,
    parent: Option<Arc<Self>>,
    released: Notify,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            charged_bytes: AtomicUsize::new(0),
            parent: None,
            released: Notify::new(),
        })
    }

    pub fn part(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            charged_bytes: AtomicUsize::new(0),
            parent: Some(self.clone()),
            released: Notify::new(),
        })
    }

    /// Charges this many bytes to this budget and to the larger budgets that contain it. If one of these budgets has
    /// too little memory left, nothing is charged, and the error is that budget.
    pub fn charge(&self, bytes: usize) -> Result<(), &Self> {
        let parent = self.parent.as_deref();
        if let Some(parent) = parent
            && self.charged_bytes() >= parent.free_bytes().saturating_mul(FREE_FACTOR)
        {
            return Err(parent);
        }
        self.charged_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
                current.checked_add(bytes).filter(|after| *after <= self.limit)
            })
            .map_err(|_| self)?;
        match parent.map_or(Ok(()), |parent| parent.charge(bytes)) {
            Ok(()) => Ok(()),
            Err(full) => {
                self.charged_bytes.fetch_sub(bytes, Ordering::AcqRel);
                Err(full)
            }
        }
    }

    /// Releases this many charged bytes, in the larger budgets as well.
    pub fn release(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.released.notify_waiters();
        if let Some(parent) = &self.parent {
            parent.release(bytes);
        }
    }

    pub(super) fn release_notification(&self) -> Notified<'_> {
        self.released.notified()
    }

    pub fn charged_bytes(&self) -> usize {
        self.charged_bytes.load(Ordering::Acquire)
    }

    fn free_bytes(&self) -> usize {
        self.limit.saturating_sub(self.charged_bytes())
    }

    /// Returns whether one of the larger budgets to which this budget belongs is almost full: less than `1 / divisor`
    /// of its limit is free. This budget itself is not checked.
    pub(super) fn has_scarce_parent(&self, divisor: usize) -> bool {
        self.parent
            .as_deref()
            .is_some_and(|parent| parent.free_bytes() < parent.limit / divisor || parent.has_scarce_parent(divisor))
    }

    pub(super) fn shares_budget(&self, other: &Self) -> bool {
        match (&self.parent, &other.parent) {
            (Some(parent), Some(other)) => Arc::ptr_eq(parent, other),
            _ => false,
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            parent.release(self.charged_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_counts_in_every_budget_until_its_release() {
        let gateway = Budget::new(1000);
        let user = gateway.part(400);
        let tunnels = [user.part(250), user.part(250)];
        assert!(tunnels[0].charge(250).is_ok());
        let charges = || [&gateway, &user, &tunnels[0], &tunnels[1]].map(|budget| budget.charged_bytes());
        assert_eq!(charges(), [250, 250, 250, 0]);
        assert!(std::ptr::eq(tunnels[0].charge(1).unwrap_err(), &*tunnels[0]));
        assert!(std::ptr::eq(tunnels[1].charge(151).unwrap_err(), &*user));
        assert_eq!(charges(), [250, 250, 250, 0]);
        assert!(tunnels[1].charge(150).is_ok());
        tunnels[0].release(200);
        assert_eq!(charges(), [200, 200, 50, 150]);
        drop(tunnels);
        assert_eq!((user.charged_bytes(), gateway.charged_bytes()), (0, 0));
    }

    #[test]
    fn one_user_cannot_use_up_the_shared_budget() {
        let gateway = Budget::new(1024);
        let users = [(); 4].map(|()| gateway.part(1024));
        let charges = users.each_ref().map(|user| {
            while user.charge(1).is_ok() {}
            user.charged_bytes()
        });
        assert_eq!(charges, [768, 192, 48, 12]);
        assert!(gateway.part(1024).charge(1).is_ok());
        assert!(users[0].has_scarce_parent(2) && !gateway.has_scarce_parent(2));
    }
}
