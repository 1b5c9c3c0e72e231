//! Changes that somebody asks for: definitions that are applied, deleted or promoted, and tables that are
//! rolled back to.

use std::{path::PathBuf, sync::Arc};

use admittance_definitions::{
    Change, DefinitionId, DefinitionSet, Effect, Expected, OnBadDefinition, StageId, StoreError,
    StoredDefinition,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Comparison, Error, Host, Moment, Origin, Revision, RevisionDetail,
    assembly::{Modules, Servers},
    history::{self, Entry, HistoryError},
    host::{TableState, as_it_was, entry_of},
    source::{Purpose, modules_and_warnings, revision_files},
    stores::Stores,
};

/// How a change is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Application {
    /// Check it, and say what it would do; change nothing.
    pub dry_run: bool,
    /// Who asks for it, for the history.
    pub by: Option<String>,
    /// What [`Host::apply`] expects of the definitions that it is given. Default: nothing.
    pub expected: Expected,
}

/// What a change came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The live revision; in a dry run the one that it would have become.
    pub revision: u64,
    /// Nothing was changed.
    pub dry_run: bool,
    /// What became of each definition.
    pub definitions: Vec<AppliedDefinition>,
    /// What is different from the table before.
    pub comparison: Comparison,
    /// What is valid in the changed definitions and probably not what was meant, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What became of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedDefinition {
    /// Kind and name, `AdmissionChain/pods`.
    pub id: String,
    /// What became of it.
    pub effect: AppliedEffect,
}

/// What becomes of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AppliedEffect {
    /// It is new.
    Created,
    /// It is another than before.
    Changed,
    /// It is what it was.
    Unchanged,
    /// It is gone.
    Deleted,
}

/// Why a change is not made. Everything is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It is wrong in itself: a text that is no definition, a definition that is not there.
    #[error(transparent)]
    Definitions(#[from] admittance_definitions::ChangeError),
    /// What the definitions would say then cannot be made.
    #[error(transparent)]
    Table(#[from] Error),
    /// The revision is not there, or the new one cannot be written down.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Files are written one after another, so that a change of them is written to the history first.
    #[error(
        "definitions are changed by a driver with a history alone: name a directory that can be written (`history: {{ directory: ... }}`), or edit the files"
    )]
    NoHistory,
    /// The definitions cannot be written, or are others by now.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The change is of definitions in several stores, which cannot be written all or none.
    #[error("this changes definitions in {one} and in {other}; change those in one at a time")]
    SeveralStores {
        /// [`DefinitionStore::location`](admittance_definitions::DefinitionStore::location).
        one: String,
        /// The same of another.
        other: String,
    },
}

impl Host {
    /// The definitions as the files and stores hold them now, which are not live when they are wrong.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn definitions(&self) -> Result<Vec<StoredDefinition>, ChangeError> {
        let contents = self.0.stores.read().await?;
        self.0.stores.tell_of(&contents);
        let set = contents.set()?;
        let in_force = self.in_force();
        // What is kept of before is no definition that is there.
        let read = tokio::task::spawn_blocking(move || {
            let usable = set.usable(&in_force, OnBadDefinition::ServeRest);
            usable.set.documents()
        });
        Ok(read.await.map_err(Error::Interrupted)?)
    }

    /// Go live with the definitions in this text besides those that are there; one of the same kind and
    /// name is replaced. Files and stores are written when the table is made, and `name` stands for the text
    /// in mistakes.
    ///
    /// # Errors
    ///
    /// When the text is wrong, or a table of it cannot be made, or it cannot be written. Nothing is changed
    /// then.
    pub async fn apply(&self, text: &str, name: &str, how: &Application) -> Result<Applied, ChangeError> {
        let (text, name, expected) = (text.to_owned(), name.to_owned(), how.expected);
        self.change(how, Origin::Applied, move |set, stores| {
            set.apply(&text, &name, expected, &|id| stores.destination(id))
        })
        .await
    }

    /// Remove a definition.
    ///
    /// # Errors
    ///
    /// When it is not there, or the rest cannot be made, or it cannot be written. Nothing is changed then.
    pub async fn delete(&self, id: &DefinitionId, how: &Application) -> Result<Applied, ChangeError> {
        let id = id.clone();
        self.change(how, Origin::Deleted, move |set, _| set.delete(&id))
            .await
    }

    /// Make a stage's candidate its plugin.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be written. Nothing is changed then.
    pub async fn promote(&self, stage: &StageId, how: &Application) -> Result<Applied, ChangeError> {
        let origin = Origin::Promoted {
            stage: stage.to_string(),
        };
        let stage = stage.clone();
        self.change(how, origin, move |set, _| set.promote(&stage)).await
    }

    async fn change(
        &self,
        how: &Application,
        origin: Origin,
        change: impl Fn(&DefinitionSet, &Stores) -> Result<Change, admittance_definitions::ChangeError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Applied, ChangeError> {
        let _building = self.building();
        let change = Arc::new(change);
        loop {
            if let Some(applied) = self.try_change(how, origin.clone(), change.clone()).await? {
                return Ok(applied);
            }
        }
    }

    /// None when something else went live while the table was made, and nothing was written.
    async fn try_change(
        &self,
        how: &Application,
        origin: Origin,
        change: Arc<
            impl Fn(&DefinitionSet, &Stores) -> Result<Change, admittance_definitions::ChangeError>
            + Send
            + Sync
            + 'static,
        >,
    ) -> Result<Option<Applied>, ChangeError> {
        let stores = self.0.stores.clone();
        let (source, base) = {
            let state = self.0.state.lock().await;
            if !how.dry_run && stores.are_files() && state.history.directory().is_none() {
                return Err(ChangeError::NoHistory);
            }
            (state.source.clone(), self.table().revision())
        };
        let contents = stores.read().await?;
        stores.tell_of(&contents);
        let set = source.usable(contents.set()?).await?.set;
        let change = {
            let stores = stores.clone();
            tokio::task::spawn_blocking(move || change(&set, &stores))
                .await
                .map_err(Error::Interrupted)??
        };
        let store = if how.dry_run {
            None
        } else {
            stores.of_changes(&change.files)?
        };
        let is_announced = store.is_some_and(|store| !store.is_transactional());
        if is_announced && self.0.live.load().history.directory.is_none() {
            return Err(ChangeError::NoHistory);
        }
        let usable = source.usable(change.set.clone()).await?;
        let written: Vec<PathBuf> = change.files.iter().map(|file| file.path.clone()).collect();
        let own: Vec<_> = usable
            .bad
            .iter()
            .filter(|bad| written.contains(&bad.path))
            .cloned()
            .collect();
        if !own.is_empty() {
            return Err(Error::BadDefinitions(own).into());
        }
        let (served, files) = (usable.served(), written.clone());
        let (named, warnings) = tokio::task::spawn_blocking(move || modules_and_warnings(&served, &files))
            .await
            .map_err(Error::Interrupted)?;
        // What others name is there or is not: this change waits for no server that it does not need.
        let modules = Modules::Current(Servers::Of(Arc::new(named)));
        let made = source.make(usable, modules, Purpose::Change(&written)).await?;
        let place = self.place(&source).await?;
        let mut state = self.0.state.lock().await;
        if !how.dry_run && self.table().revision() != base {
            return Ok(None);
        }
        let number = state.history.next_number();
        let entry = Arc::new(entry_of(&made, number, origin, how.by.clone()));
        let is_new = !state.history.says(&entry);
        let applied = Applied {
            revision: if is_new {
                entry.revision().number
            } else {
                self.0.live.load().revision.number
            },
            dry_run: how.dry_run,
            definitions: effects(&change),
            comparison: compare(state.history.last().map(|last| &**last), &entry),
            warnings,
        };
        if how.dry_run {
            return Ok(Some(applied));
        }
        // What is asked for may be live already while the files say something else: what is wrong, or what
        // somebody has just written.
        if let Some(store) = store {
            if is_announced {
                state.history.announce(&entry, &change.files).await?;
            }
            let written = store.commit(&change.files).await;
            if is_announced && (written.is_err() || !is_new) {
                state.history.withdraw(&entry);
            }
            written?;
        }
        let problem = self.problem_of(&made);
        if is_new {
            self.go_live(&mut state, made, entry.clone(), place, problem)
                .await;
        } else {
            self.settled(&state.history, problem);
        }
        self.adopt_written(&mut state, &entry).await;
        Ok(Some(applied))
    }

    /// Know what was written as what is live, so that a rollback that follows at once is one to something
    /// else than it.
    async fn adopt_written(&self, state: &mut TableState, entry: &Entry) {
        let Ok(contents) = self.0.stores.read().await else {
            return;
        };
        let Ok(whole) = state.source.usable(contents.whole(&self.0.stores.known())).await else {
            return;
        };
        if revision_files(&whole.served()) == entry.detail.files {
            // Should it break off, it is done when the change is noticed.
            let _ = state.source.act_upon(contents).await;
        } else {
            self.0.stores.tell_of(&contents);
        }
    }

    /// The revisions that are kept, the newest first.
    pub fn history(&self) -> Vec<Revision> {
        let live = self.0.live.load();
        let newest_first = live.revisions.iter().rev();
        newest_first.map(|entry| entry.revision().clone()).collect()
    }

    /// A revision with the definitions that it was made of.
    ///
    /// # Errors
    ///
    /// When it is not kept.
    pub fn revision(&self, number: u64) -> Result<RevisionDetail, HistoryError> {
        let live = self.0.live.load();
        Ok(history::find(&live.revisions, number)?.detail.clone())
    }

    /// What is different between two revisions.
    ///
    /// # Errors
    ///
    /// When one of them is not kept.
    pub fn compare(&self, from: u64, to: u64) -> Result<Comparison, HistoryError> {
        let live = self.0.live.load();
        let find = |number| history::find(&live.revisions, number);
        Ok(find(from)?.detail.compare(&find(to)?.detail))
    }

    /// Go live with an earlier revision, its definitions and its very modules. No file is touched: it
    /// stays until the definitions or their modules change again. It is a new revision.
    ///
    /// # Errors
    ///
    /// When the revision is not kept, or one of its modules, or the new one cannot be written down.
    pub async fn rollback(&self, to: u64, by: Option<String>) -> Result<Revision, ChangeError> {
        let _building = self.building();
        let (source, target) = {
            let state = self.0.state.lock().await;
            let target = history::find(&state.history.entries(), to)?.clone();
            (state.source.clone(), target)
        };
        let made = as_it_was(&source, &target).await?;
        let place = self.place(&source).await?;
        let mut state = self.0.state.lock().await;
        let number = state.history.next_number();
        let mut entry = entry_of(&made, number, Origin::RolledBack { to }, by);
        entry.detail.revision.at = Moment::now();
        entry.instead_of = Some(state.source.said());
        let entry = Arc::new(entry);
        // Written down first: a rollback that a restart undoes is none.
        state.history.push(entry.clone()).await?;
        let bad = made.bad.clone();
        self.swap(&state.source, made, &entry, place);
        let problem = self.problem_with(&bad);
        self.is_live(&entry, &mut state, problem);
        self.0.rollbacks.send_modify(|count| *count += 1);
        Ok(entry.revision().clone())
    }
}

fn compare(last: Option<&Entry>, entry: &Entry) -> Comparison {
    match last {
        Some(last) => history::compare(&last.detail, &entry.detail),
        None => history::compare(&entry.detail, &entry.detail),
    }
}

fn effects(change: &Change) -> Vec<AppliedDefinition> {
    let effect = |effect: &Effect| match effect {
        Effect::Created => AppliedEffect::Created,
        Effect::Changed => AppliedEffect::Changed,
        Effect::Unchanged => AppliedEffect::Unchanged,
        Effect::Deleted => AppliedEffect::Deleted,
    };
    let applied = |(id, becomes): &(DefinitionId, Effect)| AppliedDefinition {
        id: id.to_string(),
        effect: effect(becomes),
    };
    change.effects.iter().map(applied).collect()
}
