//! Reads Gatekeeper's documents: `ConstraintTemplate`, constraints, `Config` and `SyncSet` (the kinds of the cluster
//! that policies may read), mutators, and `ExpansionTemplate`.
//!
//! A template becomes a chain, with a stage for each constraint. The host evaluates templates in CEL, and the stock
//! plugin `rego` evaluates templates in Rego. The stages of a Rego template share one configured plugin, whose settings
//! contain all constraints; each stage selects its own constraint. If expansion templates generate objects that match a
//! constraint, it has additional stages for these objects.

mod constraint;
mod expansion;
mod inventory;
mod matching;
mod mutator;
mod schema;
mod sync;
mod template;

use std::sync::Arc;

use admittance_admission::Phase;

use self::{
    constraint::ConstraintDocument,
    expansion::ExpansionDocument,
    mutator::{MutatorDocument, MutatorKind},
    sync::SyncDocument,
    template::{GatekeeperDocuments, TemplateDocument},
};
use super::{DocumentForm, DocumentKind, FormContent, FormDocuments, ReadDefinition, TypedDocument, parts};
use crate::{
    Definitions, ImportResult,
    document::{Mistakes, Node, quoted},
};

const MUTATION_VERSIONS: &[&str] = &[
    "mutations.gatekeeper.sh/v1",
    "mutations.gatekeeper.sh/v1beta1",
    "mutations.gatekeeper.sh/v1alpha1",
    "mutations.gatekeeper.sh/",
];

static KINDS: [DocumentKind; 9] = [
    DocumentKind::new(
        "ConstraintTemplate",
        &[
            "templates.gatekeeper.sh/v1",
            "templates.gatekeeper.sh/v1beta1",
            "templates.gatekeeper.sh/",
        ],
    ),
    // `constraint` stands for many kinds, because each ConstraintTemplate defines the kind of its constraints.
    DocumentKind::new(
        "constraint",
        &["constraints.gatekeeper.sh/v1beta1", "constraints.gatekeeper.sh/"],
    ),
    DocumentKind::supporting("Config", &["config.gatekeeper.sh/v1alpha1", "config.gatekeeper.sh/"]),
    DocumentKind::supporting("SyncSet", &["syncset.gatekeeper.sh/v1alpha1", "syncset.gatekeeper.sh/"]),
    DocumentKind::supporting(
        "ExpansionTemplate",
        &[
            "expansion.gatekeeper.sh/v1beta1",
            "expansion.gatekeeper.sh/v1alpha1",
            "expansion.gatekeeper.sh/",
        ],
    ),
    DocumentKind::new(MutatorKind::Assign.as_str(), MUTATION_VERSIONS),
    DocumentKind::new(MutatorKind::AssignImage.as_str(), MUTATION_VERSIONS),
    DocumentKind::new(MutatorKind::AssignMetadata.as_str(), MUTATION_VERSIONS),
    DocumentKind::new(MutatorKind::ModifySet.as_str(), MUTATION_VERSIONS),
];

#[derive(Debug)]
pub(super) struct Gatekeeper;

impl DocumentForm for Gatekeeper {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn recognize(&self, kind: &str, version: &str) -> Option<&'static DocumentKind> {
        let [template, constraint, others @ ..] = &KINDS;
        if kind == template.name {
            return Some(template);
        }
        // Other projects use some of the same names for kinds, such as `Config`. Therefore the version of the document
        // must also be one that Gatekeeper uses for the kind.
        let mut supported = others.iter().filter(|other| other.supports_version(version));
        let other = supported.find(|other| other.name == kind);
        other.or_else(|| constraint.supports_version(version).then_some(constraint))
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        let TypedDocument { kind, root, .. } = document;
        let phase = Phase::Validating;
        Some(match kind.name {
            "ConstraintTemplate" => {
                let template = template::read(root)?;
                FormContent::of_part("chain", phase, template.name.clone(), template)
            }
            "constraint" => {
                let constraint = constraint::read(root)?;
                let name = format!("{}/{}", constraint.kind, constraint.name);
                FormContent::of_part("constraint", phase, name, constraint)
            }
            "Config" => FormContent::of_part("Config", phase, "config", sync::read_config(root)?),
            "SyncSet" => {
                let (name, sync) = sync::read_sync_set(root)?;
                FormContent::of_part("SyncSet", phase, name, sync)
            }
            "ExpansionTemplate" => {
                let template = expansion::read(root)?;
                FormContent::of_part("ExpansionTemplate", phase, template.name.clone(), template)
            }
            kind => {
                let mutator = mutator::read(root, kind.parse().ok()?)?;
                let (phase, name) = (Phase::Mutating, mutator.full_name().to_owned());
                let content = FormContent::of_part("mutator", phase, name, mutator);
                content.with_shared_name("chain", phase, mutator::CHAIN)
            }
        })
    }

    fn check_conflicts(&self, new: &ReadDefinition, earlier: &[Arc<ReadDefinition>], mistakes: &mut Mistakes) {
        if let Some(template) = new.part::<ExpansionDocument>() {
            template.check_cycles(&parts(earlier), new, mistakes);
        }
        if let Some(mutator) = new.part::<MutatorDocument>() {
            mutator.check_consistency(&parts(earlier), new, mistakes);
        }
    }

    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, mistakes: &mut Mistakes) {
        let templates = all.parts::<TemplateDocument>();
        let documents = GatekeeperDocuments {
            constraints: all.parts::<ConstraintDocument>(),
            syncs: all.parts::<SyncDocument>(),
            expansions: all.parts(),
            mutators: all.parts(),
        };
        for constraint in &documents.constraints {
            constraint.check(&templates, mistakes);
        }
        let chains = templates.iter().map(|template| template.chain(&documents, mistakes));
        defined.chains.extend(chains);
        defined.chains.extend(mutator::chain(&documents));
    }

    /// Returns `Kept` for every document. The chain of a template also depends on other documents, such as its
    /// constraints, so a single document cannot be converted.
    fn import(&self, _kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        Some((ImportResult::Kept, "documents of Gatekeeper have no native form"))
    }
}

/// Reports a name of more than 63 characters, which Gatekeeper rejects.
fn check_name(root: &Node<'_>, name: &str) {
    const MAX_NAME_LENGTH: usize = 63;
    if name.len() > MAX_NAME_LENGTH {
        let fix = format!("use {MAX_NAME_LENGTH} characters at most");
        root.add_mistake(format!("the name {} is too long", quoted(name)), fix);
    }
}

#[cfg(test)]
mod tests;
