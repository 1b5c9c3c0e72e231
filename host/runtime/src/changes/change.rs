//! Changes that users request: applying, deleting and promoting definitions, and rollbacks.

use std::sync::Arc;

pub use admittance_definitions::AppliedEffect;
use admittance_definitions::{
    ChainId, Change, DefinitionId, DefinitionSet, DefinitionStore, ExpectedDefinitions, OnBadDefinition,
    PlanError as InvalidChange, StageId, StoreError, StoreKind, StoredDefinition,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Comparison, Error, Host, Moment, Origin, Revision, RevisionDetail,
    changes::{
        plan::{ChangePlan, Edit, plan_change},
        start::{entry_of, rebuild_table},
        stores::{StoreContents, Stores},
    },
    history::{self, HistoryEntry, HistoryError},
    live::TableProblem,
    live::assembly::{FetchScope, Modules},
    live::prepared::PreparedTable,
    live::source::{BuiltTable, Purpose, run_blocking},
};

/// Options of a change to the definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Application {
    /// Whether to check the change and report its effect without making it.
    pub dry_run: bool,
    /// The user who requested the change. The history records the name.
    pub by: Option<String>,
    /// Whether [`Host::apply`] requires that the definitions exist, or that they do not exist yet. Default: neither.
    pub expected: ExpectedDefinitions,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Applied {
    /// The live revision after the change. After a dry run, the number that the new revision would have got.
    pub revision: u64,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
    /// Whether the change was written but is not live, because other replicas have not prepared it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// The effect of the change on each of its definitions.
    pub definitions: Vec<AppliedDefinition>,
    /// The differences between the table before the change and the table after it.
    pub comparison: Comparison,
    /// Warnings about valid but probably unintended settings in the changed definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The effect of a change on one definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AppliedDefinition {
    /// The kind and name of the changed definition: `AdmissionChain/pods`.
    pub id: String,
    /// Whether the change created, changed or deleted the definition, or left it as it was.
    pub effect: AppliedEffect,
}

/// The reason why a change of definitions failed. A change that failed has no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The requested change is invalid: the text is not a definition, or the definition does not exist.
    #[error(transparent)]
    Definitions(#[from] admittance_definitions::PlanError),
    /// The definitions that would result from the change cannot be loaded.
    #[error(transparent)]
    Table(#[from] Error),
    /// The revision to roll back to does not exist, or the new revision cannot be written.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A change of files needs a history, so that it can be completed at the next start if the program crashes.
    #[error("changing definitions needs a history: name a history directory that can be written, or edit the files")]
    NoHistory,
    /// The rollback to this revision is prepared on this replica. It goes live when all replicas have prepared it.
    #[error(
        "revision {0} is prepared here, and goes live when all replicas have prepared it; roll back each of them: see \
         `admittance status --fleet`"
    )]
    Waits(u64),
    /// The store of the definitions cannot be written, or another program has changed it in the meantime.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The change affects several stores, which cannot be written together atomically.
    #[error("this changes definitions in {one} and in {other}; change one store at a time")]
    SeveralStores {
        /// The [location](admittance_definitions::DefinitionStore::location) of one of the affected stores.
        one: String,
        /// The location of another store that the change affects.
        other: String,
    },
}

impl Host {
    /// Returns the current definitions of all stores, including invalid ones, which are not live.
    ///
    /// # Errors
    ///
    /// Fails if a store cannot be read.
    pub async fn definitions(&self) -> Result<Vec<StoredDefinition>, ChangeError> {
        let set = self.0.stores.peek().await?.into_set()?;
        let live_set = self.0.stores.set_of(&self.0.live.load().entry);
        let read_documents = move || {
            let usable = set.usable_definitions(live_set.files(), OnBadDefinition::ServeRest);
            usable.set.documents()
        };
        Ok(run_blocking(read_documents).await?)
    }

    /// Returns the definitions from which a chain of the live table was built. After a rollback, or while the current
    /// definitions are invalid, they differ from the current ones. The list is empty if no such chain is live, or if
    /// the embedding program defined it in code.
    ///
    /// # Errors
    ///
    /// Fails if the host is shutting down.
    pub async fn live_definitions(&self, chain: &ChainId) -> Result<Vec<StoredDefinition>, ChangeError> {
        let set = self.0.stores.set_of(&self.0.live.load().entry);
        let chain = chain.clone();
        Ok(run_blocking(move || set.documents_of_chain(&chain)).await?)
    }

    /// Writes the definitions in this text to the store, where they replace definitions of the same kind and name. The
    /// table is built first, so that nothing is written if that fails. Error messages call the text `name`.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if the text is invalid, the table cannot be built, or the store cannot be written.
    pub async fn apply(&self, text: &str, name: &str, change_options: &Application) -> Result<Applied, ChangeError> {
        let (text, name, expected) = (text.to_owned(), name.to_owned(), change_options.expected);
        let edit =
            move |set: &DefinitionSet, stores: &Stores| set.apply(&text, &name, expected, &|id| stores.destination(id));
        self.change(change_options, Origin::Applied, Arc::new(edit)).await
    }

    /// Deletes a definition.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if the definition does not exist, the remaining definitions cannot be loaded, or the
    /// store cannot be written.
    pub async fn delete(&self, id: &DefinitionId, change_options: &Application) -> Result<Applied, ChangeError> {
        let id = id.clone();
        let edit = move |set: &DefinitionSet, _: &Stores| set.delete(&id);
        self.change(change_options, Origin::Deleted, Arc::new(edit)).await
    }

    /// Promotes the candidate of a stage: the candidate replaces the stage's plugin.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if the stage has no candidate, or the store cannot be written.
    pub async fn promote(&self, stage: &StageId, change_options: &Application) -> Result<Applied, ChangeError> {
        let origin = Origin::Promoted {
            stage: stage.to_string(),
        };
        let stage = stage.clone();
        let edit = move |set: &DefinitionSet, _: &Stores| set.promote(&stage);
        self.change(change_options, origin, Arc::new(edit)).await
    }

    async fn change(
        &self,
        change_options: &Application,
        origin: Origin,
        edit: Arc<Edit>,
    ) -> Result<Applied, ChangeError> {
        let _building = self.begin_build();
        loop {
            let (source, base_revision, has_history) = {
                let state = self.0.state.lock().await;
                let has_history = state.history.is_on_disk();
                (state.source.clone(), self.table().revision(), has_history)
            };
            let needs_history = !change_options.dry_run && !has_history;
            if needs_history && self.0.stores.are_files() {
                return Err(ChangeError::NoHistory);
            }
            let plan = plan_change(&source, edit.clone()).await.map_err(|error| match error {
                ChangeError::Definitions(InvalidChange::Unknown(text)) => {
                    InvalidChange::Unknown(text + &self.rollback_note()).into()
                }
                error => error,
            })?;
            let store = if change_options.dry_run {
                None
            } else {
                self.0.stores.store_of_changes(&plan.change.files)?
            };
            if needs_history && store.is_some_and(|store| store.kind() == StoreKind::Files) {
                return Err(ChangeError::NoHistory);
            }
            // A change fetches only the modules that it needs, so it does not wait for the servers of other modules.
            let modules = Modules::Current(FetchScope::Of(Arc::new(plan.modules.clone())));
            let purpose = Purpose::Change(&plan.paths);
            let built_table = source.build(plan.usable.clone(), modules, purpose).await?;
            let hash = built_table.hash;
            let finished_change = self
                .finish(plan, built_table, store, base_revision, change_options, origin.clone())
                .await?;
            if let Some(mut applied) = finished_change {
                applied.waits =
                    self.0.goes_live_on_request && !change_options.dry_run && !self.wait_until_live(hash).await;
                return Ok(applied);
            }
        }
    }

    /// Writes a planned change to the store, and goes live with it. Returns `None` if the plan is outdated.
    async fn finish(
        &self,
        plan: ChangePlan,
        built_table: BuiltTable,
        store: Option<&dyn DefinitionStore>,
        base_revision: u64,
        change_options: &Application,
        origin: Origin,
    ) -> Result<Option<Applied>, ChangeError> {
        let slot = self.wait_for_slot().await?;
        let mut state = self.0.state.lock().await;
        // The definitions may have been read again since this change was planned, and may be invalid now. Going live
        // with the plan would hide the mistakes in them. So the plan is discarded, and the caller makes a new one.
        let is_stale = self.table().revision() != base_revision || state.source.version != plan.version;
        if !change_options.dry_run && is_stale {
            return Ok(None);
        }
        let number = state.history.next_number();
        let entry = Arc::new(entry_of(&built_table, number, origin, change_options.by.clone()));
        let is_new = if change_options.dry_run {
            !state.history.is_newest(&entry)
        } else {
            !state.is_newest(&entry)
        };
        let mut applied = Applied {
            revision: if is_new {
                number
            } else {
                self.0.live.load().entry.revision().number
            },
            dry_run: change_options.dry_run,
            waits: false,
            definitions: applied_definitions(&plan.change),
            comparison: compare_with_last(state.history.last().map(|last| &**last), &entry),
            warnings: plan.warnings,
        };
        applied
            .warnings
            .extend(rollback_end_warning(state.newest_entry(), &entry));
        if change_options.dry_run {
            return Ok(Some(applied));
        }
        // The store is written even if the change leaves the live table as it is. For example, the store may contain an
        // invalid definition, which is not live, and which this change repairs.
        if let Some(store) = store {
            let is_announced = store.kind() == StoreKind::Files;
            if is_announced {
                state.history.announce(&entry, &plan.change.files).await?;
            }
            let commit_result = store.commit(&plan.change.files).await;
            if is_announced && (commit_result.is_err() || !is_new) {
                state.history.withdraw(&entry);
            }
            commit_result?;
        }
        let problem = match plan.pending.clone() {
            Some(error) => Some(TableProblem::after_attempt(self.0.live.load().problem.as_ref(), error)),
            None => self.problem_of_table(&built_table),
        };
        if is_new {
            let table = PreparedTable {
                built_table,
                entry: entry.clone(),
                slot,
            };
            self.go_live_or_wait(&mut state, table, problem).await;
            // The revision was written to the history before the definition files were changed. The history may contain
            // only tables that went live, so if this table waits for the other replicas, its revision is removed again.
            if self.0.goes_live_on_request && state.history.last() != Some(&entry) {
                state.history.withdraw(&entry);
            }
        } else {
            self.update_live_status(&state, problem);
        }
        if plan.pending.is_none() {
            let contents = StoreContents::from_set(&self.0.stores, &plan.change.set);
            let _ = state.source.record_contents(contents).await;
        }
        Ok(Some(applied))
    }

    /// Returns the earlier revision that a rollback restored; `None` if no rollback is live.
    pub fn rolled_back_to(&self) -> Option<u64> {
        self.0.live.load().entry.rolled_back_to()
    }

    /// Returns a note for the end of an error message about an unknown name. It says that a rollback is live, which may
    /// be why the name is unknown. The note is empty if no rollback is live.
    pub(crate) fn rollback_note(&self) -> String {
        self.rolled_back_to().map_or_else(String::new, |to| {
            format!(
                "; a rollback to revision {to} is live, so the live chains (`admittance status`) differ from the \
                 current definitions (`admittance get`)"
            )
        })
    }

    /// Returns the revisions in the history, the newest first.
    pub fn history(&self) -> Vec<Revision> {
        let live = self.0.live.load();
        let newest_first = live.revisions.iter().rev();
        newest_first.map(|entry| entry.revision().clone()).collect()
    }

    /// Returns a revision with its definitions.
    ///
    /// # Errors
    ///
    /// Fails if the history no longer has the revision.
    pub fn revision(&self, number: u64) -> Result<RevisionDetail, HistoryError> {
        let live = self.0.live.load();
        Ok(history::find(&live.revisions, number)?.detail.clone())
    }

    /// Returns the differences between two revisions.
    ///
    /// # Errors
    ///
    /// Fails if the history no longer has one of the revisions.
    pub fn compare(&self, from: u64, to: u64) -> Result<Comparison, HistoryError> {
        let live = self.0.live.load();
        let find = |number| history::find(&live.revisions, number);
        Ok(find(from)?.detail.compare(&find(to)?.detail))
    }

    /// Returns up to `max_count` revisions, the newest first, each with the names of definitions that it added, changed
    /// or removed, and of the stages whose module it changed. The oldest revision in the history has no names, because
    /// it cannot be compared with an earlier one.
    pub fn revision_changes(&self, max_count: usize) -> Vec<(Revision, Vec<String>)> {
        let live = self.0.live.load();
        let skipped_count = live.revisions.len().saturating_sub(max_count.saturating_add(1));
        let mut earlier_entry: Option<&HistoryEntry> = None;
        let rows = live.revisions.iter().skip(skipped_count).map(|entry| {
            let names = earlier_entry.replace(entry).map(|earlier| entry.changed_since(earlier));
            (entry.revision().clone(), names.unwrap_or_default().to_vec())
        });
        let mut changes: Vec<_> = rows.collect();
        changes.reverse();
        changes.truncate(max_count);
        changes
    }

    /// Restores the definitions and the exact modules of an earlier revision, and goes live with them as a new
    /// revision. Definition files are not changed. The rollback lasts until the definitions or their modules change.
    ///
    /// # Errors
    ///
    /// Fails if the revision or one of its modules is no longer available, or the new revision cannot be written.
    pub async fn rollback(&self, revision_number: u64, by: Option<String>) -> Result<Revision, ChangeError> {
        let _building = self.begin_build();
        let (source, target) = {
            let state = self.0.state.lock().await;
            let target = history::find(&state.history.entries(), revision_number)?.clone();
            (state.source.clone(), target)
        };
        let built_table = rebuild_table(&source, &target).await?;
        let slot = self.wait_for_slot().await?;
        let mut state = self.0.state.lock().await;
        let mut entry = entry_of(
            &built_table,
            state.history.next_number(),
            Origin::RolledBack { to: revision_number },
            by,
        );
        entry.detail.revision.at = Moment::now();
        entry.instead_of = Some(state.source.input_digest());
        let entry = Arc::new(entry);
        // A rollback does not change the definitions in files and stores. If these definitions contain mistakes, the
        // status reports the mistakes until somebody changes the definitions.
        let remaining_problem = || self.0.live.load().problem.as_ref().and_then(TableProblem::if_permanent);
        let (problem, hash) = (
            self.problem_of_definitions(&built_table.bad_definitions)
                .or_else(remaining_problem),
            built_table.hash,
        );
        state.replaced_problem = problem.clone();
        let table = PreparedTable {
            built_table,
            entry: entry.clone(),
            slot,
        };
        if self.0.goes_live_on_request {
            self.go_live_or_wait(&mut state, table, problem).await;
        } else {
            // The revision is written before it goes live, so that the rollback survives a restart.
            state.history.add_and_write(entry.clone()).await?;
            self.make_live(&mut state, table, problem);
        }
        self.0.rollbacks.send_modify(|count| *count += 1);
        drop(state);
        if self.0.goes_live_on_request && !self.wait_until_live(hash).await {
            return Err(ChangeError::Waits(revision_number));
        }
        Ok(entry.revision().clone())
    }
}

fn compare_with_last(last: Option<&HistoryEntry>, entry: &HistoryEntry) -> Comparison {
    match last {
        Some(last) => history::compare(&last.detail, &entry.detail),
        None => history::compare(&entry.detail, &entry.detail),
    }
}

/// If the change ends a rollback, returns a warning. It names the definitions and stages that differ from the rollback.
fn rollback_end_warning(newest: Option<&HistoryEntry>, entry: &HistoryEntry) -> Option<String> {
    let newest = newest?;
    let to = newest.rolled_back_to()?;
    let difference_text = match history::changed_names(&newest.detail, &entry.detail).join(", ") {
        none if none.is_empty() => String::new(),
        names => format!(": {names}"),
    };
    Some(format!(
        "the rollback to revision {to} ends with this change, and all current definitions are live again{difference_text}"
    ))
}

fn applied_definitions(change: &Change) -> Vec<AppliedDefinition> {
    let to_applied_definition = |(id, effect): &(DefinitionId, AppliedEffect)| AppliedDefinition {
        id: id.to_string(),
        effect: *effect,
    };
    change.effects.iter().map(to_applied_definition).collect()
}
