//! Documents as their systems read them.

use std::{any::Any, fmt, sync::Arc};

use admittance_admission::Phase;

use super::{DocumentForm, DocumentKind, TypedDocument};
use crate::{ChainDefinition, Location, Mistake, document::Mistakes};

/// The content that a system reads from one of its documents.
#[derive(Default)]
pub struct FormContent {
    names: Vec<TakenName>,
    chain: Option<ChainDefinition>,
    part: Option<Box<dyn Any + Send + Sync>>,
}

/// A name that no other definition may have.
#[derive(Debug)]
pub(crate) struct TakenName {
    /// The kind of thing that has the name: `chain`, `binding`.
    pub(crate) of: &'static str,
    pub(crate) phase: Phase,
    pub(crate) name: String,
    /// Whether all definitions of one system may have it together.
    pub(crate) is_shared: bool,
}

impl FormContent {
    /// A chain, whose name is unique in its phase. It is used as it is, unless the system
    /// [defines](DocumentForm::define) something else.
    pub fn of_chain(chain: ChainDefinition) -> Self {
        let content = Self::default().taking("chain", chain.phase, &*chain.name, false);
        Self {
            chain: Some(chain),
            ..content
        }
    }

    /// Creates a part of which the system makes chains together with its other documents. The name is unique in this
    /// phase among the names of the same kind of thing; `of` is that kind.
    pub fn of_part(
        of: &'static str,
        phase: Phase,
        name: impl Into<String>,
        part: impl Any + Send + Sync,
    ) -> Self {
        Self::default().taking(of, phase, name, false).with_part(part)
    }

    /// Reserves another name, which only definitions of the same system may also have.
    #[must_use]
    pub fn sharing_name(self, of: &'static str, phase: Phase, name: impl Into<String>) -> Self {
        self.taking(of, phase, name, true)
    }

    fn taking(mut self, of: &'static str, phase: Phase, name: impl Into<String>, is_shared: bool) -> Self {
        let name = name.into();
        self.names.push(TakenName {
            of,
            phase,
            name,
            is_shared,
        });
        self
    }

    /// Adds what the system needs besides the chain.
    #[must_use]
    pub fn with_part(self, part: impl Any + Send + Sync) -> Self {
        Self {
            part: Some(Box::new(part)),
            ..self
        }
    }
}

impl fmt::Debug for FormContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut content = f.debug_struct("FormContent");
        content.field("names", &self.names).field("chain", &self.chain);
        content.finish_non_exhaustive()
    }
}

/// A definition that was read without regard to others. Immutable, and shared by all sets that contain it.
#[derive(Debug)]
pub struct ReadDefinition {
    pub(crate) form: Arc<dyn DocumentForm>,
    pub(crate) kind: &'static DocumentKind,
    location: Location,
    /// The path of the definition in its document: empty unless it is an item of a list.
    path: String,
    /// `None` if it is incomplete.
    content: Option<FormContent>,
    /// The mistakes in it.
    pub(crate) mistakes: Mistakes,
}

impl ReadDefinition {
    /// Returns the beginning of the document.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The chain, if the definition is one.
    pub fn chain(&self) -> Option<&ChainDefinition> {
        self.content.as_ref()?.chain.as_ref()
    }

    /// The part of this type for the system, if the definition has one.
    pub fn part<T: Any>(&self) -> Option<&T> {
        self.content.as_ref()?.part.as_ref()?.downcast_ref()
    }

    /// Pushes a mistake about the definition as a whole.
    pub fn wrong(&self, message: impl Into<String>, fix: impl Into<String>, mistakes: &mut Mistakes) {
        mistakes.push(Mistake {
            location: self.location.clone(),
            path: self.path.clone(),
            message: message.into(),
            fix: fix.into(),
        });
    }

    pub(crate) fn names(&self) -> &[TakenName] {
        self.content.as_ref().map_or(&[], |content| &content.names)
    }

    /// The path of the definition's name in the document.
    pub(crate) fn name_path(&self) -> String {
        match &*self.path {
            "" => "metadata.name".to_owned(),
            path => format!("{path}.metadata.name"),
        }
    }
}

/// The definitions from which a policy system makes chains. None of them conflicts with another.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FormDocuments<'a> {
    /// The system's own definitions.
    pub own: &'a [Arc<ReadDefinition>],
    /// The [supporting](DocumentKind::is_supporting) definitions of all systems.
    pub supporting: &'a [Arc<ReadDefinition>],
}

impl<'a> FormDocuments<'a> {
    /// The chains that are documents of their own.
    pub fn chains(self) -> impl Iterator<Item = ChainDefinition> + 'a {
        let chains = self.own.iter().filter_map(|document| document.chain());
        chains.cloned()
    }

    /// The parts of this type in the definitions of the system.
    pub fn parts<T: Any>(self) -> Vec<&'a T> {
        parts(self.own)
    }
}

/// The parts of this type in these definitions.
pub(crate) fn parts<T: Any>(documents: &[Arc<ReadDefinition>]) -> Vec<&T> {
    documents.iter().filter_map(|document| document.part()).collect()
}

impl TypedDocument<'_> {
    /// Reads it by itself.
    pub(crate) fn read(&self) -> ReadDefinition {
        let mut mistakes = Mistakes::new();
        ReadDefinition {
            content: self.form.read(self, &mut mistakes),
            form: self.form.clone(),
            kind: self.kind,
            location: self.root.location(),
            path: self.root.path().to_owned(),
            mistakes,
        }
    }
}
