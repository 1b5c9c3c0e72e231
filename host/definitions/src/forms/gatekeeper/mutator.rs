//! Reads Gatekeeper's mutators: `Assign`, `AssignImage`, `AssignMetadata` and `ModifySet`.
//!
//! All mutators together form a single stage. Gatekeeper applies them one after another, again and again until the
//! object no longer changes, so they cannot be separate stages.

mod parameters;

use std::sync::Arc;

use admittance_admission::{
    FailurePolicy, GroupVersionKind, MatchPolicy, Matcher, Operation, Reinvocation, Rule, keywords,
};
use admittance_mutation::{self as mutation, Mutator};

use super::{
    ReadDefinition, check_name,
    matching::{self, Match, ObjectSource},
    sync::SyncDocument,
    template::{GatekeeperDocuments, read_operations},
};
use crate::{
    Location, Mistake, MutatorsDefinition,
    document::{Fields, Mistakes, Node, readers},
    forms::kubernetes::read_head,
    model::{ChainDefinition, StageDefinition},
    selectors,
};

/// The name of the chain of all mutators. Chains are called in alphabetical order, as kube-apiserver calls webhook
/// configurations. The name begins like the name of Gatekeeper's webhook configuration, so that the mutators are called
/// at the same point in this order.
pub(super) const CHAIN: &str = "gatekeeper-mutation";
/// The name of the stage with all mutators. It is also the name of Gatekeeper's webhook.
const STAGE_NAME: &str = "mutation.gatekeeper.sh";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MutatorKind {
    Assign,
    AssignImage,
    AssignMetadata,
    ModifySet,
}

keywords!(MutatorKind, "kind of mutator": Assign = "Assign", AssignImage = "AssignImage",
    AssignMetadata = "AssignMetadata", ModifySet = "ModifySet");

#[derive(Debug)]
pub(super) struct MutatorDocument {
    kind: MutatorKind,
    name: String,
    pub(super) source: Location,
    /// The kinds of objects that the mutator changes. An `AssignMetadata` lists no kinds, because it changes all kinds.
    apply_to: Vec<ApplyTo>,
    matching: Match,
    mutator: Mutator,
}

#[derive(Debug)]
pub(super) struct ApplyTo {
    groups: Vec<String>,
    versions: Vec<String>,
    kinds: Vec<String>,
    operations: Vec<Operation>,
}

pub(super) fn read(root: &Node<'_>, kind: MutatorKind) -> Option<MutatorDocument> {
    let fix = "write what is changed where: `spec: { location: ..., parameters: ... }`";
    let (name, mut spec) = read_head(root, fix)?;
    let apply_to = match kind {
        MutatorKind::AssignMetadata => Some(Vec::new()),
        _ => read_apply_to(&mut spec),
    };
    let matching = spec.get_or_default("match", matching::read);
    let location = spec.required("location", "write the path: `spec.containers[name: *].image`");
    let parsed = location.as_ref().and_then(|node| read_location(node));
    let fix = "write what is assigned: `parameters: { ... }`";
    let parameters = spec.get_required("parameters", fix, Node::object);
    let (location, parsed) = location.zip(parsed)?;
    let mutation = parameters.and_then(|fields| parameters::read(kind, &location, &parsed, fields));
    let name = name?;
    check_name(root, &name);
    let (mutation, tests) = mutation?;
    let mut mutator = Mutator::new(format!("{}/{name}", kind.as_str()), parsed, mutation);
    for (node, path, must_exist) in tests {
        node.accept(mutator.add_path_test(&path, must_exist))?;
    }
    mutator.labels = matching.labels.clone();
    Some(MutatorDocument {
        kind,
        name,
        source: root.location(),
        apply_to: apply_to?,
        matching,
        mutator,
    })
}

fn read_location(node: &Node<'_>) -> Option<mutation::FieldLocation> {
    node.parse_with(mutation::FieldLocation::parse)
}

pub(super) fn read_apply_to(spec: &mut Fields<'_>) -> Option<Vec<ApplyTo>> {
    let fix = "list the kinds: `applyTo: [ { groups: [\"\"], versions: [v1], kinds: [Pod] } ]`";
    let read_entry = |node: &Node<'_>| {
        let mut fields = node.object()?;
        let mut words = |name: &'static str, fix: &str| {
            let node = fields.required(name, fix)?;
            let words = node.filled_list_of(fix, |word| word.string())?;
            // Gatekeeper has no wildcards in `applyTo`: it takes `*` literally.
            if words.contains(&"*") {
                return node.reject("`*` has no meaning in `applyTo`", fix);
            }
            Some(words.into_iter().map(str::to_owned).collect::<Vec<String>>())
        };
        let groups = words("groups", "list the groups; the core group is \"\"");
        let versions = words("versions", "list the versions, `v1`");
        let kinds = words("kinds", "list the kinds, `Pod`");
        let all = || Operation::ALL.to_vec();
        let operations = fields.get_optional("operations", read_operations);
        Some(ApplyTo {
            groups: groups?,
            versions: versions?,
            kinds: kinds?,
            operations: operations.filter(|some| !some.is_empty()).unwrap_or_else(all),
        })
    };
    spec.get_required("applyTo", fix, readers::filled_list_of(fix, read_entry))
}

impl MutatorDocument {
    pub(super) fn full_name(&self) -> &str {
        &self.mutator.name
    }

    /// Reports a mistake if another mutator changes the same kind of objects at a location that contradicts the
    /// location of this mutator. An example is a field that is a list for one of them and an object for the other.
    /// Gatekeeper would apply neither of the two mutators.
    pub(super) fn check_consistency(
        &self,
        other_mutators: &[&Self],
        definition: &ReadDefinition,
        mistakes: &mut Mistakes,
    ) {
        let is_for_same = |other: &Self| {
            let mut entries = self.apply_to.iter();
            entries.any(|entry| other.apply_to.iter().any(|other| entry.overlaps(other)))
        };
        let contradicting_mutator = other_mutators
            .iter()
            .find(|other| self.mutator.contradicts(&other.mutator) && is_for_same(other));
        let Some(other) = contradicting_mutator else {
            return;
        };
        let message = format!(
            "its location contradicts that of {} in {}: there is a list in one where the other has something else, or a \
             list with other keys",
            other.full_name(),
            other.source
        );
        definition.add_mistake(message, "correct one of the locations", mistakes);
    }

    /// Returns the rules for the requests whose objects the mutator changes. An object must fit both `applyTo` and
    /// `match`. If no object can fit both, there are no rules.
    fn rules(&self) -> Vec<Rule> {
        let changing = [Operation::Create, Operation::Update];
        let rules = self.matching.rules(&changing).into_iter().map(|rule| Rule {
            match_policy: MatchPolicy::Exact,
            ..rule
        });
        if self.kind == MutatorKind::AssignMetadata {
            return rules.collect();
        }
        let narrowed = rules.flat_map(|rule| {
            let entries = self.apply_to.iter();
            entries.filter_map(move |entry| entry.narrow(&rule)).collect::<Vec<_>>()
        });
        narrowed.collect()
    }

    fn warning(&self, message: &str, fix: &str) -> Mistake {
        Mistake::new(&self.source, "", format!("{} {message}", self.full_name()), fix)
    }
}

impl ApplyTo {
    pub(super) fn is_for(&self, kind: &GroupVersionKind) -> bool {
        self.groups.contains(&kind.group) && self.versions.contains(&kind.version) && self.kinds.contains(&kind.kind)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let share = |one: &[String], other: &[String]| one.iter().any(|word| other.contains(word));
        share(&self.groups, &other.groups)
            && share(&self.versions, &other.versions)
            && share(&self.kinds, &other.kinds)
            && self
                .operations
                .iter()
                .any(|operation| other.operations.contains(operation))
    }

    pub(super) fn narrow(&self, rule: &Rule) -> Option<Rule> {
        let both = |matcher: &Matcher<String>, words: &[String]| {
            let matching = words.iter().filter(|word| match matcher {
                Matcher::Any => true,
                Matcher::Only(others) => others.contains(word),
            });
            let words: Vec<String> = matching.cloned().collect();
            (!words.is_empty()).then_some(Matcher::Only(words))
        };
        let Matcher::Only(operations) = &rule.operations else {
            return None;
        };
        let operations: Vec<Operation> = operations
            .iter()
            .copied()
            .filter(|operation| self.operations.contains(operation))
            .collect();
        Some(Rule {
            operations: (!operations.is_empty()).then_some(Matcher::Only(operations))?,
            api_groups: both(&rule.api_groups, &self.groups)?,
            kinds: both(&rule.kinds, &self.kinds)?,
            api_versions: Matcher::Only(self.versions.clone()),
            ..rule.clone()
        })
    }
}

/// Returns the mutators in the order in which they are applied to objects from `source`, which is either requests or
/// expansion templates. A mutator without rules is left out.
pub(super) fn select_mutators(
    documents: &[&MutatorDocument],
    source: ObjectSource,
    syncs: &[&SyncDocument],
) -> Vec<Mutator> {
    let excluded: Vec<String> = syncs
        .iter()
        .flat_map(|sync| sync.excluded_from_mutation.iter().cloned())
        .collect();
    let mut documents: Vec<_> = documents
        .iter()
        .filter(|document| document.matching.source.includes(source))
        .collect();
    documents.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    let mutator = |document: &&&MutatorDocument| {
        let mut mutator = document.mutator.clone();
        let matching = &document.matching;
        mutator.request_filter.namespace_selector =
            selectors::namespaces_with_labels(matching.namespace_labels.clone());
        mutator.request_filter.match_conditions = matching.conditions(&excluded);
        mutator.request_filter.rules = document.rules();
        (!mutator.request_filter.rules.is_empty()).then_some(mutator)
    };
    documents.iter().filter_map(mutator).collect()
}

pub(super) fn chain(all: &GatekeeperDocuments<'_>) -> Option<ChainDefinition> {
    let documents = &all.mutators;
    let kind_and_name = |document: &&&MutatorDocument| (document.kind, document.name.clone());
    let source = documents.iter().min_by_key(kind_and_name)?.source.clone();
    let mut warnings = Vec::new();
    for document in documents {
        if document.matching.source == ObjectSource::Generated && all.expansions.is_empty() {
            let message = "is for generated objects, and there is no ExpansionTemplate";
            let fix = "add the document of the template, or write `source: All`";
            warnings.push(document.warning(message, fix));
        } else if document.rules().is_empty() {
            let message = "is for no object: its `applyTo` and its `match` have nothing in common";
            warnings.push(document.warning(message, "correct one of them"));
        }
    }
    let mutators = select_mutators(documents, ObjectSource::Original, &all.syncs);
    let mut rules = Vec::new();
    for rule in mutators.iter().flat_map(|mutator| &mutator.request_filter.rules) {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    let mut stage = StageDefinition::new(STAGE_NAME, MutatorsDefinition(Arc::from(mutators)));
    stage.spec.rules.clone_from(&rules);
    stage.spec.failure_policy = FailurePolicy::Fail;
    stage.spec.reinvocation = Reinvocation::Never;
    stage.location = source.clone();
    // Without rules, the stage would be called for every request, so it is left out.
    let stages = if rules.is_empty() { Vec::new() } else { vec![stage] };
    Some(ChainDefinition {
        location: source,
        warnings,
        ..ChainDefinition::new(CHAIN, rules, stages)
    })
}

#[cfg(test)]
mod tests;
