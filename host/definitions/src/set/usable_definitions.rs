//! Finds definitions that cannot be used, and decides what is served instead of them.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use admittance_admission::keywords;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DefinitionSet, chains::Chains};
use crate::{
    ChainDefinition, DefinitionFile, DefinitionId, StoreKind,
    document::{Mistake, Mistakes},
};

/// The treatment of an invalid entry of a store. An entry is invalid if it has a mistake, or if another definition
/// has the same name or, in BCS, the same operation and kind. All other definitions stay live in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnBadDefinition {
    /// The last valid version of an invalid entry stays live. If there is no such version, the entry is left out.
    #[default]
    KeepLast,
    /// An invalid entry is left out, even if an earlier version was valid. Requests that it would check pass unchecked.
    ServeRest,
}

keywords!(OnBadDefinition, "choice": KeepLast = "keep-last", ServeRest = "serve-rest");

/// A file or entry with a definition that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadDefinition {
    /// The path of the unusable file, or the location of the unusable entry.
    pub path: PathBuf,
    /// The kind and name of the unusable definition; `None` if neither the text nor the path tells them.
    pub id: Option<DefinitionId>,
    /// The reasons why the definition cannot be used, one sentence each.
    pub reasons: Vec<String>,
    /// The version that is served instead of the unusable definition.
    pub served: Served,
    /// Whether the definition is valid, and can be used once a missing module can be fetched.
    pub is_transient: bool,
}

impl BadDefinition {
    /// Describes an unusable definition at this path. The caller adds its ID and the reasons.
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

/// The version that is served instead of an unusable definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Served {
    /// No version is served. Requests that the definition would check pass unchecked.
    Nothing,
    /// The last valid version of the definition is served.
    LastVersion,
    /// The new version of the definition is served, but with the plugin modules of the previous version.
    LastModules,
    /// The new version is served. Calls of a stage whose module is missing fail, and its failure policy decides.
    FailingStages,
}

/// Writes the report in one line: the name and path of the definition, what is served instead, and the reasons.
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

/// A set of definitions that was divided into usable and unusable definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// The valid definitions.
    pub set: DefinitionSet,
    /// The definitions that cannot be used, sorted by path.
    pub bad_definitions: Vec<BadDefinition>,
    /// The texts of the last valid versions that are served instead of unusable definitions.
    previous_versions: Vec<DefinitionFile>,
    withheld_paths: Vec<PathBuf>,
}

impl DefinitionSet {
    /// Divides the set into usable and unusable definitions. An entry is unusable, for example, if it has a mistake.
    /// Mistakes in files are not considered here: [`chains`](Self::chains) reports them.
    ///
    /// `in_force` are the texts that are live now. If two definitions conflict, the one that is live now stays. If
    /// neither is live, the one whose path sorts first stays, so that all replicas make the same choice.
    #[must_use]
    pub fn usable_definitions(&self, in_force: &[DefinitionFile], on_bad: OnBadDefinition) -> Usable {
        self.usable_definitions_with_check(in_force, on_bad, &|_| Vec::new())
    }

    /// Divides the set like [`usable_definitions`](Self::usable_definitions), but also calls the function `mistakes_of`
    /// for the chain of each entry. If the function returns a mistake, the entry is unusable.
    #[must_use]
    pub fn usable_definitions_with_check(
        &self,
        in_force: &[DefinitionFile],
        on_bad: OnBadDefinition,
        mistakes_of: &dyn Fn(&ChainDefinition) -> Vec<Mistake>,
    ) -> Usable {
        let (files, mut entries): (Vec<_>, Vec<_>) = self.all_files().cloned().partition(is_file);
        let mut chains = Chains::default();
        // The definitions in files are added before the entries. If a file and an entry conflict, the conflict is found
        // when the entry is added, so the entry is set aside, not the file.
        if !entries.is_empty() {
            for file in &files {
                let read_file = self.reads.file(file);
                chains.add_all(read_file.definitions.iter().flatten(), &mut Mistakes::new());
            }
        }
        entries.sort_by_cached_key(|entry| (conflict_rank(entry, in_force), entry.path.clone()));
        let mut classifier = Classifier {
            set: self,
            chains,
            files,
            unusable_files: Vec::new(),
            bad_definitions: Vec::new(),
            previous_versions: Vec::new(),
        };
        let has_entries = !entries.is_empty();
        for entry in entries {
            match classifier.accept_entry(&entry, mistakes_of) {
                Ok(()) => classifier.files.push(entry),
                Err(mistakes) => classifier.reject(entry, mistake_texts(&mistakes)),
            }
        }
        classifier.bad_definitions.sort_by(|a, b| a.path.cmp(&b.path));
        if on_bad == OnBadDefinition::KeepLast {
            let mut all_bad = std::mem::take(&mut classifier.bad_definitions);
            for bad in &mut all_bad {
                let last = in_force.iter().find(|file| file.path == bad.path);
                if let Some(last) = last.filter(|last| classifier.accept_entry(last, mistakes_of).is_ok()) {
                    classifier.previous_versions.push(last.clone());
                    bad.served = Served::LastVersion;
                }
            }
            classifier.bad_definitions = all_bad;
        }
        if has_entries {
            classifier.reject_unbound(in_force, on_bad, mistakes_of);
        }
        let Classifier {
            files,
            unusable_files: unusable,
            bad_definitions: bad,
            previous_versions,
            ..
        } = classifier;
        Usable {
            set: self.with_contents(files).with_unusable_files(unusable),
            bad_definitions: bad,
            previous_versions,
            withheld_paths: Vec::new(),
        }
    }
}

/// Divides the definitions into usable and unusable ones. They are added one by one.
struct Classifier<'a> {
    set: &'a DefinitionSet,
    /// The definitions of all files, and of the entries that were found usable so far.
    chains: Chains,
    files: Vec<DefinitionFile>,
    unusable_files: Vec<DefinitionFile>,
    bad_definitions: Vec<BadDefinition>,
    previous_versions: Vec<DefinitionFile>,
}

impl Classifier<'_> {
    fn reject(&mut self, entry: DefinitionFile, reasons: Vec<String>) {
        self.bad_definitions.push(BadDefinition {
            id: id_of(self.set, &entry),
            reasons,
            ..BadDefinition::new(&entry.path, Served::Nothing, false)
        });
        self.unusable_files.push(entry);
    }

    /// Rejects every entry that depends on a definition which is missing or contradicts the entry. For example, a
    /// binding is rejected if its policy does not exist.
    fn reject_unbound(
        &mut self,
        in_force: &[DefinitionFile],
        on_bad: OnBadDefinition,
        mistakes_of: &dyn Fn(&ChainDefinition) -> Vec<Mistake>,
    ) {
        loop {
            let mut is_done = true;
            for (path, reasons) in mistake_texts_by_file(&self.binding_mistakes()) {
                let position_in =
                    |files: &[DefinitionFile]| files.iter().position(|file| file.path == path && !is_file(file));
                let previous_index = position_in(&self.previous_versions);
                if let Some(index) = previous_index {
                    self.previous_versions.remove(index);
                } else if let Some(index) = position_in(&self.files) {
                    let entry = self.files.remove(index);
                    self.reject(entry, reasons);
                } else {
                    // The definition is in a file. Only entries are rejected here; `DefinitionSet::chains` reports the
                    // mistakes in files.
                    continue;
                }
                is_done = false;
                self.chains.forget_file(&path.display().to_string());
                let keeps_last = on_bad == OnBadDefinition::KeepLast && previous_index.is_none();
                let file_in_force = in_force.iter().find(|file| keeps_last && file.path == path);
                let last = file_in_force.filter(|last| self.accept_entry(last, mistakes_of).is_ok());
                self.previous_versions.extend(last.cloned());
                if let Some(bad) = self
                    .bad_definitions
                    .iter_mut()
                    .find(|bad_definition| bad_definition.path == path)
                {
                    bad.served = last.map_or(Served::Nothing, |_| Served::LastVersion);
                }
            }
            if is_done {
                break;
            }
        }
        self.bad_definitions.sort_by(|a, b| a.path.cmp(&b.path));
    }

    fn binding_mistakes(&self) -> Mistakes {
        let mut mistakes = Mistakes::new();
        self.chains.definitions(&mut mistakes);
        mistakes
    }

    fn accept_entry(
        &mut self,
        entry: &DefinitionFile,
        mistakes_of: &dyn Fn(&ChainDefinition) -> Vec<Mistake>,
    ) -> Result<(), Mistakes> {
        let read_file = self.set.reads.file(entry);
        let mut mistakes = read_file.mistakes.clone();
        self.chains
            .add_all(read_file.definitions.iter().flatten(), &mut mistakes);
        let file = entry.path.display().to_string();
        mistakes.extend(self.chains.chains_of_file(&file).flat_map(mistakes_of));
        if !mistakes.is_empty() {
            self.chains.forget_file(&file);
        }
        mistakes.into_result(())
    }
}

impl Usable {
    /// Returns the same definitions with an [empty cache](DefinitionSet::uncached), so that the texts are parsed again.
    #[must_use]
    pub fn uncached(self) -> Self {
        Self {
            set: self.set.uncached(),
            ..self
        }
    }

    /// Returns the set to serve. It consists of the usable definitions, and of the last valid versions that are served
    /// instead of unusable definitions.
    pub fn served_set(&self) -> DefinitionSet {
        let is_served = |file: &&DefinitionFile| !self.withheld_paths.contains(&file.path);
        let files = self.set.files().iter().filter(is_served).chain(&self.previous_versions);
        self.set.with_contents(files.cloned().collect())
    }

    /// Returns whether the set has a file with this path. For the path of an entry, the result is false.
    pub fn is_file(&self, path: &Path) -> bool {
        let mut files = self.set.files().iter();
        files.any(|file| file.path == path && file.kind == StoreKind::Files)
    }

    /// Returns whether the text at this path can be used, and differs from the text that is in force.
    pub fn is_new(&self, path: &Path, in_force: &[DefinitionFile]) -> bool {
        let mut files = self.set.files().iter();
        !self.withheld_paths.iter().any(|withheld| withheld == path)
            && files.any(|file| file.path == path && conflict_rank(file, in_force) != 0)
    }

    /// Sets aside a definition that is valid, but cannot be used, for example because its module does not compile. The
    /// definition must be [new](Self::is_new). If an older version of it is live, that version is served instead. For
    /// an entry of a store, this is only done if `on_bad` is [`KeepLast`](OnBadDefinition::KeepLast).
    pub fn set_aside(
        &mut self,
        path: &Path,
        reasons: Vec<String>,
        is_transient: bool,
        (in_force, on_bad): (&[DefinitionFile], OnBadDefinition),
    ) {
        let has_path = |file: &DefinitionFile| file.path == path;
        let is_file = self.is_file(path);
        let mut id = None;
        if is_file {
            self.withheld_paths.push(path.to_owned());
        } else {
            let (entry, files): (Vec<_>, Vec<_>) = self.set.files().iter().cloned().partition(has_path);
            id = entry.first().and_then(|entry| id_of(&self.set, entry));
            let unusable = [self.set.unusable_files(), &entry].concat();
            self.set = self.set.with_contents(files).with_unusable_files(unusable);
        }
        let keeps = is_file || on_bad == OnBadDefinition::KeepLast;
        let last = in_force.iter().find(|file| has_path(file)).filter(|_| keeps);
        self.previous_versions.extend(last.cloned());
        let fits = last.is_some() && self.served_set().chains().is_ok();
        if !fits {
            self.previous_versions.retain(|previous| previous.path != path);
        }
        self.bad_definitions.push(BadDefinition {
            path: path.to_owned(),
            id,
            reasons,
            served: if fits { Served::LastVersion } else { Served::Nothing },
            is_transient,
        });
        // Another entry may depend on the entry that was just set aside. For example, a constraint cannot be used
        // without its template. Such an entry is set aside too.
        let unbound_entry = mistake_texts_by_file(&self.served_set().definitions().err().unwrap_or_default())
            .into_iter()
            .find(|(path, _)| self.is_served_entry(path));
        if let Some((path, reasons)) = unbound_entry {
            self.set_aside(&path, reasons, is_transient, (in_force, on_bad));
        }
    }

    fn is_served_entry(&self, path: &Path) -> bool {
        let mut served = self.set.files().iter().chain(&self.previous_versions);
        served.any(|file| file.path == path && !is_file(file))
    }
}

/// Returns the rank of a definition: 0 if exactly this text is live, 1 if another version of it is live, and 2 if it is
/// new. Of two conflicting definitions, the one with the lower rank is kept.
fn conflict_rank(file: &DefinitionFile, in_force: &[DefinitionFile]) -> u8 {
    match in_force.iter().find(|other| other.path == file.path) {
        Some(other) if other.normalized() == file.normalized() => 0,
        Some(_) => 1,
        None => 2,
    }
}

fn is_file(file: &DefinitionFile) -> bool {
    file.kind == StoreKind::Files
}

fn mistake_texts(mistakes: &Mistakes) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

fn mistake_texts_by_file(mistakes: &Mistakes) -> BTreeMap<PathBuf, Vec<String>> {
    let mut files: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for mistake in mistakes {
        let file_mistakes = files.entry(PathBuf::from(&mistake.location.file)).or_default();
        file_mistakes.push(mistake.to_string());
    }
    files
}

pub(crate) fn id_of(set: &DefinitionSet, entry: &DefinitionFile) -> Option<DefinitionId> {
    let read_file = set.reads.file(entry);
    let mut definitions = set.reads.definitions([&*read_file]).into_iter();
    let id = definitions.next().map(|definition| definition.id);
    id.or_else(|| entry.expected_id.clone())
}
