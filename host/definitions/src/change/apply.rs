use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use super::{
    Change, ChangeError, Destination, Effect, Expected, Extent, delete::unusable, error::near, extents,
    mean_the_same, rewrite,
};
use crate::{
    ChainDefinition, DefinitionFile, DefinitionId, DefinitionSet, Location, chains,
    document::{self, BYTE_ORDER_MARK, Document, Mistakes, Syntax},
    set::{Definition, definitions},
};

pub(crate) fn apply(
    set: &DefinitionSet,
    text: &str,
    name: &str,
    expected: Expected,
    destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
) -> Result<Change, ChangeError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut mistakes = Mistakes::new();
    let documents = vec![document::read_text(name, text, &mut mistakes)];
    let applied = documents.as_slice();
    chains::of_documents(applied.iter().flatten(), mistakes)?;
    let applied = Applied::all(text, name, applied)?;

    let mut mistakes = Mistakes::new();
    let there = set.parse(&mut mistakes);
    let definitions = definitions(&there);
    let targets = targets(&definitions, &applied)?;
    let goals = goals(targets, &applied, expected, destination, (set, &definitions))?;
    for (goal, applied) in goals.iter().zip(&applied) {
        if let Goal::Create(Destination::Store(path)) = goal
            && set
                .stored()
                .iter()
                .chain(set.unusable())
                .any(|file| file.path == *path)
        {
            let (id, path) = (applied.id.clone(), path.clone());
            return Err(ChangeError::PlaceTaken { id, path });
        }
    }

    // What is there without what is replaced, then what replaces it: so a conflict is told of the
    // applied text, with the place of the other.
    let replaced: HashSet<(usize, usize)> = goals.iter().filter_map(Goal::target).map(Target::key).collect();
    let mut whole: Vec<Document> = Vec::new();
    for (file, documents) in there.iter().enumerate() {
        let kept = documents.iter().enumerate();
        let kept = kept.filter(|(index, _)| !replaced.contains(&(file, *index)));
        whole.extend(kept.map(|(_, document)| document.clone()));
    }
    for (applied, goal) in applied.iter().zip(&goals) {
        let directory = match goal {
            Goal::Replace(target) if set.is_stored(target.file) => None,
            Goal::Replace(target) => set.files().get(target.file).and_then(|file| file.path.parent()),
            Goal::Create(Destination::Directory(directory)) => Some(directory.as_path()),
            Goal::Create(Destination::Store(_)) | Goal::Overwrite(_) => None,
        };
        whole.push(match directory {
            Some(directory) => applied.document.within(directory),
            None => applied.document.without_directory(),
        });
    }
    let chains = chains::of_documents(&whole, mistakes)?;

    let mut writer = Writer::new(set, &there);
    for (applied, goal) in applied.iter().zip(&goals) {
        match goal {
            Goal::Replace(target) => writer.replace(applied, target)?,
            Goal::Create(Destination::Directory(directory)) => writer.create(applied, directory),
            Goal::Create(Destination::Store(path)) => writer.store(applied, path, Effect::Created),
            Goal::Overwrite(path) => writer.store(applied, path, Effect::Changed),
        }
    }
    let changed = goals.iter().filter_map(Goal::target);
    let changed = changed.map(|target| target.location.clone());
    let place = changed
        .chain(applied.iter().map(|applied| applied.document.location()))
        .next();
    writer.finish(&chains, place.unwrap_or_else(|| Location::of_file(name)))
}

/// A document of the applied text.
struct Applied<'a> {
    id: DefinitionId,
    document: &'a Document,
    phase: Option<admittance_admission::Phase>,
    /// Its own bytes of the text.
    own: &'a str,
    /// What a new file of it holds.
    alone: &'a str,
}

impl<'a> Applied<'a> {
    fn all(text: &'a str, name: &str, read: &'a [Vec<Document>]) -> Result<Vec<Self>, ChangeError> {
        let documents = read.first().map(Vec::as_slice).unwrap_or_default();
        let definitions = definitions(read);
        if let Some(item) = definitions.iter().find(|definition| definition.is_item()) {
            let list = documents.get(item.document);
            let location = list.map_or_else(|| Location::of_file(name), Document::location);
            return Err(ChangeError::List(location));
        }
        if definitions.is_empty() {
            return Err(ChangeError::Nothing(name.to_owned()));
        }
        let extents = extents(text, documents);
        let by_hand = |document: &Document| ChangeError::ByHand(document.location());
        let mut all = Vec::new();
        for (index, document) in documents.iter().enumerate() {
            // An empty list is a document and no definition.
            let Some(definition) = definitions.iter().find(|definition| definition.document == index) else {
                continue;
            };
            let own = extents
                .as_ref()
                .and_then(|extents| text.get(extents.get(index)?.own.clone()))
                .ok_or_else(|| by_hand(document))?;
            all.push(Self {
                id: definition.id.clone(),
                document,
                phase: definition.chain().map(|chain| chain.phase),
                own,
                alone: if documents.len() == 1 { text } else { own },
            });
        }
        Ok(all)
    }
}

/// A document that is replaced.
struct Target {
    file: usize,
    document: usize,
    location: Location,
}

impl Target {
    fn key(&self) -> (usize, usize) {
        (self.file, self.document)
    }
}

/// Where an applied document goes.
enum Goal {
    Replace(Target),
    /// To this path of a store, over what cannot be used there.
    Overwrite(PathBuf),
    Create(Destination),
}

impl Goal {
    fn target(&self) -> Option<&Target> {
        match self {
            Self::Replace(target) => Some(target),
            Self::Overwrite(_) | Self::Create(_) => None,
        }
    }
}

/// For each applied document where it goes, if that is as expected.
fn goals(
    targets: Vec<Option<Target>>,
    applied: &[Applied<'_>],
    expected: Expected,
    destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    (set, there): (&DefinitionSet, &[Definition<'_>]),
) -> Result<Vec<Goal>, ChangeError> {
    let goal = |(target, applied): (Option<Target>, &Applied<'_>)| {
        let id = applied.id.clone();
        if target.is_none()
            && let Some(path) = unusable(set, &id)
        {
            let location = Location::of_file(path.display().to_string());
            return match expected {
                Expected::New => Err(ChangeError::AlreadyThere { id, location }),
                Expected::Any | Expected::There => Ok(Goal::Overwrite(path.to_owned())),
            };
        }
        match (target, expected) {
            (Some(target), Expected::New) => Err(ChangeError::AlreadyThere {
                id,
                location: target.location,
            }),
            (Some(target), Expected::Any | Expected::There) => Ok(Goal::Replace(target)),
            (None, Expected::There) => {
                let near = near(
                    &id.to_string(),
                    there.iter().map(|other| other.id.clone()).collect(),
                );
                Err(ChangeError::Unknown { id, near })
            }
            (None, Expected::Any | Expected::New) => match destination(&id) {
                Some(destination) => Ok(Goal::Create(destination)),
                None => Err(ChangeError::NoDirectory(id)),
            },
        }
    };
    targets.into_iter().zip(applied).map(goal).collect()
}

/// For each applied document the one that it replaces.
fn targets(there: &[Definition<'_>], applied: &[Applied<'_>]) -> Result<Vec<Option<Target>>, ChangeError> {
    let target = |one: &Applied<'_>| {
        let same: Vec<_> = there.iter().filter(|other| other.id.is(&one.id)).collect();
        let siblings = applied.iter().filter(|other| other.id.is(&one.id)).count();
        let found = match same.as_slice() {
            [only] if siblings == 1 => Some(*only),
            // Of a native chain there can be one in each phase.
            several => several.iter().copied().find(|other| {
                let phase = other.chain().map(|chain| chain.phase);
                phase.is_some() && phase == one.phase
            }),
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let location = found.root.location();
        if found.is_item() {
            let id = found.id.clone();
            return Err(ChangeError::InList { id, location });
        }
        Ok(Some(Target {
            file: found.file,
            document: found.document,
            location,
        }))
    };
    applied.iter().map(target).collect()
}

/// Puts the new texts of files together.
struct Writer<'a> {
    set: &'a DefinitionSet,
    there: &'a [Vec<Document>],
    /// For each file what is put in place of which bytes.
    replaced: BTreeMap<usize, Vec<(Extent, String)>>,
    created: Vec<DefinitionFile>,
    /// The same in stores.
    stored: Vec<DefinitionFile>,
    effects: Vec<(DefinitionId, Effect)>,
}

impl<'a> Writer<'a> {
    fn new(set: &'a DefinitionSet, there: &'a [Vec<Document>]) -> Self {
        Self {
            set,
            there,
            replaced: BTreeMap::new(),
            created: Vec::new(),
            stored: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn replace(&mut self, applied: &Applied<'_>, target: &Target) -> Result<(), ChangeError> {
        let by_hand = || ChangeError::ByHand(target.location.clone());
        let file = self.set.files().get(target.file).ok_or_else(by_hand)?;
        let documents = self.there.get(target.file).ok_or_else(by_hand)?;
        let (_, text) = rewrite::split_mark(&file.text);
        let extents = extents(text, documents).ok_or_else(by_hand)?;
        let extent = extents.get(target.document).ok_or_else(by_hand)?;
        let old = text.get(extent.own.clone()).ok_or_else(by_hand)?;

        let mut new = applied.own.to_owned();
        let is_stored = self.set.is_stored(target.file);
        let fits = match applied.document.syntax() {
            // What such a file holds is read as JSON alone.
            Syntax::Yaml => !is_stored && !document::is_named_json(&file.path),
            // YAML does not have JSON's escapes of characters in two halves.
            Syntax::Json => is_stored || document::is_named_json(&file.path) || !new.contains("\\u"),
        };
        if !fits {
            new = rewrite::pretty_json(&applied.document.root().json());
        }
        let new = rewrite::with_lines_of(&file.text, &new);
        let trimmed = new.trim_end_matches(['\r', '\n']);
        let is_same = if is_stored {
            // A store may write what it holds in its own way.
            let there = documents.get(target.document).ok_or_else(by_hand)?;
            there.root().json() == applied.document.root().json()
        } else {
            trimmed == old.trim_end_matches(['\r', '\n'])
        };
        if is_same {
            self.effects.push((applied.id.clone(), Effect::Unchanged));
            return Ok(());
        }
        let mut replacement = String::new();
        let line_end = rewrite::line_end_of(&file.text);
        let begins_a_line = extent.own.start == 0
            || text
                .get(..extent.own.start)
                .is_some_and(|before| before.ends_with('\n'));
        if !begins_a_line && trimmed.contains('\n') {
            replacement.push_str(line_end);
        }
        replacement.push_str(trimmed);
        if old.ends_with('\n') {
            replacement.push_str(line_end);
        }
        let replaced = self.replaced.entry(target.file).or_default();
        replaced.push((extent.clone(), replacement));
        self.effects.push((applied.id.clone(), Effect::Changed));
        Ok(())
    }

    fn create(&mut self, applied: &Applied<'_>, directory: &Path) {
        let ending = match applied.document.syntax() {
            Syntax::Yaml => "yaml",
            Syntax::Json => "json",
        };
        let mut text = applied.alone.to_owned();
        if !text.ends_with('\n') {
            text.push_str(rewrite::line_end_of(&text));
        }
        let path = self.free_name(&applied.id, ending, directory);
        self.created.push(DefinitionFile {
            path,
            text,
            place: None,
        });
        self.effects.push((applied.id.clone(), Effect::Created));
    }

    fn store(&mut self, applied: &Applied<'_>, path: &Path, effect: Effect) {
        let text = match applied.document.syntax() {
            Syntax::Yaml => rewrite::pretty_json(&applied.document.root().json()),
            Syntax::Json => applied.own.to_owned(),
        };
        self.stored.push(DefinitionFile {
            path: path.to_owned(),
            text: text.trim_end().to_owned(),
            place: None,
        });
        self.effects.push((applied.id.clone(), effect));
    }

    /// A name in the directory that nothing has.
    fn free_name(&self, id: &DefinitionId, ending: &str, directory: &Path) -> PathBuf {
        let base = file_name(&id.name);
        let mut path = directory.join(format!("{base}.{ending}"));
        let mut number = 2;
        let files = self.set.files().iter().chain(&self.created);
        while files.clone().any(|file| file.path == path) || path.symlink_metadata().is_ok() {
            path = directory.join(format!("{base}-{number}.{ending}"));
            number += 1;
        }
        path
    }

    /// The change, if it means what is expected; `place` is told if it does not.
    fn finish(self, expected: &[ChainDefinition], place: Location) -> Result<Change, ChangeError> {
        let mut files: Vec<DefinitionFile> = self.set.files().to_vec();
        for (index, mut replaced) in self.replaced {
            let Some(file) = files.get_mut(index) else {
                continue;
            };
            let (mark, text) = rewrite::split_mark(&file.text);
            // From the end, so that what is still to be replaced stays where it is.
            replaced.sort_by_key(|(extent, _)| std::cmp::Reverse(extent.own.start));
            let mut text = text.to_owned();
            for (extent, new) in replaced {
                text.replace_range(extent.own, &new);
            }
            file.text = format!("{mark}{text}");
        }
        let mut stored = files.split_off(self.set.of_system().len());
        let is_overwritten = |file: &&DefinitionFile| self.stored.iter().any(|new| new.path == file.path);
        let unusable: Vec<_> = self
            .set
            .unusable()
            .iter()
            .filter(|file| !is_overwritten(file))
            .cloned()
            .collect();
        stored.extend(self.stored);
        for file in self.created {
            let index = place_among(&files, &file.path);
            files.insert(index, file);
        }
        let set = DefinitionSet::of_files(files)
            .with_stored(stored)
            .with_unusable(unusable);
        match set.chains() {
            Ok(chains) if mean_the_same(&chains, expected) => {
                Ok(Change::between(self.set, set, self.effects))
            }
            Ok(_) | Err(_) => Err(ChangeError::ByHand(place)),
        }
    }
}

/// Where reading the directory again will find this file.
fn place_among(files: &[DefinitionFile], path: &Path) -> usize {
    let beside = |file: &DefinitionFile| file.path.parent() == path.parent();
    let after = files.iter().position(|file| beside(file) && *file.path > *path);
    let last = || files.iter().rposition(beside).map(|last| last + 1);
    after.or_else(last).unwrap_or(files.len())
}

/// A name like this one that every file system takes, that is not hidden and does not lead elsewhere.
pub(crate) fn file_name(name: &str) -> String {
    const LONGEST: usize = 100;
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().take(LONGEST).map(plain).collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("-{rest}"),
        None => name,
    }
}
