//! Definitions that cannot be used, and what is served in their place.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use admittance_admission::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{DefinitionFile, DefinitionSet, definitions};
use crate::{
    DefinitionId,
    chains::Chains,
    document::{self, Document, Mistakes},
};

/// How to treat an invalid definition in a store: a text that is not a definition, a mistake in it, a second
/// definition of one name or for one operation and kind. The other definitions are served either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnBadDefinition {
    /// The last valid version stays in force, if there is one.
    #[default]
    KeepLast,
    /// It is left out, so requests that it would have checked pass unchecked.
    ServeRest,
}

words!(OnBadDefinition, "choice": KeepLast = "keep-last", ServeRest = "serve-rest");

/// A definition in a store, or a file of definitions, that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDefinition {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called; none when neither its text nor its place tells.
    pub id: Option<DefinitionId>,
    /// Every reason, a sentence each.
    pub reasons: Vec<String>,
    /// What is served of it.
    pub served: Served,
    /// Whether a retry may succeed without a change: its text is right, and a module that it names cannot be fetched now.
    pub is_transient: bool,
}

/// What is served in place of a definition that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
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
    /// Files of the system that are not served as they are.
    held: Vec<PathBuf>,
}

impl DefinitionSet {
    /// Set aside what stores hold and cannot be used. Mistakes in files of the system stay: they are for
    /// [`chains`](Self::chains) to tell.
    ///
    /// `in_force` is what the live table was made of. Of two definitions that cannot both be there the one that is
    /// in force stays, or else the one with the first path, so that all who read the store agree.
    #[must_use]
    pub fn usable(&self, in_force: &[DefinitionFile], on_bad: OnBadDefinition) -> Usable {
        let mut chains = Chains::default();
        for file in self.of_system() {
            let documents = document::read_text_of(&file.path, &file.text, &mut Mistakes::new());
            chains.read_all(&documents, &mut Mistakes::new());
        }
        let mut order: Vec<&DefinitionFile> = self.stored().iter().chain(self.unusable()).collect();
        order.sort_by_key(|file| (standing(file, in_force), &file.path));
        let (mut stored, mut unusable, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for file in order {
            match take(file, &mut chains) {
                Ok(()) => stored.push(file.clone()),
                Err(mistakes) => {
                    unusable.push(file.clone());
                    bad.push(BadDefinition {
                        path: file.path.clone(),
                        id: id_of(file),
                        reasons: mistakes.iter().map(ToString::to_string).collect(),
                        served: Served::Nothing,
                        is_transient: false,
                    });
                }
            }
        }
        bad.sort_by(|a, b| a.path.cmp(&b.path));
        unusable.sort_by(|a, b| a.path.cmp(&b.path));
        let mut kept = Vec::new();
        if on_bad == OnBadDefinition::KeepLast {
            for bad in &mut bad {
                let last = in_force.iter().find(|file| file.path == bad.path);
                if let Some(last) = last.filter(|last| take(last, &mut chains).is_ok()) {
                    kept.push(last.clone());
                    bad.served = Served::LastVersion;
                }
            }
        }
        let set = self.with_stored(stored).with_unusable(unusable);
        Usable {
            set,
            bad,
            kept,
            held: Vec::new(),
        }
    }
}

impl Usable {
    /// The chains to serve.
    pub fn served(&self) -> DefinitionSet {
        let file = |file: &DefinitionFile| match self.held.contains(&file.path) {
            true => self.kept.iter().find(|kept| kept.path == file.path).cloned(),
            false => Some(file.clone()),
        };
        let files = self.set.of_system().iter().filter_map(file).collect();
        let kept = self.kept.iter().filter(|kept| !self.held.contains(&kept.path));
        let stored = self.set.stored().iter().chain(kept);
        DefinitionSet::of_files(files).with_stored(stored.cloned().collect())
    }

    /// Whether this is a file of the system.
    pub fn is_of_system(&self, path: &Path) -> bool {
        self.set.of_system().iter().any(|file| file.path == path)
    }

    /// Whether the definition of this path can be used as far as its text goes, and is not in force as it is.
    pub fn is_new(&self, path: &Path, in_force: &[DefinitionFile]) -> bool {
        let mut files = self.set.files().iter();
        !self.held.iter().any(|held| held == path)
            && files.any(|file| file.path == path && standing(file, in_force) != 0)
    }

    /// Set a definition that [is new](Self::is_new) aside too, because something else than its text keeps it from being
    /// used. The version of before is served in its place, if that is wanted and there was one.
    pub fn set_aside(
        &mut self,
        path: &Path,
        reasons: Vec<String>,
        is_transient: bool,
        (in_force, on_bad): (&[DefinitionFile], OnBadDefinition),
    ) {
        let is_it = |file: &DefinitionFile| file.path == path;
        let mut id = None;
        if self.is_of_system(path) {
            self.held.push(path.to_owned());
        } else {
            let (file, stored): (Vec<_>, Vec<_>) = self.set.stored().iter().cloned().partition(is_it);
            let unusable: Vec<_> = self.set.unusable().iter().chain(&file).cloned().collect();
            id = file.first().and_then(id_of);
            self.set = self.set.with_stored(stored).with_unusable(unusable);
        }
        let last = in_force
            .iter()
            .find(|file| is_it(file))
            .filter(|_| on_bad == OnBadDefinition::KeepLast);
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
    }
}

/// The precedence of a definition that conflicts with another; less wins.
fn standing(file: &DefinitionFile, in_force: &[DefinitionFile]) -> u8 {
    match in_force.iter().find(|other| other.path == file.path) {
        Some(other) if says_the_same(&other.text, &file.text) => 0,
        Some(_) => 1,
        None => 2,
    }
}

/// Whether both are the same JSON, however it is written.
fn says_the_same(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Json>(text).ok();
    one == other || read(one).is_some_and(|one| read(other) == Some(one))
}

/// Adds a definition of a store; has no effect if there is a mistake in it.
fn take(file: &DefinitionFile, chains: &mut Chains) -> Result<(), Mistakes> {
    let mut mistakes = Mistakes::new();
    let documents = read(file, &mut mistakes);
    chains.read_all(&documents, &mut mistakes);
    if !mistakes.is_empty() {
        chains.forget(&file.path.display().to_string());
    }
    mistakes.into_result(())
}

fn read(file: &DefinitionFile, mistakes: &mut Mistakes) -> Vec<Document> {
    document::read_stored(&file.path, &file.text, mistakes)
}

/// The name of the definition in this file of a store.
pub(crate) fn id_of(file: &DefinitionFile) -> Option<DefinitionId> {
    let documents = [read(file, &mut Mistakes::new())];
    let told = definitions(&documents)
        .into_iter()
        .map(|definition| definition.id)
        .next();
    told.or_else(|| file.place.clone())
}
