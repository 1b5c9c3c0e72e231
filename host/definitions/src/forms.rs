//! The policy systems, such as Kubernetes or Gatekeeper, whose documents are converted to chains.
//!
//! Each policy system has a submodule, and an entry in the list of [`DocumentForms`]; an embedding program can add
//! entries. Code outside of the submodule uses only the methods of [`DocumentForm`].

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

/// A policy system, such as Gatekeeper, whose documents are converted to chains.
pub trait DocumentForm: fmt::Debug + Send + Sync + 'static {
    /// Returns the kinds of documents that the policy system defines.
    fn kinds(&self) -> &'static [DocumentKind];

    /// Returns the kind of a document with this `kind` and `apiVersion`, even if the version is not supported. Returns
    /// `None` if the document belongs to another policy system. Default: searches [`kinds`](Self::kinds) for a kind
    /// with this name.
    fn recognize(&self, kind: &str, _version: &str) -> Option<&'static DocumentKind> {
        self.kinds().iter().find(|document_kind| document_kind.name == kind)
    }

    /// Returns the object that contains the definition's name. Default: the field `metadata`.
    fn metadata<'a>(&self, document: &TypedDocument<'a>) -> Option<Node<'a>> {
        document
            .root
            .ignoring_mistakes()
            .object_of_any_case()?
            .optional("metadata")
    }

    /// Reads a document without regard to others, and reports all its mistakes. Parts with mistakes are left out.
    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent>;

    /// Reports conflicts of a new definition with earlier definitions of this policy system. Names need not be
    /// compared, because the caller does it. Default: no conflicts.
    fn check_conflicts(&self, _new: &ReadDefinition, _earlier: &[Arc<ReadDefinition>], _mistakes: &mut Mistakes) {}

    /// Adds the chains and exceptions that all documents of this policy system define together, and reports documents
    /// that refer to a missing document. Default: adds the chain of each document that defines one.
    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, _mistakes: &mut Mistakes) {
        defined.chains.extend(all.chains());
    }

    /// Returns the object to store when the document `applied` replaces the document `replaced` in an entry of a store.
    /// Default: `None`, so that `applied` is stored unchanged.
    fn merge(&self, _applied: Json, _replaced: &Json) -> Option<Json> {
        None
    }

    /// If an import has the same result for all documents of this kind, returns this result and the reason for it.
    /// Default: `None`, because the result depends on the document.
    fn import(&self, _kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        None
    }
}

/// A kind of documents of a policy system, such as `ConstraintTemplate`.
#[derive(Debug)]
pub struct DocumentKind {
    /// The value of `kind` in documents of this kind.
    pub name: &'static str,
    /// The supported values of `apiVersion`. Messages suggest the first one. A value that ends in `/` stands for all
    /// versions of a group, and an empty value stands for a document without a version.
    pub versions: &'static [&'static str],
    /// Whether definitions of this kind belong to a namespace. If so, their names are `{namespace}/{name}`.
    pub is_namespaced: bool,
    /// Whether definitions of this kind define no chain or stage themselves, but chains depend on them. An example is
    /// the kind `SyncSet` of Gatekeeper.
    pub is_supporting: bool,
    /// Whether other documents refer to definitions of this kind. If so, a document of this kind with an unsupported
    /// version is reported, but still read.
    pub is_needed: bool,
    /// The fields from which a document without `kind` is recognised as one of this kind. One of the fields is enough.
    pub fields: &'static [&'static str],
    /// The reason and the fix if documents of this kind are refused. Such a kind has no versions.
    pub refusal: Option<(&'static str, &'static str)>,
}

impl DocumentKind {
    /// Creates a kind whose definitions belong to no namespace.
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

    /// Creates a kind whose definitions belong to a namespace.
    pub const fn namespaced(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_namespaced: true,
            ..Self::new(name, versions)
        }
    }

    /// Creates a [supporting](Self::is_supporting) kind: chains depend on its definitions.
    pub const fn supporting(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_supporting: true,
            ..Self::new(name, versions)
        }
    }

    /// Creates a [needed](Self::is_needed) kind: other documents refer to its definitions.
    pub const fn needed(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_needed: true,
            ..Self::new(name, versions)
        }
    }

    /// Creates a kind whose definitions are refused for this reason, with this fix.
    pub const fn refused(name: &'static str, reason: &'static str, fix: &'static str) -> Self {
        Self {
            refusal: Some((reason, fix)),
            ..Self::new(name, &[])
        }
    }

    /// Returns whether documents of this kind may have this `apiVersion`.
    pub fn supports_version(&self, version: &str) -> bool {
        let is_version =
            |supported: &&&str| **supported == version || supported.ends_with('/') && version.starts_with(**supported);
        self.versions.iter().find(is_version).is_some()
    }

    /// Returns the `apiVersion` that messages suggest for this kind.
    fn version(&self) -> &'static str {
        self.versions.first().copied().unwrap_or_default()
    }
}

/// The policy systems whose documents are read. Cheap to clone. Default: all policy systems of this crate.
#[derive(Clone, Debug)]
pub struct DocumentForms {
    forms: Arc<[Arc<dyn DocumentForm>]>,
    /// The fix for a document of an unknown kind. It lists the kinds of all policy systems.
    fix: Arc<str>,
}

impl DocumentForms {
    fn new(list: Vec<Arc<dyn DocumentForm>>) -> Self {
        Self {
            fix: kinds_fix(&list).into(),
            forms: list.into(),
        }
    }

    /// Adds a policy system, which gets the documents that no earlier system recognises.
    #[must_use]
    pub fn with_form(&self, form: Arc<dyn DocumentForm>) -> Self {
        Self::new(self.forms.iter().cloned().chain([form]).collect())
    }

    /// Returns the kinds of documents that an import converts or keeps unchanged. Documents of all other kinds are left
    /// out of the file that the import writes.
    pub fn importable_kinds(&self) -> impl Iterator<Item = &'static DocumentKind> {
        let is_left_out = |form: &dyn DocumentForm, kind| matches!(form.import(kind), Some((ImportResult::LeftOut, _)));
        let kinds = self.kinds().filter(move |(form, kind)| !is_left_out(&***form, kind));
        kinds.map(|(_, kind)| kind)
    }
}

impl Default for DocumentForms {
    fn default() -> Self {
        static DEFAULT_FORMS: LazyLock<DocumentForms> = LazyLock::new(|| {
            DocumentForms::new(vec![
                Arc::new(native::NativeForm),
                Arc::new(kubernetes::KubernetesForm),
                Arc::new(kubewarden::Kubewarden),
                Arc::new(gatekeeper::Gatekeeper),
                Arc::new(kyverno::Kyverno),
                Arc::new(openkruise::OpenKruise),
                Arc::new(bcs::BcsForm),
            ])
        });
        DEFAULT_FORMS.clone()
    }
}

/// Lists all kinds in a sentence, grouped by version: `write an A or B (v1), or a C (v2)`.
fn kinds_fix(forms: &[Arc<dyn DocumentForm>]) -> String {
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
