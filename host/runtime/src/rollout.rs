//! Rollouts let the candidate of a stage decide a growing share of its requests.
//!
//! The share of each rollout is a part of the live table, so that all answers of a stage for one request come from the
//! same version. To change a share, the host copies the live table with the new share. Nothing is read, fetched or
//! built.

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

/// The progress of the rollout of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RolloutStatus {
    /// Whether the rollout continues by itself, waits for a user, or has ended.
    pub state: RolloutState,
    /// The share of the stage's requests that the candidate decides now: `10%`; `0%` after an abort.
    pub share: String,
    /// The share of the requests in each step of the rollout.
    pub steps: Vec<String>,
    /// The property of a request, such as its namespace or its user, by which the request is assigned to the plugin or
    /// to the candidate.
    pub by: RolloutKey,
    /// The time at which the current step began, or at which the state last changed if that was later.
    pub since: Moment,
    /// The time at which the next step begins, or at which the last step is complete; absent if only a user can
    /// continue the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Moment>,
    /// The reason why the rollout was aborted, or the user who paused it. If this happened on another replica, the text
    /// contains the name of that replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of requests that the candidate decided in this step. The count starts again from 0 whenever the
    /// length of a step has passed.
    pub decided: u64,
    /// The number of requests that the candidate should have decided, but for which it gave no verdict.
    pub failed: u64,
    /// The limit for `failed`: when it is reached, the rollout is aborted. If the rollout defines the limit as a share,
    /// such as `1%`, it is a share of `decided`, so this number grows during the step.
    #[serde(default)]
    pub failure_limit: u64,
    /// The number of requests that the candidate decided, and for which its answer was compared with the
    /// plugin's answer.
    pub compared: u64,
    /// The number of compared requests that the candidate denied although the plugin did not.
    pub refused: u64,
    /// The limit for `refused`: when it is reached, the rollout is aborted. If the rollout defines the limit as a
    /// share, such as `1%`, it is a share of `compared`, so this number grows during the step.
    #[serde(default)]
    pub refusal_limit: u64,
}

/// Whether a rollout continues by itself, waits for a user, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RolloutState {
    /// The rollout goes on: its next step begins by itself.
    Progressing,
    /// The share of the candidate stays as it is until a user resumes the rollout.
    Paused,
    /// The candidate decides no more requests: the current plugin decides all of them, as before the rollout.
    Aborted,
    /// The last step of the rollout has lasted for its whole pause, so the candidate can be promoted.
    Completed,
}

keywords!(RolloutState, "state of a rollout": Progressing = "progressing", Paused = "paused", Aborted = "aborted", Completed = "completed");

/// An action that users can take on a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RolloutAction {
    /// Begins the next step of the rollout now.
    Next,
    /// Keeps the share of the candidate as it is until a user resumes the rollout.
    Pause,
    /// Continues a paused rollout, or starts an aborted rollout again at its first step.
    Resume,
    /// Aborts the rollout, so that the current plugin decides all requests.
    Abort,
}

keywords!(RolloutAction, "action on a rollout": Next = "next", Pause = "pause", Resume = "resume", Abort = "abort");

/// A rollout after what a user has done with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Steered {
    /// The stage that the rollout belongs to, by phase, chain and name: `Mutating:pods/images`.
    pub stage: String,
    /// The progress of the rollout after the user's action.
    pub rollout: RolloutStatus,
    /// The reason why a restart of the program undoes the action; absent if the action survives a restart.
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
        user: Option<String>,
    ) -> Result<Steered, DisableError> {
        let (stage, rollout) = {
            let mut stages = self.0.disabled_stages.lock();
            let missing = format!("there is no rollout of a candidate of {stage}{}", self.rollback_note());
            let stage = resolve_stage(stage, stages.rollouts.stages(), &missing, "rollouts are of")?;
            let conflict = |state| {
                DisableError::Conflict(format!(
                    "the rollout of the candidate of {stage} is {state}, which leaves nothing to {action}"
                ))
            };
            let status = stages
                .change_rollouts(|rollouts| rollouts.steer(&stage, action, user.as_deref()))
                .map_err(conflict)?;
            self.apply_disabled_stages(&stages);
            (stage, status)
        };
        Ok(Steered {
            stage,
            rollout,
            not_kept: self.0.disabled_stages.keep_rollouts().await,
        })
    }

    /// Returns the progress of all rollouts in the live table.
    pub fn rollouts(&self) -> Vec<RolloutProgress> {
        self.0.disabled_stages.lock().rollouts.list()
    }

    /// Takes over the progress that other replicas report for the rollouts in the live table, if it is newer. Once any
    /// replica has aborted a rollout, other changes of this rollout are ignored until a user restarts it.
    pub async fn follow_rollouts(&self, reported_progress: Vec<RolloutProgress>) {
        self.change_rollouts(|rollouts| rollouts.follow(reported_progress))
            .await;
    }

    /// Sets whether another replica decides when the steps of rollouts begin. Even if another replica does, this
    /// replica aborts a rollout that reaches a limit, and users of this replica can steer rollouts.
    pub fn set_rollouts_led(&self, is_led: bool) {
        let mut stages = self.0.disabled_stages.lock();
        if stages.rollouts.is_led != is_led {
            stages.change_rollouts(|rollouts| rollouts.set_led(is_led));
        }
    }

    /// Begins those steps of rollouts that are due, and aborts the rollouts that have reached a limit.
    pub(crate) async fn advance_rollouts(&self) {
        self.change_rollouts(Rollouts::advance).await;
    }

    /// Calls `change`, which returns whether it changed a rollout. Changes take effect at once and are written to disk.
    async fn change_rollouts(&self, change: impl FnOnce(&mut Rollouts) -> bool) {
        {
            let mut stages = self.0.disabled_stages.lock();
            if !stages.change_rollouts(change) {
                return;
            }
            self.apply_disabled_stages(&stages);
        }
        let _ = self.0.disabled_stages.keep_rollouts().await;
    }
}
