//! Keeps the list of disabled stages and the progress of rollouts, in memory and in the directory of the history.

use std::sync::Arc;

use admittance_admission::Phase;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};

use super::{DisabledStage, log_end};
use crate::{
    Moment, Table,
    history::{HistoryDirectory, HistoryError},
    live::exceptions::{LiveException, next_expiry},
    rollout::Rollouts,
    status::metrics,
};

#[derive(Debug)]
pub(crate) struct DisabledStages {
    /// The disabled stages and the rollouts. Locked while one of them changes, and while a table goes live, so that the
    /// table gets their newest state.
    stages: Mutex<Stages>,
    directory: Option<Arc<HistoryDirectory>>,
    writing: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct Stages {
    stages: Vec<(Arc<DisabledStage>, Instant)>,
    pub(crate) rollouts: Rollouts,
    /// The time at which the next of the live table's exceptions expires.
    exceptions_end: Option<Instant>,
    /// Exceptions that expired before this time have been logged.
    logged_until: Moment,
    /// The next time at which a disabled stage has to be enabled, an exception expires, or a rollout step ends.
    next_end: watch::Sender<Option<Instant>>,
}

impl DisabledStages {
    pub(crate) fn open(directory: Option<Arc<HistoryDirectory>>) -> Self {
        let (mut disabled, mut rollouts) = (Vec::new(), Vec::new());
        if let Some(directory) = &directory {
            match directory.read_disabled_stages() {
                Ok(disabled_stages) => disabled = disabled_stages,
                Err(error) => tracing::error!("all stages are enabled: {error}"),
            }
            match directory.read_rollouts() {
                Ok(rollout_steps) => rollouts = rollout_steps,
                Err(error) => tracing::error!("all rollouts begin anew: {error}"),
            }
        }
        let (now, instant) = (Moment::now(), Instant::now());
        let (ended_stages, disabled): (Vec<_>, Vec<_>) =
            disabled.into_iter().partition(|disabled| disabled.until <= now);
        let stages = disabled.into_iter().map(|disabled| {
            metrics::record_disabled_stage(&disabled.stage, true);
            tracing::warn!(stage = disabled.stage, until = %disabled.until, "the stage stays disabled");
            let remaining_time = disabled.until.0.duration_since(now.0).unwrap_or_default();
            (Arc::new(disabled), instant + remaining_time)
        });
        let stages = Stages {
            stages: stages.collect(),
            rollouts: Rollouts::new(rollouts),
            exceptions_end: None,
            logged_until: now,
            next_end: watch::Sender::default(),
        };
        stages.update_next_end();
        if let Some(directory) = directory.as_ref().filter(|_| !ended_stages.is_empty()) {
            ended_stages.iter().for_each(log_end);
            if let Err(error) = directory.write_disabled_stages(&stages.list()) {
                tracing::error!("{error}");
            }
        }
        Self {
            stages: Mutex::new(stages),
            directory,
            writing: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Stages> {
        self.stages.lock()
    }

    /// Writes the list of disabled stages to disk. If that is not possible, returns the reason; a restart of the
    /// program then enables the stages again.
    pub(crate) async fn keep_disabled_stages(self: &Arc<Self>) -> Option<String> {
        self.write(
            "the disabled stages are",
            Stages::list,
            HistoryDirectory::write_disabled_stages,
        )
        .await
    }

    /// Writes the progress of rollouts to disk. Returns `None` if that succeeds, or else the reason why a restart of
    /// this program loses the progress.
    pub(crate) async fn keep_rollouts(self: &Arc<Self>) -> Option<String> {
        let list = |stages: &Stages| stages.rollouts.list();
        self.write("the steps of rollouts are", list, HistoryDirectory::write_rollouts)
            .await
    }

    async fn write<T: 'static>(
        self: &Arc<Self>,
        subject: &str,
        list: fn(&Stages) -> Vec<T>,
        write: fn(&HistoryDirectory, &[T]) -> Result<(), HistoryError>,
    ) -> Option<String> {
        let Some(directory) = self.directory.clone() else {
            return Some("no directory is configured for the history".to_owned());
        };
        let this = self.clone();
        let writing = move || {
            // The lock `writing` is held while the list is read and written to disk. Otherwise, a slow thread could
            // overwrite a newer list with an older one.
            let _writing = this.writing.lock();
            let list = list(&this.lock());
            write(&directory, &list)
        };
        let problem = match tokio::task::spawn_blocking(writing).await {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        metrics::count_write_failure("history");
        tracing::error!("{subject} not kept over a restart: {problem}");
        Some(problem)
    }
}

impl Stages {
    pub(crate) fn list(&self) -> Vec<DisabledStage> {
        let stages = self.stages.iter();
        stages.map(|(disabled, _)| (**disabled).clone()).collect()
    }

    pub(crate) fn missing_stages(&self, table: &Table) -> Vec<DisabledStage> {
        let mut missing = self.list();
        let stages = table.chains.iter().flat_map(|chain| &chain.stages);
        for disabled in stages.filter_map(|stage| stage.disabled.as_ref()) {
            missing.retain(|other| other.stage != disabled.stage);
        }
        missing
    }

    pub(crate) fn get(&self, phase: Phase, chain: &str, stage: &str) -> Option<Arc<DisabledStage>> {
        let mut stages = self.stages.iter().map(|(disabled, _)| disabled);
        stages
            .find(|disabled| is_stage(&disabled.stage, phase, chain, stage))
            .cloned()
    }

    pub(crate) fn change_rollouts<T>(&mut self, change: impl FnOnce(&mut Rollouts) -> T) -> T {
        let result = change(&mut self.rollouts);
        self.update_next_end();
        result
    }

    pub(crate) fn ends(&self) -> watch::Receiver<Option<Instant>> {
        self.next_end.subscribe()
    }

    /// Records the time at which the next exception of the live table expires, and the time `now` of this call. Returns
    /// the time of the previous call. The caller then logs the exceptions that expired between the two calls.
    pub(crate) fn watch_exceptions(&mut self, exceptions: &[LiveException], now: Moment) -> Moment {
        self.exceptions_end = next_expiry(exceptions, now);
        self.update_next_end();
        std::mem::replace(&mut self.logged_until, now)
    }

    pub(super) fn insert(&mut self, disabled: DisabledStage, end: Instant) -> Option<DisabledStage> {
        let before = self.remove(|before, _| before.stage == disabled.stage);
        self.stages.push((Arc::new(disabled), end));
        self.update_next_end();
        before.into_iter().next()
    }

    pub(super) fn remove(
        &mut self,
        mut is_selected: impl FnMut(&DisabledStage, Instant) -> bool,
    ) -> Vec<DisabledStage> {
        let removed = self
            .stages
            .extract_if(.., |(disabled, end)| is_selected(disabled, *end))
            .map(|(disabled, _)| Arc::unwrap_or_clone(disabled))
            .collect();
        self.update_next_end();
        removed
    }

    fn update_next_end(&self) {
        let stage_ends = self.stages.iter().map(|(_, end)| *end);
        let ends = stage_ends.chain(self.exceptions_end).chain(self.rollouts.next_end());
        self.next_end.send_replace(ends.min());
    }
}

pub(crate) fn is_stage(address: &str, phase: Phase, chain: &str, stage: &str) -> bool {
    let of_phase = address.strip_prefix(phase.as_str());
    let rest = of_phase.and_then(|rest| rest.strip_prefix(':')?.strip_prefix(chain)?.strip_prefix('/'));
    rest == Some(stage)
}
