use std::path::Path;

use super::{Change, ChangeError, Effect, Extent, error::near, extents, mean_the_same, rewrite};
use crate::{
    DefinitionFile, DefinitionId, DefinitionSet, chains,
    document::Mistakes,
    set::{Definition, definitions, id_of},
};

pub(crate) fn delete(set: &DefinitionSet, id: &DefinitionId) -> Result<Change, ChangeError> {
    let mut mistakes = Mistakes::new();
    let there = set.parse(&mut mistakes);
    if let Some(path) = unusable(set, id) {
        let rest = set.unusable().iter().filter(|file| file.path != path).cloned();
        let new = set.clone().with_unusable(rest.collect::<Vec<_>>());
        return Ok(Change::between(set, new, vec![(id.clone(), Effect::Deleted)]));
    }
    let definitions = definitions(&there);
    let found = find(&definitions, id)?;
    let location = found.root.location();
    let by_hand = || ChangeError::ByHand(location.clone());
    if found.is_item() {
        let id = found.id.clone();
        return Err(ChangeError::InList { id, location });
    }

    let others = there.iter().enumerate().flat_map(|(file, documents)| {
        let documents = documents.iter().enumerate();
        documents
            .filter(move |(index, _)| (file, *index) != (found.file, found.document))
            .map(|(_, document)| document)
    });
    let expected = chains::of_documents(others, mistakes)?;

    let mut files: Vec<DefinitionFile> = set.files().to_vec();
    let mut of_system = set.of_system().len();
    let documents = there.get(found.file).ok_or_else(by_hand)?;
    if documents.len() == 1 {
        files.remove(found.file);
        if !set.is_stored(found.file) {
            of_system -= 1;
        }
    } else {
        let file = files.get_mut(found.file).ok_or_else(by_hand)?;
        let (mark, text) = rewrite::split_mark(&file.text);
        let extents = extents(text, documents).ok_or_else(by_hand)?;
        let extent = extents.get(found.document).ok_or_else(by_hand)?;
        let text = without(text, extent).ok_or_else(by_hand)?;
        file.text = format!("{mark}{text}");
    }
    let stored = files.split_off(of_system);
    let new = DefinitionSet::of_files(files)
        .with_stored(stored)
        .with_unusable(set.unusable().to_vec());
    match new.chains() {
        Ok(chains) if mean_the_same(&chains, &expected) => {
            let effects = vec![(found.id.clone(), Effect::Deleted)];
            Ok(Change::between(set, new, effects))
        }
        Ok(_) | Err(_) => Err(by_hand()),
    }
}

/// Where a store holds something of this name that cannot be used.
pub(super) fn unusable<'s>(set: &'s DefinitionSet, id: &DefinitionId) -> Option<&'s Path> {
    let is_it = |file: &&DefinitionFile| id_of(file).is_some_and(|other| other.is(id));
    set.unusable().iter().find(is_it).map(|file| file.path.as_path())
}

fn find<'d, 'a>(
    definitions: &'d [Definition<'a>],
    id: &DefinitionId,
) -> Result<&'d Definition<'a>, ChangeError> {
    let found: Vec<_> = definitions
        .iter()
        .filter(|definition| definition.id.is(id))
        .collect();
    match found.as_slice() {
        [only] => Ok(*only),
        [] => {
            let ids = definitions.iter().map(|definition| definition.id.clone());
            Err(ChangeError::Unknown {
                id: id.clone(),
                near: near(&id.to_string(), ids.collect()),
            })
        }
        several => Err(ChangeError::Ambiguous {
            id: id.clone(),
            locations: several
                .iter()
                .map(|definition| definition.root.location())
                .collect(),
        }),
    }
}

/// The text without this document and the marker that set it apart.
fn without(text: &str, extent: &Extent) -> Option<String> {
    let marker = match (&extent.before, &extent.after) {
        (Some(before), _) => Some(before.clone()),
        (None, Some(after)) => {
            let line = text.get(after.clone())?;
            let rest = line.get("---".len()..)?.trim();
            // The next document may begin on the line of the marker.
            if rest.is_empty() || rest.starts_with('#') {
                Some(after.clone())
            } else {
                let spaces = line.len() - line.get("---".len()..)?.trim_start().len();
                Some(after.start..after.start + spaces)
            }
        }
        (None, None) => None,
    };
    let own = extent.own.clone();
    let cuts = match marker {
        // The document begins on the marker's line.
        Some(marker) if marker.start < own.start && own.start < marker.end => {
            [None, Some(marker.start..own.end)]
        }
        marker => [marker, Some(own)],
    };
    let mut cuts: Vec<_> = cuts.into_iter().flatten().collect();
    cuts.sort_by_key(|cut| std::cmp::Reverse(cut.start));
    let mut text = text.to_owned();
    for cut in cuts {
        text.replace_range(cut, "");
    }
    Some(text)
}
