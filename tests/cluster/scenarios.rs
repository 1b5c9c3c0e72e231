//! What is played, and in which order.
//!
//! What a webhook server cannot be tried with here: match conditions, which this API server does not know
//! (it drops the field), and whatever needs a node.

mod bare;

use std::{pin::Pin, sync::Arc};

use crate::cluster::Cluster;

/// One thing that a user does, and sees.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Play it. It panics when something is not as it should be.
    pub(crate) play: fn(Arc<Cluster>) -> Playing,
}

pub(crate) type Playing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All of them, the ground that the others stand on first.
pub(crate) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "without_webhooks_pods_are_stored_as_they_are",
        play: |cluster| Box::pin(bare::pods_are_stored_as_they_are(cluster)),
    },
    Scenario {
        name: "without_webhooks_users_are_told_apart",
        play: |cluster| Box::pin(bare::users_are_told_apart(cluster)),
    },
    Scenario {
        name: "without_webhooks_a_dry_run_stores_nothing",
        play: |cluster| Box::pin(bare::a_dry_run_stores_nothing(cluster)),
    },
];
