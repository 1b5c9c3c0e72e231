//! Limits the memory that the tunnels of each owner of clusters use.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::{
    accounts::{Accounts, UserId},
    tunnel::{Budget, TUNNEL_COST, TUNNEL_LIMIT},
};

const GATEWAY_LIMIT: usize = 1 << 30;
const OWNER_LIMIT: usize = 128 << 20;

/// The owner of a cluster's tunnels. Any user may create clusters and act as their agents, so the clusters of one user
/// share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    User(UserId),
    Cluster(String),
}

#[derive(Debug)]
pub(super) struct RequestMemory {
    pub(super) gateway: Arc<Budget>,
    owners: Mutex<HashMap<Owner, Weak<Budget>>>,
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self {
            gateway: Budget::new(GATEWAY_LIMIT),
            owners: Mutex::default(),
        }
    }
}

impl RequestMemory {
    pub(super) fn budget_of_owner(&self, cluster: &str, accounts: &Accounts) -> Arc<Budget> {
        let directory = accounts.directory().ok();
        let creator = directory.as_ref().and_then(|directory| {
            let creator = directory.user(directory.cluster(cluster)?.creator)?;
            (!creator.is_super_user).then_some(creator.id)
        });
        let owner = creator.map_or_else(|| Owner::Cluster(cluster.to_owned()), Owner::User);
        let mut owners = self.owners.lock();
        if let Some(budget) = owners.get(&owner).and_then(Weak::upgrade) {
            return budget;
        }
        owners.retain(|_, budget| budget.strong_count() > 0);
        let budget = self.gateway.part(OWNER_LIMIT);
        owners.insert(owner, Arc::downgrade(&budget));
        budget
    }

    /// Returns the memory budget of a new tunnel of the cluster's agent, or `None` if the owner has too little left.
    pub(super) fn budget_of_tunnel(&self, cluster: &str, accounts: &Accounts) -> Option<Arc<Budget>> {
        let budget = self.budget_of_owner(cluster, accounts).part(TUNNEL_LIMIT);
        budget.charge(TUNNEL_COST).is_ok().then_some(budget)
    }
}
