//! Plans changes that users request: which files to write, and which definitions are served afterwards.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_catalog::ModuleReference;
use admittance_definitions::{
    AppliedEffect, Change, DefinitionFile, DefinitionId, DefinitionSet, FileChange, Mistake, Mistakes,
    PlanError as InvalidChange, StoreKind, Usable,
};

use crate::{
    ChangeError, Error,
    changes::stores::Stores,
    live::source::{TableSource, modules_and_warnings, run_blocking},
};

pub(super) type Edit = dyn Fn(&DefinitionSet, &Stores) -> Result<Change, InvalidChange> + Send + Sync;

pub(super) struct ChangePlan {
    pub(super) version: u64,
    pub(super) change: Change,
    pub(super) usable: Usable,
    pub(super) paths: Vec<PathBuf>,
    pub(super) modules: HashSet<ModuleReference>,
    pub(super) warnings: Vec<String>,
    /// The mistakes in definition files that this change does not touch. Such files cannot be used, but do not prevent
    /// the change. `None` if all files can be used.
    pub(super) pending: Option<Arc<Error>>,
}

pub(super) async fn plan_change(source: &TableSource, edit: Arc<Edit>) -> Result<ChangePlan, ChangeError> {
    let (change, mistakes) = apply_edit(source, edit).await?;
    let usable = source.find_usable(change.set.clone()).await?;
    let paths: Vec<PathBuf> = change.files.iter().map(|file| file.path.clone()).collect();
    let is_applied = |id: &DefinitionId| change.effects.iter().any(|(applied, _)| applied == id);
    let mut bad_definitions = usable.bad_definitions.clone();
    bad_definitions.retain(|bad| paths.contains(&bad.path) || bad.id.as_ref().is_some_and(is_applied));
    if !bad_definitions.is_empty() {
        return Err(Error::BadDefinitions(bad_definitions).into());
    }
    let (served, changed_paths) = (usable.served_set(), paths.clone());
    let reach = source.assembler.reach.clone();
    let (modules, mut warnings) = run_blocking(move || modules_and_warnings(&served, &changed_paths, &reach)).await?;
    warnings.extend(change.losses.iter().cloned());
    if let Some(mistakes) = &mistakes {
        let mistakes = mistakes.to_string().replace('\n', "; ");
        warnings.push(format!(
            "the other files keep what is in force until this is corrected: {mistakes}"
        ));
    }
    Ok(ChangePlan {
        version: source.version,
        change,
        usable,
        paths,
        modules,
        warnings,
        pending: mistakes.map(|mistakes| Arc::new(Error::Definitions(mistakes))),
    })
}

/// Applies the edit to the current definitions. If the definition files contain mistakes, the edit is applied to the
/// versions of the files that are live instead. The mistakes are then returned together with the change.
async fn apply_edit(source: &TableSource, edit: Arc<Edit>) -> Result<(Change, Option<Mistakes>), ChangeError> {
    let contents = source.stores.peek().await?;
    let known_set = source.stores.set_after_reading(&contents);
    let reading_mistakes = match contents.into_set() {
        Ok(_) => None,
        Err(Error::Definitions(mistakes)) => Some(mistakes),
        Err(error) => return Err(error.into()),
    };
    let set = source.find_usable(known_set).await?.set;
    let (stores, in_force) = (source.stores.clone(), source.live_files.clone());
    let make_change = move || -> Result<_, InvalidChange> {
        let mistakes = match reading_mistakes.clone() {
            Some(unread) => unread,
            None => match edit(&set, &stores) {
                Ok(change) => return Ok((change, None)),
                Err(error) => set.definitions().err().ok_or(error)?,
            },
        };
        let is_file = |file: &&DefinitionFile| file.kind == StoreKind::Files;
        let mut change = edit(&set.with_files(in_force.iter().filter(is_file).cloned()), &stores)?;
        for file in &mut change.files {
            if reading_mistakes.is_some() && !file.path.is_file() && file.before.is_some() {
                return Err(mistakes.into());
            }
            let current_file = set.all_files().find(|current| current.path == file.path);
            match current_file {
                Some(current) => file.before = Some(current.text.clone()),
                // The file existed when the definitions were read, but another program has removed it since. `None` as
                // the content before the change means that the change fails if the file exists again by then.
                None if reading_mistakes.is_none() => file.before = None,
                None => {}
            }
        }
        change.files.retain(|file| file.before != file.after);
        let stored_definitions = change.set.documents();
        for (id, effect) in &mut change.effects {
            let stored_definition = stored_definitions.iter().find(|stored| stored.id == *id);
            let file =
                stored_definition.and_then(|stored| change.set.all_files().find(|file| file.path == stored.file));
            let is_kept = |file: &&DefinitionFile| is_file(file) && *effect == AppliedEffect::Unchanged;
            let Some(file) = file.filter(is_kept) else {
                continue;
            };
            let current_file = set.all_files().find(|current| current.path == file.path);
            let is_in_file = |mistake: &Mistake| Path::new(&mistake.location.file) == file.path;
            let is_unread = reading_mistakes.iter().flatten().any(is_in_file);
            if is_unread || current_file != Some(file) {
                *effect = AppliedEffect::Changed;
                let replaced_file = current_file.or(Some(file).filter(|_| is_unread));
                let before = replaced_file.map(|replaced| replaced.text.clone());
                change
                    .files
                    .push(FileChange::new(&file.path, before, Some(file.text.clone())));
            }
        }
        Ok((change, Some(mistakes)))
    };
    Ok(run_blocking(make_change).await??)
}
