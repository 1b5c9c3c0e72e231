//! Files as they were read, each once.

use std::{collections::HashMap, fmt, path::PathBuf, sync::Arc};

use admittance_admission::pause;
use parking_lot::Mutex;

use super::Definition;
use crate::{
    DefinitionFile, DefinitionId,
    document::{self, Document, Mistake, Mistakes, Texts, UNINTERRUPTED},
    forms::{DocumentForms, ReadDefinition},
};

/// A text of definitions as it was read. Immutable; lives as long as a set that contains the text.
#[derive(Debug)]
pub(crate) struct ReadFile {
    pub(crate) documents: Vec<Document>,
    /// The mistakes of the syntax, and of documents whose kind is not known.
    pub(crate) mistakes: Mistakes,
    /// The definitions of each document.
    pub(crate) definitions: Vec<Vec<Arc<ReadDefinition>>>,
}

impl ReadFile {
    fn new(documents: Vec<Document>, mut mistakes: Mistakes, forms: &DocumentForms) -> Self {
        let read = |(index, document): (usize, &Document)| {
            pause(index, UNINTERRUPTED);
            let definitions = forms.definitions(document, &mut mistakes).into_iter();
            definitions
                .map(|definition| Arc::new(definition.read()))
                .collect()
        };
        Self {
            definitions: documents.iter().enumerate().map(read).collect(),
            documents,
            mistakes,
        }
    }
}

/// The systems whose documents are read, and what was read of texts and of the files that they name. All sets that come of
/// one set share it, so that a text is read once, and all of a table has one version of a file.
#[derive(Clone, Default)]
pub(crate) struct Reads(Arc<Inner>);

#[derive(Default)]
struct Inner {
    forms: DocumentForms,
    texts: Texts,
    files: Mutex<HashMap<PathBuf, Vec<(DefinitionFile, Arc<ReadFile>)>>>,
}

impl Reads {
    pub(crate) fn new(forms: DocumentForms) -> Self {
        Self(Arc::new(Inner {
            forms,
            ..Inner::default()
        }))
    }

    /// Returns the same systems with nothing read.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(self.0.forms.clone())
    }

    /// Whether the files that definitions name are as they were read.
    pub(crate) fn are_current(&self) -> bool {
        let texts = self.0.texts.lock();
        let is_same = |(path, text): (&PathBuf, &Result<String, Mistake>)| {
            document::text_of(path).map(|(text, _)| text) == *text
        };
        texts.iter().all(is_same)
    }

    pub(crate) fn file(&self, file: &DefinitionFile) -> Arc<ReadFile> {
        let mut files = self.0.files.lock();
        let versions = files.entry(file.path.clone()).or_default();
        let mut known = versions.iter();
        if let Some((_, read)) = known.find(|(known, _)| (known.kind, &known.text) == (file.kind, &file.text))
        {
            return read.clone();
        }
        let mut mistakes = Mistakes::new();
        let documents = file.documents(&mut mistakes);
        let read = Arc::new(self.documents(documents, mistakes));
        versions.push((file.clone(), read.clone()));
        read
    }

    /// A text that is not of the set. `name` stands for the file in mistakes.
    pub(crate) fn text(&self, name: &str, text: &str) -> ReadFile {
        let mut mistakes = Mistakes::new();
        let documents = document::read_text(name, text, &mut mistakes);
        self.documents(documents, mistakes)
    }

    pub(crate) fn documents(&self, documents: Vec<Document>, mistakes: Mistakes) -> ReadFile {
        let documents = documents.into_iter();
        let documents = documents.map(|document| document.sharing(&self.0.texts));
        ReadFile::new(documents.collect(), mistakes, &self.0.forms)
    }

    /// The definitions in these files, without those whose name cannot be read.
    pub(crate) fn definitions<'a>(
        &self,
        files: impl IntoIterator<Item = &'a ReadFile>,
    ) -> Vec<Definition<'a>> {
        self.definitions_or(files, |_| None)
    }

    /// The definitions in these files. If the name of one cannot be read, it gets this one, or is left out.
    pub(crate) fn definitions_or<'a>(
        &self,
        files: impl IntoIterator<Item = &'a ReadFile>,
        unnamed: impl Fn(&ReadDefinition) -> Option<DefinitionId>,
    ) -> Vec<Definition<'a>> {
        let mut found = Vec::new();
        for (file, read) in files.into_iter().enumerate() {
            for (index, (document, definitions)) in read.documents.iter().zip(&read.definitions).enumerate() {
                let typed = self.0.forms.definitions(document, &mut Mistakes::new());
                for (typed, read) in typed.into_iter().zip(definitions) {
                    let id = typed.id().or_else(|| unnamed(read));
                    found.extend(id.map(|id| Definition {
                        file,
                        document: index,
                        root: typed.root,
                        read,
                        id,
                    }));
                }
            }
        }
        found
    }
}

/// Sets of the same texts are equal, whatever was read of them.
impl PartialEq for Reads {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reads {}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").finish_non_exhaustive()
    }
}
