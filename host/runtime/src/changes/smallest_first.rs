//! Lets small modules be compiled and configured before large ones.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Limits how many items are worked on at a time. The smallest waiting item begins next. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SmallestFirstLimit(Arc<Mutex<PermitQueue>>);

#[derive(Debug)]
struct PermitQueue {
    limit: usize,
    working: usize,
    waiting: BTreeMap<(usize, u64), oneshot::Sender<WorkPermit>>,
    arrivals: u64,
}

#[derive(Debug)]
pub(crate) struct WorkPermit(SmallestFirstLimit);

impl SmallestFirstLimit {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(PermitQueue {
            limit,
            working: 0,
            waiting: BTreeMap::new(),
            arrivals: 0,
        })))
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.state().limit = limit;
    }

    pub(crate) fn limit(&self) -> usize {
        self.state().limit
    }

    pub(crate) async fn wait_for_turn(&self, size: usize) -> WorkPermit {
        let (permit_sender, permit_receiver) = oneshot::channel();
        {
            let mut state = self.state();
            state.arrivals += 1;
            let order = (size, state.arrivals);
            state.waiting.insert(order, permit_sender);
        }
        self.give_permits();
        match permit_receiver.await {
            Ok(permit) => permit,
            Err(_) => std::future::pending().await,
        }
    }

    fn give_permits(&self) {
        loop {
            let next = {
                let mut state = self.state();
                if state.working >= state.limit {
                    return;
                }
                let Some((_, next)) = state.waiting.pop_first() else {
                    return;
                };
                if next.is_closed() {
                    continue;
                }
                state.working += 1;
                next
            };
            // `send` fails if the receiver of the permit was dropped meanwhile, and returns the permit, which is
            // dropped here. Dropping a permit locks the state. So the state must not be locked here any more.
            drop(next.send(WorkPermit(self.clone())));
        }
    }

    fn state(&self) -> MutexGuard<'_, PermitQueue> {
        self.0.lock()
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        self.0.state().working -= 1;
        self.0.give_permits();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_smallest_waiting_item_gets_the_next_permit() {
        let limit = SmallestFirstLimit::new(1);
        let first = limit.wait_for_turn(100).await;
        let mut large = Box::pin(limit.wait_for_turn(50));
        let mut small = Box::pin(limit.wait_for_turn(10));
        let mut also_small = Box::pin(limit.wait_for_turn(10));
        let mut dropped = Box::pin(limit.wait_for_turn(1));
        for waiting in [&mut large, &mut small, &mut also_small, &mut dropped] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(dropped);
        drop(first);
        assert!((&mut large).now_or_never().is_none());
        assert!((&mut also_small).now_or_never().is_none());
        drop(small.await);
        drop(also_small.await);
        drop(large.await);
    }

    #[tokio::test]
    async fn a_lower_limit_of_concurrent_work_delays_the_next_item() {
        let limit = SmallestFirstLimit::new(2);
        let (first, second) = (limit.wait_for_turn(1).await, limit.wait_for_turn(1).await);
        limit.set_limit(1);
        let mut third = Box::pin(limit.wait_for_turn(1));
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        third.await;
    }
}
