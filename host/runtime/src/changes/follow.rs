//! Keeps the live table up to date with the definitions and their modules.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use admittance_catalog::ModuleReference;
use admittance_watch::{Fingerprint, Watch, WatchConfig};
use tokio::time::{Instant, sleep_until};

use crate::{Error, Host, RevisionModule, changes::reload::Reload, live::assembly::FetchScope};

/// The maximum wait for a module file that is being written. After that, its stage fails to load.
const INCOMPLETE_FILE_TIMEOUT: Duration = Duration::from_secs(20);

struct ReloadAttempt {
    /// Whether definitions or module files have changed; `false` if only a scheduled refresh or a retry is due.
    is_change: bool,
    refresh: HashSet<ModuleReference>,
}

impl Host {
    /// Keeps the live table up to date: [reloads](Self::reload) definitions and modules when they change, refreshes
    /// modules on their schedule, and retries after temporary failures. Never completes; drop the future to stop.
    /// Failures are logged, counted and shown by [`status`](Self::status).
    ///
    /// A change that needs no module from a server does not wait for servers.
    pub async fn follow(self) {
        // Watches the module files. Definition files are watched by their stores.
        let mut watch = Watch::from_fingerprint(Fingerprint::default(), WatchConfig::default());
        let mut schedule = Schedule::default();
        let mut superseded: Option<ReloadAttempt> = None;
        loop {
            {
                let state = self.0.state.lock().await;
                watch.set_fingerprint(state.source.module_fingerprint.clone());
                schedule.set(&state.source.refresh_intervals, Instant::now());
            }
            let attempt = match superseded.take() {
                Some(attempt) => attempt,
                None => self.next_attempt(&mut watch, &mut schedule).await,
            };
            watch.writers().wait_and_list_unfinished(INCOMPLETE_FILE_TIMEOUT).await;
            let ReloadAttempt { is_change, refresh } = attempt;
            let mut result = if is_change {
                self.reload_and_log(FetchScope::none(), &mut watch).await
            } else {
                Ok(Reload::LacksModules)
            };
            let needs_servers = match &result {
                Ok(Reload::LacksModules) => true,
                Ok(Reload::Live(_)) => !refresh.is_empty(),
                Ok(Reload::Superseded) | Err(_) => false,
            };
            if needs_servers {
                let servers = FetchScope::All(Arc::new(refresh.clone()));
                result = self.reload_and_log(servers, &mut watch).await;
            }
            match result {
                Ok(Reload::Superseded) => {
                    superseded = Some(ReloadAttempt {
                        is_change: true,
                        refresh,
                    });
                }
                Ok(_) if self.0.live.load().problem.is_none() => {}
                _ => schedule.failed.extend(refresh),
            }
        }
    }

    async fn next_attempt(&self, watch: &mut Watch, schedule: &mut Schedule) -> ReloadAttempt {
        let retry = {
            let live = self.0.live.load();
            live.problem.as_ref().and_then(|problem| problem.next)
        };
        let (is_change, refresh) = tokio::select! {
            _ = watch.changed() => (true, HashSet::new()),
            () = self.0.stores.wait_for_change() => (true, HashSet::new()),
            () = self.0.reread.notified() => (true, HashSet::new()),
            due = schedule.wait_for_due_modules() => (false, due),
            () = wait_until(retry.map(|(instant, _)| instant)) => (false, std::mem::take(&mut schedule.failed)),
        };
        ReloadAttempt { is_change, refresh }
    }

    async fn reload_and_log(&self, servers: FetchScope, watch: &mut Watch) -> Result<Reload, Arc<Error>> {
        let before = self.table().revision();
        let had_problem = self.0.live.load().problem.is_some();
        let result = self.reload_with(servers, Some(watch)).await;
        if self.table().revision() != before && !matches!(result, Ok(Reload::Superseded)) {
            self.log_change();
        }
        match &result {
            Ok(Reload::Superseded) => {
                tracing::info!("the definitions changed again: the table in preparation is discarded");
            }
            Ok(_) if had_problem && self.0.live.load().problem.is_none() => {
                tracing::info!("the live table matches the definitions again");
            }
            Ok(_) => tracing::debug!("the live table matches the definitions"),
            Err(error) if matches!(**error, Error::Stores(_)) => {
                tracing::error!("definitions cannot be read; the previous ones stay live: {error}");
            }
            Err(error) => {
                tracing::error!("the changed definitions are rejected; the previous ones stay live: {error}");
            }
        }
        result
    }

    pub(crate) fn log_change(&self) {
        let (table, live) = (self.table(), self.0.live.load());
        let (revision, chains, plugins) = (table.revision(), table.chains().len(), table.plugins().len());
        let (files, modules) = match &live.revisions[..] {
            [.., before, now] => {
                let (before, now) = (&before.detail, &now.detail);
                let module = |module: &RevisionModule| format!("{}@{}", module.source, module.digest);
                let (from, to) = (&before.revision.modules, &now.revision.modules);
                (
                    changed_names(&before.files, &now.files, |file| file.path.display().to_string()),
                    changed_names(from, to, module),
                )
            }
            _ => Default::default(),
        };
        tracing::info!(
            revision,
            chains,
            plugins,
            files,
            modules,
            "the changed definitions are live"
        );
    }
}

fn changed_names<T: PartialEq>(before: &[T], now: &[T], name: impl Fn(&T) -> String) -> String {
    const MAX_NAME_COUNT: usize = 5;
    let indexes_by_name = |all: &'_ [T]| -> BTreeMap<String, usize> {
        all.iter()
            .enumerate()
            .map(|(index, item)| (name(item), index))
            .collect()
    };
    let (from, to) = (indexes_by_name(before), indexes_by_name(now));
    let is_other = |name: &&String| match (from.get(*name), to.get(*name)) {
        (Some(from), Some(to)) => before.get(*from) != now.get(*to),
        _ => true,
    };
    let names: BTreeSet<_> = from.keys().chain(to.keys()).filter(is_other).cloned().collect();
    let hidden_count = names.len().saturating_sub(MAX_NAME_COUNT);
    let mut text = names.into_iter().take(MAX_NAME_COUNT).collect::<Vec<_>>().join(", ");
    if hidden_count > 0 {
        text += &format!(" and {hidden_count} more");
    }
    text
}

async fn wait_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[derive(Debug, Default)]
struct Schedule {
    modules: HashMap<ModuleReference, (Duration, Instant)>,
    /// The modules that could not be fetched when they were due for a refresh. The next attempt fetches them again.
    failed: HashSet<ModuleReference>,
}

impl Schedule {
    fn set(&mut self, modules: &[(ModuleReference, Duration)], now: Instant) {
        let mut new_modules = HashMap::new();
        for (reference, interval) in modules {
            let scheduled = self
                .modules
                .get(reference)
                .filter(|(scheduled_interval, _)| scheduled_interval == interval);
            let next = scheduled.map_or(now + *interval, |(_, next)| *next);
            new_modules.insert(reference.clone(), (*interval, next));
        }
        self.failed.retain(|reference| new_modules.contains_key(reference));
        self.modules = new_modules;
    }

    /// Waits until some modules are due for a refresh, schedules the next refresh of each, and returns them.
    async fn wait_for_due_modules(&mut self) -> HashSet<ModuleReference> {
        wait_until(self.modules.values().map(|(_, next)| *next).min()).await;
        let now = Instant::now();
        let mut due = HashSet::new();
        for (reference, (interval, next)) in &mut self.modules {
            if *next <= now {
                *next = now + *interval;
                due.insert(reference.clone());
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> ModuleReference {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_module_is_refreshed_at_its_own_interval() {
        let [a, b] = ["oci://r.example/a:1", "oci://r.example/b:1"].map(reference);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let mut schedule = Schedule::default();
        let start = Instant::now();
        let modules = [(a.clone(), minutes(2)), (b.clone(), minutes(3))];
        schedule.set(&modules, start);
        let mut refreshes = Vec::new();
        for _ in 0..4 {
            let mut due: Vec<_> = schedule.wait_for_due_modules().await.into_iter().collect();
            due.sort();
            refreshes.push(((Instant::now() - start).as_secs() / 60, due));
            schedule.set(&modules, Instant::now());
        }
        let expected = [
            (2, vec![a.clone()]),
            (3, vec![b.clone()]),
            (4, vec![a.clone()]),
            (6, vec![a.clone(), b.clone()]),
        ];
        assert_eq!(refreshes, expected);
        schedule.failed.extend([a.clone(), b]);
        schedule.set(&modules[..1], Instant::now());
        assert_eq!(schedule.failed, [a].into());
    }
}
