//! Definitions that cannot be used, and what is served in their place.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use admittance_admission::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DefinitionSet, chains::Chains};
use crate::{
    ChainDefinition, DefinitionFile, DefinitionId, StoreKind,
    document::{Mistake, Mistakes},
};

/// The handling of an invalid entry of a store: a text that is not a definition, a mistake in it, a second definition
/// of one name or for one operation and kind. The other definitions are served in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnBadDefinition {
    /// The last valid version stays in force, if there is one.
    #[default]
    KeepLast,
    /// The entry is left out, so requests that it would have checked pass unchecked.
    ServeRest,
}

words!(OnBadDefinition, "choice": KeepLast = "keep-last", ServeRest = "serve-rest");

/// An entry or a file of definitions that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadDefinition {
    /// The path of the file, or the location of the entry.
    pub path: PathBuf,
    /// Kind and name; `None` if neither its text nor its place tells.
    pub id: Option<DefinitionId>,
    /// Every reason, a sentence each.
    pub reasons: Vec<String>,
    /// The definition that is served in its place.
    pub served: Served,
    /// Whether a retry may succeed without a change: its text is right, and a module that it names cannot be fetched now.
    pub is_transient: bool,
}

impl BadDefinition {
    /// A definition in this place, without reasons yet.
    pub fn new(path: impl Into<PathBuf>, served: Served, is_transient: bool) -> Self {
        Self {
            path: path.into(),
            id: None,
            reasons: Vec::new(),
            served,
            is_transient,
        }
    }
}

/// The definition that is served in place of one that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Served {
    /// Nothing: what it would have checked passes unchecked.
    Nothing,
    /// The last valid version.
    LastVersion,
    /// The definition, with the modules that were used last.
    LastModules,
    /// All of it; the stages whose modules are missing fail, and their failure policy decides.
    FailingStages,
}

/// Its name, its location, why it cannot be used and what is served in its place, in one line.
impl fmt::Display for BadDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{id} in {}", self.path.display())?,
            None => write!(f, "{}", self.path.display())?,
        }
        let served = match self.served {
            Served::Nothing => "cannot be used and is not in force",
            Served::LastVersion => "cannot be used; its previous version stays in force",
            Served::LastModules => "is in force with its previous modules",
            Served::FailingStages => "is in force, and the stages whose modules are missing fail",
        };
        write!(f, " {served}: {}", self.reasons.join("; "))
    }
}

/// A set without the definitions that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// The valid definitions.
    pub set: DefinitionSet,
    /// The invalid ones, sorted by path.
    pub bad: Vec<BadDefinition>,
    /// The versions that are served in their place.
    kept: Vec<DefinitionFile>,
    /// The files of the set that are not served as they are.
    held: Vec<PathBuf>,
}

impl DefinitionSet {
    /// Sets aside the entries that cannot be used. Mistakes in files stay: [`chains`](Self::chains) reports them.
    ///
    /// `in_force` is what the live table was made of. Of two definitions that cannot both be there the one that is
    /// in force stays, or else the one with the first path, so that all who read the store agree.
    #[must_use]
    pub fn usable(&self, in_force: &[DefinitionFile], on_bad: OnBadDefinition) -> Usable {
        self.usable_if(in_force, on_bad, &|_| Vec::new())
    }

    /// Selects the usable entries as `usable` does; an entry also cannot be used if its chain has any of these
    /// mistakes.
    #[must_use]
    pub fn usable_if(
        &self,
        in_force: &[DefinitionFile],
        on_bad: OnBadDefinition,
        mistakes_of: &dyn Fn(&ChainDefinition) -> Vec<Mistake>,
    ) -> Usable {
        let (files, mut entries): (Vec<_>, Vec<_>) = self.all().cloned().partition(is_file);
        let mut chains = Chains::default();
        // Entries must not conflict with files.
        if !entries.is_empty() {
            for file in &files {
                let read = self.reads.file(file);
                chains.add_all(read.definitions.iter().flatten(), &mut Mistakes::new());
            }
        }
        entries.sort_by_cached_key(|entry| (standing(entry, in_force), entry.path.clone()));
        let mut sorting = Sorting {
            set: self,
            chains,
            files,
            unusable: Vec::new(),
            bad: Vec::new(),
            kept: Vec::new(),
        };
        let has_entries = !entries.is_empty();
        for entry in entries {
            match sorting.take(&entry, mistakes_of) {
                Ok(()) => sorting.files.push(entry),
                Err(mistakes) => sorting.reject(entry, texts(&mistakes)),
            }
        }
        sorting.bad.sort_by(|a, b| a.path.cmp(&b.path));
        if on_bad == OnBadDefinition::KeepLast {
            let mut all_bad = std::mem::take(&mut sorting.bad);
            for bad in &mut all_bad {
                let last = in_force.iter().find(|file| file.path == bad.path);
                if let Some(last) = last.filter(|last| sorting.take(last, mistakes_of).is_ok()) {
                    sorting.kept.push(last.clone());
                    bad.served = Served::LastVersion;
                }
            }
            sorting.bad = all_bad;
        }
        if has_entries {
            sorting.reject_unbound(in_force, on_bad, mistakes_of);
        }
        let Sorting {
            files,
            unusable,
            bad,
            kept,
            ..
        } = sorting;
        Usable {
            set: self.with_contents(files).with_unusable(unusable),
            bad,
            kept,
            held: Vec::new(),
        }
    }
}

/// The definitions, as far as they are sorted into those that can be used and those that cannot.
struct Sorting<'a> {
    set: &'a DefinitionSet,
    /// The chains of the files and of the entries that are kept.
    chains: Chains,
    files: Vec<DefinitionFile>,
    unusable: Vec<DefinitionFile>,
    bad: Vec<BadDefinition>,
    kept: Vec<DefinitionFile>,
}

impl Sorting<'_> {
    fn reject(&mut self, entry: DefinitionFile, reasons: Vec<String>) {
        self.bad.push(BadDefinition {
            id: id_of(self.set, &entry),
            reasons,
            ..BadDefinition::new(&entry.path, Served::Nothing, false)
        });
        self.unusable.push(entry);
    }

    /// Rejects the entries that need another definition, such as a binding its policy, which is not there or does not fit.
    /// Only now all others are known, since either may come first.
    fn reject_unbound(
        &mut self,
        in_force: &[DefinitionFile],
        on_bad: OnBadDefinition,
        mistakes_of: &dyn Fn(&ChainDefinition) -> Vec<Mistake>,
    ) {
        loop {
            let mut is_done = true;
            for (path, reasons) in by_file(&self.unbound()) {
                let at = |files: &[DefinitionFile]| {
                    files.iter().position(|file| file.path == path && !is_file(file))
                };
                let was_kept = at(&self.kept);
                if let Some(index) = was_kept {
                    self.kept.remove(index);
                } else if let Some(index) = at(&self.files) {
                    let entry = self.files.remove(index);
                    self.reject(entry, reasons);
                } else {
                    // A file, whose mistakes stay.
                    continue;
                }
                is_done = false;
                self.chains.forget(&path.display().to_string());
                let last = in_force.iter().find(|file| file.path == path);
                let last = last.filter(|_| on_bad == OnBadDefinition::KeepLast && was_kept.is_none());
                let last = last.filter(|last| self.take(last, mistakes_of).is_ok());
                self.kept.extend(last.cloned());
                if let Some(bad) = self.bad.iter_mut().find(|bad| bad.path == path) {
                    bad.served = last.map_or(Served::Nothing, |_| Served::LastVersion);
                }
            }
            if is_done {
                break;
            }
        }
        self.bad.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Returns the mistakes between definitions: a definition that needs a missing one, or does not fit another.
    fn unbound(&self) -> Mistakes {
        let mut mistakes = Mistakes::new();
        self.chains.definitions(&mut mistakes);
        mistakes
    }

    /// Adds a definition; has no effect if there is a mistake in it.
    fn take(
        &mut self,
        entry: &DefinitionFile,
        mistakes_of: &dyn Fn(&ChainDefinition) -> Vec<Mistake>,
    ) -> Result<(), Mistakes> {
        let read = self.set.reads.file(entry);
        let mut mistakes = read.mistakes.clone();
        self.chains
            .add_all(read.definitions.iter().flatten(), &mut mistakes);
        let file = entry.path.display().to_string();
        mistakes.extend(self.chains.of_file(&file).flat_map(mistakes_of));
        if !mistakes.is_empty() {
            self.chains.forget(&file);
        }
        mistakes.into_result(())
    }
}

impl Usable {
    /// Drops what was read of the definitions.
    #[must_use]
    pub fn afresh(self) -> Self {
        Self {
            set: self.set.afresh(),
            ..self
        }
    }

    /// The definitions to serve.
    pub fn served(&self) -> DefinitionSet {
        let is_served = |file: &&DefinitionFile| !self.held.contains(&file.path);
        let files = self.set.files().iter().filter(is_served).chain(&self.kept);
        self.set.with_contents(files.cloned().collect())
    }

    /// Whether this is a file, and no entry.
    pub fn is_file(&self, path: &Path) -> bool {
        let mut files = self.set.files().iter();
        files.any(|file| file.path == path && file.kind == StoreKind::Files)
    }

    /// Whether the definition of this path can be used as far as its text goes, and is not in force as it is.
    pub fn is_new(&self, path: &Path, in_force: &[DefinitionFile]) -> bool {
        let mut files = self.set.files().iter();
        !self.held.iter().any(|held| held == path)
            && files.any(|file| file.path == path && standing(file, in_force) != 0)
    }

    /// Also sets aside a definition that [is new](Self::is_new), because something other than its text prevents its
    /// use. Its previous version, if any, is served in its place; the previous version of an entry only if `on_bad`
    /// keeps it.
    pub fn set_aside(
        &mut self,
        path: &Path,
        reasons: Vec<String>,
        is_transient: bool,
        (in_force, on_bad): (&[DefinitionFile], OnBadDefinition),
    ) {
        let is_it = |file: &DefinitionFile| file.path == path;
        let is_file = self.is_file(path);
        let mut id = None;
        if is_file {
            self.held.push(path.to_owned());
        } else {
            let (entry, files): (Vec<_>, Vec<_>) = self.set.files().iter().cloned().partition(is_it);
            id = entry.first().and_then(|entry| id_of(&self.set, entry));
            let unusable = [self.set.unusable(), &entry].concat();
            self.set = self.set.with_contents(files).with_unusable(unusable);
        }
        let keeps = is_file || on_bad == OnBadDefinition::KeepLast;
        let last = in_force.iter().find(|file| is_it(file)).filter(|_| keeps);
        self.kept.extend(last.cloned());
        let fits = last.is_some() && self.served().chains().is_ok();
        if !fits {
            self.kept.retain(|kept| kept.path != path);
        }
        self.bad.push(BadDefinition {
            path: path.to_owned(),
            id,
            reasons,
            served: if fits {
                Served::LastVersion
            } else {
                Served::Nothing
            },
            is_transient,
        });
        // What needs this definition, such as a constraint its template.
        let unbound = self.served().definitions().err().unwrap_or_default();
        let unbound = by_file(&unbound)
            .into_iter()
            .find(|(path, _)| self.is_served_entry(path));
        if let Some((path, reasons)) = unbound {
            self.set_aside(&path, reasons, is_transient, (in_force, on_bad));
        }
    }

    fn is_served_entry(&self, path: &Path) -> bool {
        let mut served = self.set.files().iter().chain(&self.kept);
        served.any(|file| file.path == path && !is_file(file))
    }
}

/// The precedence of a definition that conflicts with another; less wins.
fn standing(file: &DefinitionFile, in_force: &[DefinitionFile]) -> u8 {
    match in_force.iter().find(|other| other.path == file.path) {
        Some(other) if other.normalized() == file.normalized() => 0,
        Some(_) => 1,
        None => 2,
    }
}

fn is_file(file: &DefinitionFile) -> bool {
    file.kind == StoreKind::Files
}

fn texts(mistakes: &Mistakes) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

/// The mistakes of each file, as texts.
fn by_file(mistakes: &Mistakes) -> BTreeMap<PathBuf, Vec<String>> {
    let mut files: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for mistake in mistakes {
        let of_file = files.entry(PathBuf::from(&mistake.location.file)).or_default();
        of_file.push(mistake.to_string());
    }
    files
}

/// The name of the definition in this entry.
pub(crate) fn id_of(set: &DefinitionSet, entry: &DefinitionFile) -> Option<DefinitionId> {
    let read = set.reads.file(entry);
    let mut definitions = set.reads.definitions([&*read]).into_iter();
    let id = definitions.next().map(|definition| definition.id);
    id.or_else(|| entry.place.clone())
}
