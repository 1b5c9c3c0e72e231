//! Keeping the table as the definitions and the modules that they name are.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Duration,
};

use admittance_catalog::ModuleReference;
use admittance_definitions::{DefinitionFile, DefinitionSet};
use admittance_watch::{Fingerprint, Watch, WatchConfig};
use tokio::time::{Instant, sleep_until};

use crate::{Error, Host, assembly::address, source::definition_files};

impl Host {
    /// Watch the definitions and the modules that they name, and [`reload`](Self::reload) whenever what
    /// they hold changes; ask again for modules that are to be asked for again; and try again what may
    /// help itself. It does not end; drop it to stop. What fails is logged, counted and shown by
    /// [`status`](Self::status).
    pub async fn follow(self) {
        let mut watch = None;
        let mut schedule = Schedule::default();
        // What is to be asked for again by a table that was given up.
        let mut given_up = None;
        loop {
            {
                let workshop = self.0.workshop.lock().await;
                // Definitions name modules, and others than before.
                let seen = workshop.source.seen.clone();
                match &mut watch {
                    None => watch = Some(Watch::since(seen, WatchConfig::default())),
                    Some(watch) => watch.expect(seen),
                }
                schedule.set(&workshop.source.refreshed, Instant::now());
            }
            let Some(watch) = &mut watch else { continue };
            let retry = self
                .0
                .live
                .load()
                .problem
                .as_ref()
                .and_then(|trouble| trouble.next);
            let due = match given_up.take() {
                Some(due) => due,
                None => tokio::select! {
                    _ = watch.changed() => HashSet::new(),
                    () = self.0.stores.changed() => HashSet::new(),
                    due = schedule.due() => due,
                    () = at(retry.map(|(instant, _)| instant)) => schedule.take_failed(),
                },
            };
            self.confirm_removal().await;
            let before = self.table().revision();
            let had_trouble = self.0.live.load().problem.is_some();
            match self.reload_asking_again(&due, Some(&mut *watch)).await {
                Ok(None) => {
                    tracing::info!("something else changed: the table that was being made is given up");
                    given_up = Some(due);
                }
                Ok(Some(table)) if table.revision() != before => {
                    let revision = table.revision();
                    let (chains, plugins) = (table.chains().len(), table.plugins().len());
                    tracing::info!(revision, chains, plugins, "the changed definitions are live");
                }
                Ok(_) if had_trouble && self.0.live.load().problem.is_none() => {
                    tracing::info!("the definitions say what is live again")
                }
                Ok(_) => tracing::debug!("the definitions say what is live"),
                Err(error) => {
                    schedule.failed(due);
                    if matches!(*error, Error::Stores(_)) {
                        tracing::error!("definitions cannot be read, those read before them stay: {error}");
                    } else {
                        tracing::error!(
                            "the changed definitions are not used, those before them stay: {error}"
                        );
                    }
                }
            }
        }
    }
}

/// How long files must say the same before it is believed that chains or stages are gone: a file that is being
/// written may be half of what it will be, and a directory that is being replaced is empty for a moment.
const REMOVAL: Duration = Duration::from_secs(2);

impl Host {
    /// Wait until files that take away chains or stages of the live table have said so for a while.
    async fn confirm_removal(&self) {
        let mut before = None;
        loop {
            let removal = self.removal().await;
            if removal.is_none() || removal == before {
                return;
            }
            if before.is_none() {
                tracing::info!(
                    "chains or stages are gone from the definitions, or a file is empty; that goes live when it has \
                     been so for {}",
                    humantime::format_duration(REMOVAL)
                );
            }
            before = removal;
            tokio::time::sleep(REMOVAL).await;
        }
    }

    /// What the files hold, if it takes away chains or stages of the live table or is nothing at all.
    async fn removal(&self) -> Option<Fingerprint> {
        let last = self.0.workshop.lock().await.history.last().cloned()?;
        let stores = self.0.stores.clone();
        let removal = tokio::task::spawn_blocking(move || {
            let paths = stores.paths();
            let seen = Fingerprint::of(paths.iter().cloned());
            // What cannot be read, or is wrong, takes nothing away.
            let now = DefinitionSet::read(&paths).ok()?;
            let mut before = definition_files(&last);
            before.retain(|file| stores.is_file(&file.path));
            let is_blank = |file: &DefinitionFile| file.text.trim().is_empty();
            let was_blank = |path: &Path| before.iter().any(|file| file.path == path && is_blank(file));
            let mut files = now.files().iter();
            let has_blank = files.any(|file| is_blank(file) && !was_blank(&file.path));
            let stages_now = stages(&now)?;
            let stages_before = stages(&DefinitionSet::of_files(before)).unwrap_or_default();
            (has_blank || !stages_before.is_subset(&stages_now)).then_some(seen)
        });
        removal.await.ok().flatten()
    }
}

/// Every stage of every chain; none when there are mistakes.
fn stages(set: &DefinitionSet) -> Option<HashSet<String>> {
    let chains = set.chains().ok()?;
    let stages = chains.iter().flat_map(|chain| {
        let stages = chain.stages.iter();
        stages.map(|stage| address(chain.phase, &chain.name, &stage.name))
    });
    Some(stages.collect())
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// When modules are asked for again.
#[derive(Debug, Default)]
struct Schedule {
    modules: HashMap<ModuleReference, (Duration, Instant)>,
    /// Those for which asking failed, to be asked for at the next attempt.
    failed: HashSet<ModuleReference>,
}

impl Schedule {
    /// These modules, each after this time. One that was on the schedule keeps its turn.
    fn set(&mut self, modules: &[(ModuleReference, Duration)], now: Instant) {
        let mut new = HashMap::new();
        for (reference, interval) in modules {
            let known = self.modules.get(reference).filter(|(known, _)| known == interval);
            let next = known.map_or(now + *interval, |(_, next)| *next);
            new.insert(reference.clone(), (*interval, next));
        }
        self.failed.retain(|reference| new.contains_key(reference));
        self.modules = new;
    }

    /// Wait until some are due, and put each on the schedule anew.
    async fn due(&mut self) -> HashSet<ModuleReference> {
        at(self.modules.values().map(|(_, next)| *next).min()).await;
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

    fn failed(&mut self, due: HashSet<ModuleReference>) {
        self.failed.extend(due);
    }

    fn take_failed(&mut self) -> HashSet<ModuleReference> {
        std::mem::take(&mut self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> ModuleReference {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_module_has_its_turn() {
        let [a, b] = ["oci://r.example/a:1", "oci://r.example/b:1"].map(reference);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let mut schedule = Schedule::default();
        let start = Instant::now();
        let modules = [(a.clone(), minutes(2)), (b.clone(), minutes(3))];
        schedule.set(&modules, start);
        let mut found = Vec::new();
        for _ in 0..4 {
            let mut due: Vec<_> = schedule.due().await.into_iter().collect();
            due.sort();
            found.push(((Instant::now() - start).as_secs() / 60, due));
            // Being read again changes no turn.
            schedule.set(&modules, Instant::now());
        }
        let expected = [
            (2, vec![a.clone()]),
            (3, vec![b.clone()]),
            (4, vec![a.clone()]),
            (6, vec![a.clone(), b.clone()]),
        ];
        assert_eq!(found, expected);
        schedule.failed([a.clone(), b].into());
        schedule.set(&modules[..1], Instant::now());
        assert_eq!(schedule.take_failed(), [a].into());
        assert_eq!(schedule.take_failed(), HashSet::new());
    }
}
