//! A cache of parsed definition files, so that each text is parsed only once.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use admittance_admission::pause_between_items;
use parking_lot::Mutex;

use super::ParsedDefinition;
use crate::{
    DefinitionFile, DefinitionId,
    document::{self, Document, Mistake, Mistakes, PAUSE_INTERVAL, TextCache},
    forms::{DocumentForms, ReadDefinition},
};

/// A text and the definitions that were parsed from it. It is immutable, so all sets that contain the text share it.
#[derive(Debug)]
pub(crate) struct ReadFile {
    pub(crate) documents: Vec<Document>,
    /// The mistakes in the syntax of the text, and those about documents of an unknown kind.
    pub(crate) mistakes: Mistakes,
    pub(crate) definitions: Vec<Vec<Arc<ReadDefinition>>>,
}

impl ReadFile {
    fn new(documents: Vec<Document>, mut mistakes: Mistakes, forms: &DocumentForms) -> Self {
        let read_document = |(index, document): (usize, &Document)| {
            pause_between_items(index, PAUSE_INTERVAL);
            let definitions = forms.definitions(&document.root(&mut mistakes));
            definitions.iter().map(|typed| Arc::new(typed.read())).collect()
        };
        Self {
            definitions: documents.iter().enumerate().map(read_document).collect(),
            documents,
            mistakes,
        }
    }
}

/// The policy systems whose documents are read, the parsed texts, and the files to which definitions refer.
///
/// Sets that are derived from each other share this cache, so that they parse each text once.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Reads {{ .. }}")]
pub(crate) struct Reads(Arc<ReadsCache>);

#[derive(Default)]
struct ReadsCache {
    forms: DocumentForms,
    texts: TextCache,
    files: Mutex<HashMap<PathBuf, Vec<(DefinitionFile, Arc<ReadFile>)>>>,
}

impl Reads {
    pub(crate) fn new(forms: DocumentForms) -> Self {
        Self(Arc::new(ReadsCache {
            forms,
            ..ReadsCache::default()
        }))
    }

    pub(crate) fn uncached(&self) -> Self {
        Self::new(self.0.forms.clone())
    }

    pub(crate) fn are_current(&self) -> bool {
        let texts = self.0.texts.lock();
        let is_same = |(path, text): (&PathBuf, &Result<String, Mistake>)| {
            document::read_file_text(path).map(|(text, _)| text) == *text
        };
        texts.iter().all(is_same)
    }

    pub(crate) fn file(&self, file: &DefinitionFile) -> Arc<ReadFile> {
        let mut files = self.0.files.lock();
        let versions = files.entry(file.path.clone()).or_default();
        let is_same = |cached_file: &DefinitionFile| (cached_file.kind, &cached_file.text) == (file.kind, &file.text);
        if let Some((_, read_file)) = versions.iter().find(|(cached_file, _)| is_same(cached_file)) {
            return read_file.clone();
        }
        let mut mistakes = Mistakes::new();
        let read_file = Arc::new(self.read_documents(file.documents(&mut mistakes), mistakes));
        versions.push((file.clone(), read_file.clone()));
        read_file
    }

    pub(crate) fn read_text(&self, name: &str, text: &str) -> ReadFile {
        let mut mistakes = Mistakes::new();
        self.read_documents(document::read_text(name, text, &mut mistakes), mistakes)
    }

    pub(crate) fn read_documents(&self, documents: Vec<Document>, mistakes: Mistakes) -> ReadFile {
        let share = |document: Document| document.with_text_cache(&self.0.texts);
        let documents = documents.into_iter().map(share).collect();
        ReadFile::new(documents, mistakes, &self.0.forms)
    }

    pub(crate) fn definitions<'a>(&self, files: impl IntoIterator<Item = &'a ReadFile>) -> Vec<ParsedDefinition<'a>> {
        self.definitions_with_default_ids(files, |_| None)
    }

    /// Returns the definitions in these files. If the name of a definition cannot be read, the function `default_id`
    /// provides its ID. If `default_id` returns `None` for such a definition, the definition is left out.
    pub(crate) fn definitions_with_default_ids<'a>(
        &self,
        files: impl IntoIterator<Item = &'a ReadFile>,
        default_id: impl Fn(&ReadDefinition) -> Option<DefinitionId>,
    ) -> Vec<ParsedDefinition<'a>> {
        let mut parsed_definitions = Vec::new();
        for (file, read_file) in files.into_iter().enumerate() {
            for (index, (document, definitions)) in read_file.documents.iter().zip(&read_file.definitions).enumerate() {
                let typed = self.0.forms.definitions(&document.root_ignoring_mistakes());
                for (typed, read_definition) in typed.into_iter().zip(definitions) {
                    let id = typed.id().or_else(|| default_id(read_definition));
                    parsed_definitions.extend(id.map(|id| ParsedDefinition {
                        file,
                        document: index,
                        root: typed.root,
                        read_definition,
                        id,
                    }));
                }
            }
        }
        parsed_definitions
    }
}

/// The cache does not matter when sets are compared: two sets are equal if their texts are equal.
impl PartialEq for Reads {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reads {}
