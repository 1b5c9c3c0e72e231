//! The result of reading a document: its content, the names that it takes, and its mistakes.

use std::{any::Any, sync::Arc};

use admittance_admission::Phase;

use super::{DocumentForm, DocumentKind, TypedDocument};
use crate::{
    ChainDefinition, Location,
    document::{Mistakes, ValueLocation},
};

/// The content of a document after its policy system has read it.
#[derive(Default, derive_more::Debug)]
#[debug("FormContent {{ names: {names:?}, chain: {chain:?}, .. }}")]
pub struct FormContent {
    names: Vec<TakenName>,
    chain: Option<ChainDefinition>,
    part: Option<Box<dyn Any + Send + Sync>>,
}

/// A name that a definition takes, so that no other definition may have it.
#[derive(Debug)]
pub(crate) struct TakenName {
    /// The kind of thing that has the name, such as `chain` or `binding`.
    pub(crate) noun: &'static str,
    pub(crate) phase: Phase,
    pub(crate) name: String,
    /// Whether several definitions may have this name. It must be true for each of them.
    pub(crate) is_shared: bool,
}

impl FormContent {
    /// Creates the content of a document that is a complete chain. Its name must be unique in its phase. The chain is
    /// used unchanged, unless the policy system overrides [`define`](DocumentForm::define).
    pub fn of_chain(chain: ChainDefinition) -> Self {
        let content = Self::default().with_name("chain", chain.phase, &*chain.name, false);
        Self {
            chain: Some(chain),
            ..content
        }
    }

    /// Creates the content of a document that is part of a chain, such as a policy's binding. `noun` is the word for
    /// such a part, for example `binding`. Documents with the same `noun` in the same phase must have different names.
    pub fn of_part(noun: &'static str, phase: Phase, name: impl Into<String>, part: impl Any + Send + Sync) -> Self {
        Self::default().with_name(noun, phase, name, false).with_part(part)
    }

    /// Adds a name that other definitions may have too. They must add the name with this method as well; otherwise, the
    /// equal names are a conflict.
    #[must_use]
    pub fn with_shared_name(self, noun: &'static str, phase: Phase, name: impl Into<String>) -> Self {
        self.with_name(noun, phase, name, true)
    }

    fn with_name(mut self, noun: &'static str, phase: Phase, name: impl Into<String>, is_shared: bool) -> Self {
        self.names.push(TakenName {
            noun,
            phase,
            name: name.into(),
            is_shared,
        });
        self
    }

    /// Adds a value of any type to the content. The policy system can get it from [`ReadDefinition::part`] later.
    #[must_use]
    pub fn with_part(self, part: impl Any + Send + Sync) -> Self {
        Self {
            part: Some(Box::new(part)),
            ..self
        }
    }
}

/// A definition that was read without regard to others. It is immutable, so that sets can share it.
#[derive(Debug)]
pub struct ReadDefinition {
    pub(crate) form: Arc<dyn DocumentForm>,
    pub(crate) kind: &'static DocumentKind,
    root: ValueLocation,
    content: Option<FormContent>,
    pub(crate) mistakes: Mistakes,
}

impl ReadDefinition {
    /// Returns the location of the definition.
    pub fn location(&self) -> &Location {
        &self.root.location
    }

    /// Returns the definition's chain; `None` if it is incomplete, or defines a chain only together with others.
    pub fn chain(&self) -> Option<&ChainDefinition> {
        self.content.as_ref()?.chain.as_ref()
    }

    /// Returns the value of type `T` that the policy system has added to the definition, if there is one.
    pub fn part<T: Any>(&self) -> Option<&T> {
        self.content.as_ref()?.part.as_ref()?.downcast_ref()
    }

    /// Reports a mistake about the definition as a whole.
    pub fn add_mistake(&self, message: impl Into<String>, fix: impl Into<String>, mistakes: &mut Mistakes) {
        mistakes.push(self.root.mistake(message, fix));
    }

    pub(crate) fn names(&self) -> &[TakenName] {
        self.content.as_ref().map_or(&[], |content| &content.names)
    }

    pub(crate) fn name_path(&self) -> String {
        match &*self.root.path {
            "" => "metadata.name".to_owned(),
            path => format!("{path}.metadata.name"),
        }
    }
}

/// All definitions from which a policy system creates its chains, except those with mistakes or conflicts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FormDocuments<'a> {
    /// The definitions of this policy system, in the order in which they were read.
    pub definitions: &'a [Arc<ReadDefinition>],
    /// The [supporting](DocumentKind::is_supporting) definitions of all policy systems.
    pub supporting: &'a [Arc<ReadDefinition>],
}

impl<'a> FormDocuments<'a> {
    /// Returns the chains of those documents of this policy system that define a whole chain alone. A document that is
    /// only a part of a chain, such as a binding, is left out.
    pub fn chains(self) -> impl Iterator<Item = ChainDefinition> + 'a {
        self.definitions
            .iter()
            .filter_map(|definition| definition.chain())
            .cloned()
    }

    /// Returns the values of type `T` that were added to the definitions of this policy system.
    pub fn parts<T: Any>(self) -> Vec<&'a T> {
        parts(self.definitions)
    }
}

pub(crate) fn parts<T: Any>(definitions: &[Arc<ReadDefinition>]) -> Vec<&T> {
    definitions.iter().filter_map(|definition| definition.part()).collect()
}

impl TypedDocument<'_> {
    pub(crate) fn read(&self) -> ReadDefinition {
        let mut mistakes = Mistakes::new();
        let root = self.root.reporting_to(&mut mistakes);
        ReadDefinition {
            content: self.form.read(&TypedDocument { root, ..self.clone() }),
            form: self.form.clone(),
            kind: self.kind,
            root: self.root.value_location(),
            mistakes,
        }
    }
}
