//! The systems whose documents become chains.
//!
//! Each is a module in here and a row of [`DocumentForms`]; a program that embeds the host adds rows of its own. What
//! differs between systems is a method of [`DocumentForm`], so nothing outside of a system's module depends on which it is.

pub(crate) mod bcs;
pub(crate) mod gatekeeper;
mod head;
pub(crate) mod kubernetes;
mod kubewarden;
pub(crate) mod native;
mod openkruise;
mod read;

use std::{
    fmt::{self, Write as _},
    sync::{Arc, LazyLock},
};

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

/// A system whose documents become chains. Lives as long as the process.
pub trait DocumentForm: fmt::Debug + Send + Sync + 'static {
    /// The kinds of documents that it reads.
    fn kinds(&self) -> &'static [DocumentKind];

    /// The kind of a document with this `kind` and `apiVersion`, whether or not that version is supported; `None` if the
    /// document is of another system. Default: the kind of this name.
    fn recognize(&self, kind: &str, _version: &str) -> Option<&'static DocumentKind> {
        self.kinds().iter().find(|known| known.name == kind)
    }

    /// The object that names the definition. Default: the field `metadata`.
    fn metadata<'a>(&self, document: &TypedDocument<'a>) -> Option<Node<'a>> {
        let fields = document.root.object_of_any_case(&mut Mistakes::new());
        fields?.optional("metadata")
    }

    /// Reads a document by itself, as far as possible: what is missing is pushed to `mistakes`.
    fn read(&self, document: &TypedDocument<'_>, mistakes: &mut Mistakes) -> Option<FormContent>;

    /// Reports in which ways besides names a definition conflicts with the earlier ones of this system. Default: none.
    fn check_conflicts(
        &self,
        _new: &ReadDefinition,
        _earlier: &[Arc<ReadDefinition>],
        _mistakes: &mut Mistakes,
    ) {
    }

    /// Adds what all documents of this system mean together, and reports those that lack another one. Default: the chain of
    /// each.
    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, _mistakes: &mut Mistakes) {
        defined.chains.extend(all.chains());
    }

    /// The document to write to a store of entries in place of `replaced`; `None` if it is written as it was applied.
    fn merge(&self, _applied: Json, _replaced: &Json) -> Option<Json> {
        None
    }

    /// The result of importing documents of this kind, and why, if they never become native chains. Default: they do.
    fn import(&self, _kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        None
    }
}

/// A kind of documents. Constant.
#[derive(Debug)]
pub struct DocumentKind {
    /// The value of `kind`.
    pub name: &'static str,
    /// The values of `apiVersion` that are read; the first one is that to write. One that ends in `/` stands for all
    /// versions of a group, and an empty one for a document without a version.
    pub versions: &'static [&'static str],
    /// Whether definitions are in namespaces, so that their names are `{namespace}/{name}`.
    pub is_namespaced: bool,
    /// Whether chains depend on the definition, which is neither a chain nor a stage.
    pub is_supporting: bool,
    /// Whether other documents need the definition, so that it is also read in a version that is not supported: then only
    /// the version is a mistake.
    pub is_needed: bool,
    /// The fields that identify a document without a kind: one of them suffices.
    pub fields: &'static [&'static str],
}

impl DocumentKind {
    /// A kind of definitions that are in no namespace.
    pub const fn new(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            name,
            versions,
            is_namespaced: false,
            is_supporting: false,
            is_needed: false,
            fields: &[],
        }
    }

    /// A kind of definitions in namespaces.
    pub const fn namespaced(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_namespaced: true,
            ..Self::new(name, versions)
        }
    }

    /// A kind of definitions on which chains depend.
    pub const fn supporting(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_supporting: true,
            ..Self::new(name, versions)
        }
    }

    /// A kind of definitions that other documents need.
    pub const fn needed(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self {
            is_needed: true,
            ..Self::new(name, versions)
        }
    }

    /// Whether documents of this version are read.
    pub fn supports(&self, version: &str) -> bool {
        let is_it =
            |known: &&&str| **known == version || known.ends_with('/') && version.starts_with(**known);
        self.versions.iter().find(is_it).is_some()
    }

    /// The version to write.
    fn version(&self) -> &'static str {
        self.versions.first().copied().unwrap_or_default()
    }
}

/// The systems whose documents are read, as a list. Cheap to clone. Default: all of this crate.
#[derive(Clone, Debug)]
pub struct DocumentForms {
    list: Arc<[Arc<dyn DocumentForm>]>,
    /// Says which kinds can be written.
    fix: Arc<str>,
}

impl DocumentForms {
    fn new(list: Vec<Arc<dyn DocumentForm>>) -> Self {
        Self {
            fix: fix(&list).into(),
            list: list.into(),
        }
    }

    /// These systems and one more, which gets only documents that none of them recognizes.
    #[must_use]
    pub fn and(&self, form: Arc<dyn DocumentForm>) -> Self {
        Self::new(self.list.iter().cloned().chain([form]).collect())
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
                Arc::new(openkruise::OpenKruise),
                Arc::new(bcs::Bcs),
            ])
        });
        OWN.clone()
    }
}

/// Lists all kinds in a sentence, with the kinds of one version together: `write an A or B (v1), or a C (v2)`.
fn fix(forms: &[Arc<dyn DocumentForm>]) -> String {
    let kinds = forms.iter().flat_map(|form| form.kinds());
    let kinds: Vec<_> = kinds.filter(|kind| !kind.versions.is_empty()).collect();
    let groups: Vec<_> = kinds.chunk_by(|a, b| a.version() == b.version()).collect();
    let mut fix = "write ".to_owned();
    for (index, group) in groups.iter().enumerate() {
        let separator = match index {
            0 => "",
            _ if index + 1 == groups.len() => " or ",
            _ => ", ",
        };
        let Some((last, others)) = group.split_last() else {
            continue;
        };
        let others: Vec<_> = others.iter().map(|kind| kind.name).collect();
        let names = match others.is_empty() {
            true => last.name.to_owned(),
            false => format!("{} or {}", others.join(", "), last.name),
        };
        let article = if names.starts_with(['A', 'E', 'a', 'e']) {
            "an"
        } else {
            "a"
        };
        // Writing to a text does not fail.
        let _ = write!(fix, "{separator}{article} {names} ({})", last.version());
    }
    fix
}
