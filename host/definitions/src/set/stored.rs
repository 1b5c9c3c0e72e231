use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DefinitionSet, chains::Chains, usable_definitions::id_of};
use crate::{
    ChainDefinition, ChainId, DefinitionFile, DefinitionId, Location,
    document::{BYTE_ORDER_MARK, Document, Mistakes, Node},
    forms::ReadDefinition,
};

/// A definition as it is in the store. The live definition is a different one after a rollback, or if the stored
/// definition is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Definition")]
#[non_exhaustive]
pub struct StoredDefinition {
    /// The kind and name of the definition.
    #[serde(flatten)]
    pub id: DefinitionId,
    /// The path of the definition's file, or of its entry in a store.
    pub file: PathBuf,
    /// The line on which the definition begins in its file, from 1.
    pub line: u32,
    /// The definition's text with comments: a whole file, a document between `---`, or a list item without indentation.
    pub text: String,
    /// The phase and name of the chain that the definition defines, such as `Mutating:pods`. It is missing if the
    /// definition has mistakes, or defines no chain by itself, like an exception or a policy's binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub chain: Option<ChainId>,
    /// Whether the definition is an item of a list. If so, it can only be changed by editing its file.
    pub in_list: bool,
    /// Whether the definition has mistakes.
    #[serde(default)]
    pub has_mistakes: bool,
}

/// A parsed definition, with the indexes of its file in the set and of its document in the file.
pub(crate) struct ParsedDefinition<'a> {
    pub(crate) file: usize,
    pub(crate) document: usize,
    pub(crate) root: Node<'a>,
    pub(crate) read_definition: &'a Arc<ReadDefinition>,
    pub(crate) id: DefinitionId,
}

impl ParsedDefinition<'_> {
    pub(crate) fn is_item(&self) -> bool {
        !self.root.path().is_empty()
    }

    /// Returns the chain that this definition defines alone. Returns `None` if the definition is incomplete, or if it
    /// is only a part of a chain, such as a binding.
    pub(crate) fn chain(&self) -> Option<ChainDefinition> {
        let mut chains = Chains::default();
        chains.add(self.read_definition, &mut Mistakes::new());
        chains.definitions(&mut Mistakes::new()).chains.pop()
    }
}

pub(super) fn stored_definitions(set: &DefinitionSet) -> Vec<StoredDefinition> {
    let read_files = set.read_files(&mut Mistakes::new());
    let stored = |definition: ParsedDefinition<'_>| {
        let file = set.files.get(definition.file)?;
        let documents = &read_files.get(definition.file)?.documents;
        Some(StoredDefinition {
            file: file.path.clone(),
            line: definition.root.location().line,
            text: definition_text(&definition, file, documents)?,
            chain: definition.chain().map(|chain| ChainId {
                phase: chain.phase,
                name: chain.name,
            }),
            in_list: definition.is_item(),
            has_mistakes: !definition.read_definition.mistakes.is_empty(),
            id: definition.id,
        })
    };
    let usable = set.definitions_in(&read_files).into_iter().filter_map(stored);
    let unusable = set
        .unusable_files()
        .iter()
        .filter_map(|file| unusable_definition(set, file));
    usable.chain(unusable).collect()
}

/// Returns the index of the definition in `documents` that contains this location.
pub(super) fn index_at(documents: &[StoredDefinition], location: &Location) -> Option<usize> {
    let before = documents.iter().enumerate().filter(|(_, document)| {
        document.line <= location.line && *document.file.as_os_str() == *location.file.as_str()
    });
    let last = before.max_by_key(|(_, document)| document.line);
    last.map(|(index, _)| index)
}

fn unusable_definition(set: &DefinitionSet, file: &DefinitionFile) -> Option<StoredDefinition> {
    Some(StoredDefinition {
        id: id_of(set, file)?,
        file: file.path.clone(),
        line: 1,
        text: file.text.clone(),
        chain: None,
        in_list: false,
        has_mistakes: true,
    })
}

pub(crate) fn definition_text(
    definition: &ParsedDefinition<'_>,
    file: &DefinitionFile,
    documents: &[Document],
) -> Option<String> {
    if definition.is_item() {
        let text = file.text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&file.text);
        return item_text(text, &definition.root);
    }
    let document = documents.get(definition.document)?;
    Some(document.own_text(&file.text, documents.len() == 1).to_owned())
}

/// Returns the text of an item of a list, without the indentation that it has in the list.
fn item_text(text: &str, root: &Node<'_>) -> Option<String> {
    let mut lines = text.get(root.span())?.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let indentation = usize::try_from(root.location().column).ok()?.saturating_sub(1);
    let mut item = first.to_owned();
    for line in lines {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        item.push_str(line.get(spaces.min(indentation)..)?);
    }
    Some(item)
}
