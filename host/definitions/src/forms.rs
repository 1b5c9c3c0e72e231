//! The systems whose documents are converted to chains.
//!
//! Each system is a submodule and a row of [`DocumentForms`]; an embedding program can add rows. Systems differ only in
//! the methods of [`DocumentForm`], so code outside of a system's module does not depend on it.

pub(crate) mod bcs;
pub(crate) mod gatekeeper;
mod head;
pub(crate) mod kubernetes;
mod kubewarden;
mod kyverno;
pub(crate) mod native;
mod openkruise;
mod read;

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use admittance_admission::enumerated;
use serde_json::Value as Json;

pub(crate) use self::read::{TakenName, parts};
pub use self::{
    head::TypedDocument,
    read::{FormContent, FormDocuments, ReadDefinition},
};
use crate::{
    Definitions, ImportResult,
    document::{Mistakes, Node},
};

/// A system whose documents are converted to chains.
pub trait DocumentForm: fmt::Debug + Send + Sync + 'static {
    /// Returns the kinds of documents of the system.
    fn kinds(&self) -> &'static [DocumentKind];

    /// Returns the kind of a document with this `kind` and `apiVersion`, even if the version is unsupported; `None` if
    /// the document belongs to another system. Default: the kind whose name is `kind`.
    fn recognize(&self, kind: &str, _version: &str) -> Option<&'static DocumentKind> {
        self.kinds().iter().find(|known| known.name == kind)
    }

    /// Returns the object that contains the definition's name. Default: the field `metadata`.
    fn metadata<'a>(&self, document: &TypedDocument<'a>) -> Option<Node<'a>> {
        document.root.silent().object_of_any_case()?.optional("metadata")
    }

    /// Reads a document on its own, as far as possible, and reports all mistakes in it.
    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent>;

    /// Reports conflicts with earlier definitions of this system, except name conflicts. Default: none.
    fn check_conflicts(
        &self,
        _new: &ReadDefinition,
        _earlier: &[Arc<ReadDefinition>],
        _mistakes: &mut Mistakes,
    ) {
    }

    /// Adds the chains and exceptions that all documents of this system define together, and reports documents that
    /// refer to a missing document. Default: one chain per document that defines one.
    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, _mistakes: &mut Mistakes) {
        defined.chains.extend(all.chains());
    }

    /// Returns the object to store if `applied` replaces `replaced` in a store of entries. Default: `None`, which
    /// stores `applied` itself.
    fn merge(&self, _applied: Json, _replaced: &Json) -> Option<Json> {
        None
    }

    /// If importing a document of this kind always has the same result, returns the result and the reason. Default:
    /// `None`.
    fn import(&self, _kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        None
    }
}

/// A kind of documents.
#[derive(Debug)]
pub struct DocumentKind {
    /// The value of `kind`.
    pub name: &'static str,
    /// The supported values of `apiVersion`; messages suggest the first. A value that ends in `/` stands for all
    /// versions of a group, and an empty value for a document without a version.
    pub versions: &'static [&'static str],
    /// Whether definitions are in namespaces. If so, their names are `{namespace}/{name}`.
    pub is_namespaced: bool,
    /// Whether chains depend on the definition, although it is neither a chain nor a stage.
    pub is_supporting: bool,
    /// Whether other documents refer to the definition, so that it is read even in an unsupported version.
    pub is_needed: bool,
    /// The fields by which a document without `kind` is recognised; one of them is enough.
    pub fields: &'static [&'static str],
    /// If documents of this kind are refused, the reason and the fix. Such a kind has no versions.
    pub refusal: Option<(&'static str, &'static str)>,
}

impl DocumentKind {
    /// Creates a kind of definitions without a namespace.
    pub const fn new(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            name,
            versions,
            is_namespaced: false,
            is_supporting: false,
            is_needed: false,
            fields: &[],
            refusal: None,
        }
    }

    /// Creates a kind of definitions in namespaces.
    pub const fn namespaced(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_namespaced: true,
            ..Self::new(name, versions)
        }
    }

    /// Creates a kind of definitions on which chains depend.
    pub const fn supporting(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_supporting: true,
            ..Self::new(name, versions)
        }
    }

    /// Creates a kind of definitions that other documents refer to.
    pub const fn needed(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_needed: true,
            ..Self::new(name, versions)
        }
    }

    /// Creates a kind of definitions that are refused for this reason, with this fix.
    pub const fn refused(name: &'static str, reason: &'static str, fix: &'static str) -> Self {
        Self {
            refusal: Some((reason, fix)),
            ..Self::new(name, &[])
        }
    }

    /// Returns whether this version is supported.
    pub fn supports(&self, version: &str) -> bool {
        let is_version =
            |known: &&&str| **known == version || known.ends_with('/') && version.starts_with(**known);
        self.versions.iter().find(is_version).is_some()
    }

    /// Returns the version that messages suggest.
    fn version(&self) -> &'static str {
        self.versions.first().copied().unwrap_or_default()
    }
}

/// The systems whose documents are read. Cheap to clone. Default: all systems of this crate.
#[derive(Clone, Debug)]
pub struct DocumentForms {
    list: Arc<[Arc<dyn DocumentForm>]>,
    /// The fix for a document of an unknown kind, which lists all kinds.
    fix: Arc<str>,
}

impl DocumentForms {
    fn new(list: Vec<Arc<dyn DocumentForm>>) -> Self {
        Self {
            fix: fix(&list).into(),
            list: list.into(),
        }
    }

    /// Adds a system for documents that no earlier system recognises.
    #[must_use]
    pub fn and(&self, form: Arc<dyn DocumentForm>) -> Self {
        Self::new(self.list.iter().cloned().chain([form]).collect())
    }

    /// Returns the kinds that an import converts or keeps.
    pub fn importable(&self) -> impl Iterator<Item = &'static DocumentKind> {
        let is_left_out =
            |form: &dyn DocumentForm, kind| matches!(form.import(kind), Some((ImportResult::LeftOut, _)));
        let kinds = self
            .kinds()
            .filter(move |(form, kind)| !is_left_out(&***form, kind));
        kinds.map(|(_, kind)| kind)
    }
}

impl Default for DocumentForms {
    fn default() -> Self {
        static OWN: LazyLock<DocumentForms> = LazyLock::new(|| {
            DocumentForms::new(vec![
                Arc::new(native::Native),
                Arc::new(kubernetes::Kubernetes),
                Arc::new(kubewarden::Kubewarden),
                Arc::new(gatekeeper::Gatekeeper),
                Arc::new(kyverno::Kyverno),
                Arc::new(openkruise::OpenKruise),
                Arc::new(bcs::Bcs),
            ])
        });
        OWN.clone()
    }
}

/// Lists all kinds in a sentence, grouped by version: `write an A or B (v1), or a C (v2)`.
fn fix(forms: &[Arc<dyn DocumentForm>]) -> String {
    let all_kinds = forms.iter().flat_map(|form| form.kinds());
    let kinds: Vec<_> = all_kinds.filter(|kind| !kind.versions.is_empty()).collect();
    let groups: Vec<_> = kinds.chunk_by(|a, b| a.version() == b.version()).collect();
    let phrases = groups.iter().filter_map(|group| {
        let version = group.first()?.version();
        let names = enumerated(group.iter().map(|kind| kind.name), "or");
        let article = if names.starts_with(['A', 'E', 'a', 'e']) {
            "an"
        } else {
            "a"
        };
        Some(format!("{article} {names} ({version})"))
    });
    format!("write {}", enumerated(phrases, "or"))
}
