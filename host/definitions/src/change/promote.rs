use super::{Change, ChangeError, Effect, error::near, mean_the_same, rewrite};
use crate::{
    ChainDefinition, DefinitionFile, DefinitionSet, HookDefinition, Location, StageId,
    document::{self, Document, Mistakes, Node, Part},
    set::definitions,
};

/// What is the candidate's own, and what it takes from the plugin when it does not say it.
const OWN: [&str; 3] = ["source", "digest", "refresh"];
const SHARED: [&str; 3] = ["settings", "allow", "memory"];

pub(crate) fn promote(set: &DefinitionSet, id: &StageId) -> Result<Change, ChangeError> {
    let mut expected = set.chains()?;
    let location = merge(&mut expected, id)?;
    let by_hand = || ChangeError::ByHand(location.clone());

    let there = set.parse(&mut Mistakes::new());
    let definitions = definitions(&there);
    let definition = definitions
        .iter()
        .find(|definition| {
            let here = |node: &Node<'_>| node.location() == location;
            definition.root.find_map(&here).is_some()
        })
        .ok_or_else(by_hand)?;
    let mut files: Vec<DefinitionFile> = set.files().to_vec();
    let file = files.get_mut(definition.file).ok_or_else(by_hand)?;
    file.text = rewritten(file, &location).ok_or_else(by_hand)?;

    let stored = files.split_off(set.of_system().len());
    let new = DefinitionSet::of_files(files)
        .with_stored(stored)
        .with_unusable(set.unusable().to_vec());
    match new.chains() {
        Ok(chains) if mean_the_same(&chains, &expected) => {
            let effects = vec![(definition.id.clone(), Effect::Changed)];
            Ok(Change::between(set, new, effects))
        }
        Ok(_) | Err(_) => Err(by_hand()),
    }
}

/// Make the candidate of this stage its plugin, and say where the stage is.
fn merge(chains: &mut [ChainDefinition], id: &StageId) -> Result<Location, ChangeError> {
    let full = |chain: &ChainDefinition, stage: &str| StageId {
        phase: Some(chain.phase),
        chain: chain.name.clone(),
        stage: stage.to_owned(),
    };
    let mut meant = Vec::new();
    let mut all = Vec::new();
    for chain in chains.iter() {
        for stage in &chain.stages {
            if id.is(chain.phase, &chain.name, &stage.name) {
                meant.push(full(chain, &stage.name));
            }
            let phase = id.phase.and(Some(chain.phase));
            all.push(StageId {
                phase,
                ..full(chain, &stage.name)
            });
        }
    }
    let id = id.clone();
    match meant.len() {
        0 => {
            let near = near(&id.to_string(), all);
            return Err(ChangeError::UnknownStage { id, near });
        }
        1 => {}
        _ => return Err(ChangeError::AmbiguousStage { id, meant }),
    }
    let stages = chains.iter_mut().flat_map(|chain| {
        let (phase, name) = (chain.phase, chain.name.clone());
        chain
            .stages
            .iter_mut()
            .map(move |stage| (phase, name.clone(), stage))
    });
    for (phase, chain, stage) in stages {
        if !id.is(phase, &chain, &stage.name) {
            continue;
        }
        let location = stage.location.clone();
        let Some(candidate) = stage.candidate.take() else {
            return Err(ChangeError::NoCandidate { id, location });
        };
        stage.hook = HookDefinition::Plugin(candidate.plugin);
        return Ok(location);
    }
    Err(ChangeError::UnknownStage { id, near: Vec::new() })
}

/// The text of the file with the candidate of the stage at this place as its plugin: field by field, each
/// on the text that the one before left.
fn rewritten(file: &DefinitionFile, stage: &Location) -> Option<String> {
    let (mark, text) = rewrite::split_mark(&file.text);
    let mut text = text.to_owned();
    for name in OWN.into_iter().chain(SHARED) {
        let documents = documents(file, &text);
        let stage = Stage::at(&documents, stage)?;
        let field = |map: &Node<'_>| map.parts().iter().any(|part| part.key == name);
        let wanted = stage
            .candidate
            .parts()
            .into_iter()
            .find(|part| part.key == name && !part.value.is_null());
        text = match wanted {
            Some(wanted) => rewrite::with(&text, &stage.plugin, &stage.candidate, &wanted)?,
            None if OWN.contains(&name) && field(&stage.plugin) => {
                rewrite::without(&text, &stage.plugin, name)?
            }
            None => continue,
        };
    }
    let documents = documents(file, &text);
    let stage = Stage::at(&documents, stage)?;
    let text = rewrite::without(&text, &stage.map, stage.candidate_key)?;
    Some(format!("{mark}{text}"))
}

fn documents(file: &DefinitionFile, text: &str) -> Vec<Document> {
    document::read_text_of(&file.path, text, &mut Mistakes::new())
}

/// A stage in a document. Its place does not change while what is in it does.
struct Stage<'a> {
    map: Node<'a>,
    plugin: Node<'a>,
    candidate: Node<'a>,
    candidate_key: &'a str,
}

impl<'a> Stage<'a> {
    fn at(documents: &'a [Document], location: &Location) -> Option<Self> {
        let here = |node: &Node<'a>| node.location() == *location;
        let map = documents
            .iter()
            .find_map(|document| document.root().find_map(&here))?;
        // Keys of BCS are written in any case.
        let part = |name: &str| -> Option<Part<'a>> {
            let mut parts = map.parts().into_iter();
            parts.find(|part| part.key.eq_ignore_ascii_case(name) && !part.value.is_null())
        };
        let plugin = part("plugin")?.value;
        let candidate = part("candidate")?;
        Some(Self {
            plugin,
            candidate_key: candidate.key,
            candidate: candidate.value,
            map,
        })
    }
}
