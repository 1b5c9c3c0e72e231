//! Rollouts let the candidate of a stage decide a growing share of its requests.
//!
//! The live table contains the share of each rollout, so that all answers of a stage for one request come from the same
//! version. Changing a share reads, fetches and builds nothing: the table is derived again from its own chains.

pub(crate) mod candidate;

mod progress;
mod tally;

#[cfg(test)]
mod tests;

use admittance_admission::keywords;
use admittance_definitions::{RolloutKey, StageId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::progress::RolloutProgress;
pub(crate) use self::{progress::Rollouts, tally::Rollout};
use crate::{DisableError, Host, Moment, live::disabled::resolve_stage};

/// The rollout of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RolloutStatus {
    /// Whether the rollout continues by itself.
    pub state: RolloutState,
    /// The share of the requests that the candidate decides now: `10%`; `0%` after an abort.
    pub share: String,
    /// The shares of all steps.
    pub steps: Vec<String>,
    /// The property of a request that decides which version it gets.
    pub by: RolloutKey,
    /// The start of the current step or of the current state, whichever is later.
    pub since: Moment,
    /// The time at which the next step begins, or the last step is completed; absent if only a user can continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Moment>,
    /// The reason for an abort, or the user who paused the rollout; with the name of the replica unless it is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The requests that the candidate decided in this step. The counts begin again after each pause.
    pub decided: u64,
    /// The decided requests for which the candidate gave no verdict.
    pub failed: u64,
    /// The number of failures, out of the decided requests, at which the rollout is aborted.
    #[serde(default)]
    pub failure_limit: u64,
    /// The decided requests for which the answers of candidate and plugin were compared.
    pub compared: u64,
    /// The compared requests that the candidate denied but the plugin did not.
    pub refused: u64,
    /// The number of refusals, out of the compared requests, at which the rollout is aborted.
    #[serde(default)]
    pub refusal_limit: u64,
}

/// Whether a rollout continues by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RolloutState {
    /// The next step begins by itself.
    Progressing,
    /// The share stays until a user resumes it.
    Paused,
    /// The plugin decides all requests again.
    Aborted,
    /// The last step has lasted for its whole pause; the candidate can be promoted.
    Completed,
}

keywords!(RolloutState, "state of a rollout": Progressing = "progressing", Paused = "paused", Aborted = "aborted", Completed = "completed");

/// The actions of users on a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RolloutAction {
    /// Begins the next step now.
    Next,
    /// Keeps the share until a user resumes the rollout.
    Pause,
    /// Continues a paused rollout; an aborted one starts again at its first step.
    Resume,
    /// Lets the plugin decide all requests again.
    Abort,
}

keywords!(RolloutAction, "action on a rollout": Next = "next", Pause = "pause", Resume = "resume", Abort = "abort");

/// A rollout after a user's action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Steered {
    /// The stage: `Mutating:pods/images`.
    pub stage: String,
    /// The progress of the rollout after the action.
    pub rollout: RolloutStatus,
    /// The reason why the change does not survive a restart; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

impl Host {
    /// Steers the rollout of this stage's candidate. This takes effect with the next request, even if definitions are
    /// invalid or stores are unreachable.
    ///
    /// # Errors
    ///
    /// Fails if the live table has no rollout of a stage of this name, or several, or if the state of the rollout does
    /// not allow the action.
    pub async fn steer(
        &self,
        stage: &StageId,
        action: RolloutAction,
        by: Option<String>,
    ) -> Result<Steered, DisableError> {
        let (stage, rollout) = {
            let mut stages = self.0.disabled.lock();
            let missing = format!(
                "there is no rollout of a candidate of {stage}{}",
                self.rollback_note()
            );
            let stage = resolve_stage(stage, stages.rollouts.stages(), &missing, "rollouts are of")?;
            let refused = |state| {
                DisableError::Conflict(format!(
                    "the rollout of the candidate of {stage} is {state}, which leaves nothing to {action}"
                ))
            };
            let status = stages
                .change_rollouts(|rollouts| rollouts.steer(&stage, action, by.as_deref()))
                .map_err(refused)?;
            self.apply_disabled(&stages);
            (stage, status)
        };
        Ok(Steered {
            stage,
            rollout,
            not_kept: self.0.disabled.keep_rollouts().await,
        })
    }

    /// Returns the progress of all rollouts in the live table.
    pub fn rollouts(&self) -> Vec<RolloutProgress> {
        self.0.disabled.lock().rollouts.list()
    }

    /// Adopts the progress that other replicas report for the rollouts in the live table. The latest change in any
    /// replica counts; an abort holds until a replica restarts the rollout.
    pub async fn follow_rollouts(&self, theirs: Vec<RolloutProgress>) {
        self.change_rollouts(|rollouts| rollouts.follow(theirs)).await;
    }

    /// Sets whether another replica begins the steps of rollouts. Limits and users can still end rollouts here.
    pub fn set_rollouts_led(&self, is_led: bool) {
        let mut stages = self.0.disabled.lock();
        if stages.rollouts.is_led != is_led {
            stages.change_rollouts(|rollouts| rollouts.set_led(is_led));
        }
    }

    /// Begins steps that are due, and aborts rollouts that have reached a limit.
    pub(crate) async fn move_rollouts(&self) {
        self.change_rollouts(Rollouts::advance).await;
    }

    /// Changes the rollouts with `change`, which returns whether it changed any.
    async fn change_rollouts(&self, change: impl FnOnce(&mut Rollouts) -> bool) {
        {
            let mut stages = self.0.disabled.lock();
            if !stages.change_rollouts(change) {
                return;
            }
            self.apply_disabled(&stages);
        }
        // `keep_rollouts` logs its own failures.
        let _ = self.0.disabled.keep_rollouts().await;
    }
}
