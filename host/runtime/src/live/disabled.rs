//! Stages that an operator disables for some time.
//!
//! The host disables a stage by marking it as disabled in a copy of the live table. Nothing is read, fetched or built.
//! So this works at once, even if stores and registries are unreachable or definitions are invalid.

mod stages;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use admittance_admission::suggestion_or;
use admittance_definitions::StageId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

pub(crate) use self::stages::{DisabledStages, Stages, is_stage};
use crate::{Host, Moment, Table, host::Inner, live::assembly::stage_address, live::exceptions, status::metrics};

/// A stage that an operator has disabled for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DisabledStage {
    /// The disabled stage, by phase, chain and name: `Mutating:pods/images`.
    pub stage: String,
    /// If `true`, the disabled stage is called as in mode `Audit`: its answers are recorded but not enforced. If
    /// `false`, it is not called.
    pub audit: bool,
    /// The reason that the operator gave for disabling the stage.
    pub reason: String,
    /// The user who disabled the stage; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The time at which the stage was disabled.
    pub since: Moment,
    /// The time at which the stage is enabled again.
    pub until: Moment,
}

/// The options for disabling a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisableOptions {
    /// Whether the disabled stage is called as in mode `Audit`. If not, it is not called at all.
    pub audit: bool,
    /// The time for which the stage is disabled, from 1 s to 24 h.
    pub duration: Duration,
    /// The reason for disabling the stage, which other users see; at most 1,000 characters.
    pub reason: String,
    /// The user who disables the stage.
    pub by: Option<String>,
}

/// The result of disabling or enabling a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Switched {
    /// Information about the disabled stage: who disabled it, why, and until when. If the request enabled the stage,
    /// the information is from before the request.
    pub disabled: DisabledStage,
    /// The record of how the stage was disabled before this request; absent if it was enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<DisabledStage>,
    /// The reason why a restart of the program undoes this change; absent if the change survives a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

/// The reason why a stage could not be disabled or enabled, or why the rollout of its candidate could not be steered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisableError {
    /// There is no stage of this name, or none for which the action is possible.
    #[error("{0}")]
    NotFound(String),
    /// The action is not possible in the current state of the candidate's rollout.
    #[error("{0}")]
    Conflict(String),
    /// The name of the stage is ambiguous, the duration is too short or too long, or the reason is empty or too long.
    #[error("{0}")]
    Invalid(String),
}

/// The shortest time for which a stage can be disabled.
const MIN_DISABLE_TIME: Duration = Duration::from_secs(1);
/// The longest time for which a stage can be disabled. To disable it for longer, change its definition.
const MAX_DISABLE_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of characters in the reason for disabling a stage.
const MAX_REASON_LENGTH: usize = 1000;

/// The maximum number of stage names that an error lists. The rest is only counted.
const MAX_LISTED_NAMES: usize = 30;

/// The interval at which the system clock is read while a disabled stage or an exception waits for its end. A single
/// long timer would be late if the machine slept meanwhile: the timer stops during the sleep, but the clock goes on.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

impl Host {
    /// Disables a stage for some time: it is not called, or only as in mode `Audit`. This takes effect with the next
    /// request, even if definitions are invalid or stores are unreachable. It applies to the stage of this name in
    /// later tables as well. It survives restarts if there is a directory for the
    /// [history](crate::HostBuilder::history). If the stage is already disabled, the new options replace the old ones.
    ///
    /// # Errors
    ///
    /// Fails if the live table has no such stage, or several, or if the duration or the reason is invalid.
    pub async fn disable(&self, stage: &StageId, options: DisableOptions) -> Result<Switched, DisableError> {
        let reason = options.reason.trim().to_owned();
        if reason.is_empty() || reason.chars().count() > MAX_REASON_LENGTH {
            return Err(DisableError::Invalid(format!(
                "give the reason for which the stage is disabled, in at most {MAX_REASON_LENGTH} characters"
            )));
        }
        if !(MIN_DISABLE_TIME..=MAX_DISABLE_TIME).contains(&options.duration) {
            let message = format!("a stage is disabled for 1s to 24h, not for {:?}", options.duration);
            return Err(DisableError::Invalid(message));
        }
        let since = Moment::now();
        let (disabled, replaced) = {
            let mut stages = self.0.disabled_stages.lock();
            let disabled = DisabledStage {
                stage: resolve_stage(
                    stage,
                    stage_addresses(&self.table()),
                    &format!("there is no stage {stage}{}", self.rollback_note()),
                    "stages are",
                )?,
                audit: options.audit,
                reason,
                by: options.by,
                since,
                until: Moment(since.0 + options.duration),
            };
            let replaced = stages.insert(disabled.clone(), Instant::now() + options.duration);
            self.apply_disabled_stages(&stages);
            (disabled, replaced)
        };
        metrics::record_disabled_stage(&disabled.stage, true);
        let action = if options.audit { "audit" } else { "disable" };
        log_action(disabled.by.as_deref(), action, &disabled);
        Ok(Switched {
            disabled,
            replaced,
            not_kept: self.0.disabled_stages.keep_disabled_stages().await,
        })
    }

    /// Enables a [disabled](Self::disable) stage before its time is over.
    ///
    /// # Errors
    ///
    /// Fails if the stage is not disabled.
    pub async fn enable(&self, stage: &StageId, by: Option<String>) -> Result<Switched, DisableError> {
        let missing = format!("the stage {stage} is not disabled");
        let disabled = {
            let mut stages = self.0.disabled_stages.lock();
            let disabled = stages.list();
            // The stage may have been removed from the live table, so its name is looked up among the disabled stages.
            let names = disabled.iter().map(|disabled| disabled.stage.clone());
            let name = resolve_stage(stage, names.collect(), &missing, "disabled stages are")?;
            stages.remove(|disabled, _| disabled.stage == name);
            self.apply_disabled_stages(&stages);
            disabled.into_iter().find(|disabled| disabled.stage == name)
        };
        let disabled = disabled.ok_or(DisableError::NotFound(missing))?;
        metrics::record_disabled_stage(&disabled.stage, false);
        log_action(by.as_deref(), "enable", &disabled);
        Ok(Switched {
            disabled,
            replaced: None,
            not_kept: self.0.disabled_stages.keep_disabled_stages().await,
        })
    }

    async fn enable_ended_stages(&self) {
        let ended_stages = {
            let mut stages = self.0.disabled_stages.lock();
            let now = (Instant::now(), Moment::now());
            let removed = stages.remove(|disabled, end| end <= now.0 || disabled.until <= now.1);
            if removed.is_empty() {
                return;
            }
            self.apply_disabled_stages(&stages);
            removed
        };
        for disabled in &ended_stages {
            metrics::record_disabled_stage(&disabled.stage, false);
        }
        // If the list of disabled stages cannot be written to disk, `keep_disabled_stages` logs that. The old list does
        // no harm: the next start finds that the time of these stages is over, and enables them.
        let _ = self.0.disabled_stages.keep_disabled_stages().await;
        ended_stages.iter().for_each(log_end);
    }

    fn log_expired_exceptions(&self) {
        let now = Moment::now();
        let mut stages = self.0.disabled_stages.lock();
        let table = self.table();
        let before = stages.watch_exceptions(&table.exceptions, now);
        exceptions::log_expired_exceptions(&table.exceptions, before, now);
        self.0.changes.send_replace(());
    }
}

/// Enables stages, logs expired exceptions and moves rollouts when they are due. Returns when the host is dropped.
pub(crate) async fn follow_ends(
    host: Weak<Inner>,
    mut next_end: watch::Receiver<Option<Instant>>,
    limit_notice: Arc<Notify>,
) {
    loop {
        let end = *next_end.borrow_and_update();
        let pause = async {
            match end {
                Some(end) => sleep_until(end.min(Instant::now() + CLOCK_CHECK_INTERVAL)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = next_end.changed() => if changed.is_err() { return },
            () = limit_notice.notified() => {
                let Some(inner) = host.upgrade() else { return };
                Host(inner).advance_rollouts().await;
            }
            () = pause => {
                let Some(inner) = host.upgrade() else { return };
                let host = Host(inner);
                host.enable_ended_stages().await;
                host.advance_rollouts().await;
                host.log_expired_exceptions();
            }
        }
    }
}

fn stage_addresses(table: &Table) -> Vec<String> {
    let chains = table.chains();
    let stages = chains.flat_map(|chain| chain.stages.iter().map(move |stage| (chain, stage)));
    stages
        .map(|(chain, stage)| stage_address(chain.phase, &chain.name, &stage.spec.name))
        .collect()
}

/// Finds the full name of the stage that a user means by `id`, such as `Mutating:pods/images` for `pods/images`. If
/// there is no such stage, the error suggests similar names. A name is not split at `/`, because the name of a BCS
/// definition may itself contain `/`.
pub(crate) fn resolve_stage(
    id: &StageId,
    names: Vec<String>,
    missing: &str,
    list_title: &str,
) -> Result<String, DisableError> {
    let text = id.to_string();
    let in_short = |name: &String| match (id.phase, name.split_once(':')) {
        (None, Some((_, name))) => name.to_owned(),
        _ => name.clone(),
    };
    let (mut matching_names, other_names): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| in_short(name) == text);
    match (matching_names.pop(), matching_names.is_empty()) {
        (Some(name), true) => Ok(name),
        (Some(name), false) => {
            matching_names.push(name);
            let matching_list = list_names(&matching_names);
            Err(DisableError::Invalid(format!(
                "there are several stages of the name {id}; write one of: {matching_list}"
            )))
        }
        (None, _) => {
            let full_list = format!("the {list_title}: {}", list_names(&other_names));
            let suggestion = suggestion_or(&text, other_names.iter().map(in_short), &full_list);
            Err(DisableError::NotFound(format!("{missing}; {suggestion}")))
        }
    }
}

fn log_action(by: Option<&str>, action: &str, disabled: &DisabledStage) {
    let DisabledStage {
        stage, reason, until, ..
    } = disabled;
    let by = by.unwrap_or("unknown");
    tracing::warn!(
        target: "admittance::audit",
        by, action, %stage, reason, %until,
        "{by}: {action} {stage}"
    );
}

fn log_end(disabled: &DisabledStage) {
    let DisabledStage {
        stage, reason, until, ..
    } = disabled;
    tracing::warn!(
        target: "admittance::audit",
        action = "enable", %stage, reason, %until,
        "{stage} is enabled again: its time has ended"
    );
}

fn list_names(names: &[String]) -> String {
    let (shown_names, hidden_names) = names.split_at(names.len().min(MAX_LISTED_NAMES));
    match shown_names {
        [] => "none".to_owned(),
        _ if hidden_names.is_empty() => shown_names.join(", "),
        _ => format!("{} and {} more", shown_names.join(", "), hidden_names.len()),
    }
}
