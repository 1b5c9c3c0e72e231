//! Determines the kinds of documents, and splits lists of definitions into their items.

use std::sync::Arc;

use admittance_admission::suggestion_or;

use super::{DocumentForm, DocumentForms, DocumentKind};
use crate::{
    DefinitionId,
    document::{Node, quoted},
    identity::definition_name,
};

/// A document, or an item of a list, whose kind is known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TypedDocument<'a> {
    /// The kind of the document or item.
    pub kind: &'static DocumentKind,
    /// The `apiVersion` of the document or item, or of the list if the item omits it; empty if there is none.
    pub version: &'a str,
    /// The root value of the document or item.
    pub root: Node<'a>,
    pub(super) form: Arc<dyn DocumentForm>,
}

impl TypedDocument<'_> {
    pub(crate) fn id(&self) -> Option<DefinitionId> {
        let mut fields = self.root.ignoring_mistakes().object_of_any_case()?;
        let kind = fields.optional("kind").and_then(|kind| kind.text());
        let mut metadata = self.form.metadata(self)?.ignoring_mistakes().object_of_any_case()?;
        let name = metadata.optional("name")?.text()?;
        Some(DefinitionId {
            kind: kind.unwrap_or(self.kind.name).to_owned(),
            name: if self.kind.is_namespaced {
                definition_name(metadata.optional("namespace")?.text()?, name)
            } else {
                name.to_owned()
            },
        })
    }
}

impl DocumentForms {
    /// Returns the definitions in a document: the document itself or, if it is a list, each of its items.
    pub(crate) fn definitions<'a>(&self, root: &Node<'a>) -> Vec<TypedDocument<'a>> {
        let fields = root.ignoring_mistakes().object();
        let is_known = |field: &&str| fields.as_ref().is_some_and(|fields| fields.has(field));
        let has_field = |kind: &'static DocumentKind| kind.fields.iter().any(&is_known);
        if let Some((form, kind)) = self.kinds().find(|(_, kind)| has_field(kind)) {
            return vec![TypedDocument {
                kind,
                version: "",
                root: root.clone(),
                form: form.clone(),
            }];
        }
        let Some(head) = DocumentHead::read(root, self) else {
            return Vec::new();
        };
        // kubectl prints a list of the kind `List`. An API server names a list after its items, such as `SyncSetList`.
        let kind_of_items = head.kind.strip_suffix("List");
        let item_form = kind_of_items.and_then(|kind| self.recognize(kind, head.version));
        match item_form {
            Some((_, kind)) if !kind.supports_version(head.version) => {
                head.report_wrong_version(kind.version());
                return Vec::new();
            }
            None if (head.kind, head.version) != ("List", "v1") => {
                return Vec::from_iter(head.into_document(self));
            }
            _ => {}
        }
        let mut definitions = Vec::new();
        let Some(mut fields) = root.object() else {
            return definitions;
        };
        fields.ignore(&["apiVersion", "kind", "metadata"]);
        let items = fields.optional("items").and_then(|items| items.list());
        for item in items.unwrap_or_default() {
            definitions.extend(match item_form {
                Some((form, kind)) if item.object().is_some_and(|fields| !fields.has("kind")) => Some(TypedDocument {
                    kind,
                    version: head.version,
                    root: item,
                    form: form.clone(),
                }),
                _ => DocumentHead::read(&item, self).and_then(|head| head.into_document(self)),
            });
        }
        definitions
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (&Arc<dyn DocumentForm>, &'static DocumentKind)> {
        let forms = self.forms.iter();
        forms.flat_map(|form| form.kinds().iter().map(move |kind| (form, kind)))
    }

    fn recognize(&self, kind: &str, version: &str) -> Option<(&Arc<dyn DocumentForm>, &'static DocumentKind)> {
        let mut forms = self.forms.iter();
        forms.find_map(|form| Some((form, form.recognize(kind, version)?)))
    }
}

/// The kind of a file with an admission request. People sometimes pass it by mistake, so it has its own fix.
const REVIEW_KIND: &str = "AdmissionReview";
const REVIEW_FIX: &str = "it is a request, not a definition: `admittance run CHAINS REQUEST` and `admittance replay \
                          REQUESTS CHAINS` evaluate requests";

struct DocumentHead<'a> {
    root: Node<'a>,
    kind_node: Node<'a>,
    kind: &'a str,
    version_node: Option<Node<'a>>,
    version: &'a str,
}

impl<'a> DocumentHead<'a> {
    fn read(root: &Node<'a>, forms: &DocumentForms) -> Option<Self> {
        let mut fields = root.object_of_any_case()?.ignoring_others();
        if !fields.has("kind") && fields.has("dialect") {
            let message = "this is a configuration of `admittance serve`, not a definition";
            return root.reject(message, "name it with `--config`, and definitions in this place");
        }
        let kind_node = fields.required("kind", &forms.fix)?;
        let kind = kind_node.text()?;
        let version_node = fields.optional("apiVersion");
        let version = match &version_node {
            Some(version) => version.string()?,
            None => "",
        };
        Some(Self {
            root: root.clone(),
            kind_node,
            kind,
            version_node,
            version,
        })
    }

    fn into_document(self, forms: &DocumentForms) -> Option<TypedDocument<'a>> {
        let Some((form, kind)) = forms.recognize(self.kind, self.version) else {
            let version_suffix = if self.version.is_empty() {
                String::new()
            } else {
                format!(" of {}", self.version)
            };
            let message = format!("{kind}{version_suffix} is not known here", kind = quoted(self.kind));
            let fix = if self.kind == REVIEW_KIND {
                REVIEW_FIX.to_owned()
            } else {
                // If the document has an API group, only kinds of this group are suggested.
                let group = |version: &str| version.rsplit_once('/').map(|(group, _)| group.to_owned());
                let is_near = |version: &&str| self.version.is_empty() || group(version) == group(self.version);
                let all_kinds = forms.kinds().map(|(_, kind)| kind);
                let kinds = all_kinds.filter(|kind| kind.versions.iter().any(is_near));
                suggestion_or(self.kind, kinds.map(|kind| kind.name), &forms.fix)
            };
            return self.kind_node.reject(message, fix);
        };
        if let Some((reason, fix)) = kind.refusal {
            return self.kind_node.reject(reason, fix);
        }
        if !kind.supports_version(self.version) {
            self.report_wrong_version(kind.version());
            if !kind.is_needed {
                return None;
            }
        }
        Some(TypedDocument {
            kind,
            version: self.version,
            root: self.root,
            form: form.clone(),
        })
    }

    fn report_wrong_version(&self, right: &str) {
        let fix = format!("write `apiVersion: {right}`");
        match &self.version_node {
            Some(node) => {
                let message = format!(
                    "{version} is not a supported version of {kind}",
                    version = quoted(self.version),
                    kind = self.kind
                );
                node.add_mistake(message, fix);
            }
            None => self.root.add_mistake("apiVersion is missing", fix),
        }
    }
}
