//! Reads `ExpansionTemplate`, which declares generated objects, such as the Pods of Deployments.

use std::sync::Arc;

use admittance_admission::{GroupVersionKind, MatchPolicy, Matcher, Operation, Rule};
use admittance_mutation::{Expansion, Generation, Mutator};

use super::{
    ReadDefinition, check_name,
    constraint::{ACTIONS, Enforcement},
    mutator::{ApplyTo, read_apply_to},
    sync::read_kind,
};
use crate::{
    Location,
    document::{Mistakes, Node, quoted},
    forms::kubernetes::read_head,
    model::any_rule,
};

#[derive(Debug)]
pub(super) struct ExpansionDocument {
    pub(super) name: String,
    pub(super) location: Location,
    apply_to: Vec<ApplyTo>,
    generation: Generation,
    /// The action if a generated object violates a constraint; `None` for the action of the constraint itself.
    enforcement: Option<Enforcement>,
}

/// A sequence of expansion templates. The first one generates an object from the object of a request. Each further one
/// generates an object from the object that the template before it has generated.
#[derive(Clone)]
pub(super) struct ExpansionPath<'a> {
    first_template: &'a ExpansionDocument,
    further_templates: Vec<&'a ExpansionDocument>,
}

pub(super) fn read(root: &Node<'_>) -> Option<ExpansionDocument> {
    let fix = "write what is generated of what: `spec: { applyTo: ..., templateSource: ..., generatedGVK: ... }`";
    let (name, mut spec) = read_head(root, fix)?;
    let apply_to = read_apply_to(&mut spec);
    let fix = "write the path of the generated object: `templateSource: spec.template`";
    let source = spec.get_required("templateSource", fix, read_source);
    let fix = "name what is generated: `generatedGVK: { group: \"\", version: v1, kind: Pod }`";
    let kind = spec.get_required("generatedGVK", fix, read_kind);
    let action = |node: &Node<'_>| {
        let none = [("", None)];
        let actions = ACTIONS.map(|(name, action)| (name, Some(action)));
        let all_actions = none.into_iter().chain(actions);
        let actions: Vec<_> = all_actions.filter(|(name, _)| *name != "scoped").collect();
        node.one_of("enforcement action", &actions)
    };
    let enforcement = spec.get_optional("enforcementAction", action);
    let name = name?;
    check_name(root, &name);
    Some(ExpansionDocument {
        name,
        location: root.location(),
        apply_to: apply_to?,
        generation: Generation {
            source: source?,
            kind: kind?,
        },
        enforcement: enforcement.flatten(),
    })
}

fn read_source(node: &Node<'_>) -> Option<Vec<String>> {
    let path: Vec<String> = node.text()?.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        let fix = "write the names of fields: `spec.template`";
        return node.reject("a field of the path is empty", fix);
    }
    Some(path)
}

impl ExpansionDocument {
    fn applies_to(&self, kind: &GroupVersionKind) -> bool {
        self.apply_to.iter().any(|entry| entry.is_for(kind))
    }

    /// Reports a cycle of expansion templates, in which a kind generates itself. Gatekeeper ignores such templates.
    pub(super) fn check_cycles(&self, other_templates: &[&Self], definition: &ReadDefinition, mistakes: &mut Mistakes) {
        let mut reached_templates = vec![self];
        let mut next = 0;
        while let Some(template) = reached_templates.get(next).copied() {
            next += 1;
            if self.applies_to(&template.generation.kind) {
                let through = match next {
                    1 => String::new(),
                    _ => format!(" by {} in {}", quoted(&template.name), template.location),
                };
                let message = format!("what it generates leads{through} to objects that it applies to");
                definition.add_mistake(message, "correct `applyTo` or `generatedGVK`", mistakes);
                return;
            }
            let is_new = |other: &&&Self| {
                other.applies_to(&template.generation.kind)
                    && !reached_templates.iter().any(|reached| std::ptr::eq(*reached, **other))
            };
            let new_templates: Vec<&Self> = other_templates.iter().filter(is_new).copied().collect();
            reached_templates.extend(new_templates);
        }
    }
}

pub(super) fn expansion_paths<'a>(templates: &[&'a ExpansionDocument]) -> Vec<ExpansionPath<'a>> {
    let mut paths: Vec<ExpansionPath<'a>> = templates
        .iter()
        .map(|&first| ExpansionPath {
            first_template: first,
            further_templates: Vec::new(),
        })
        .collect();
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let kind = &path.last_template().generation.kind;
        for &template in templates.iter().filter(|template| template.applies_to(kind)) {
            let mut longer = path.clone();
            longer.further_templates.push(template);
            paths.push(longer);
        }
    }
    paths.sort_by_key(ExpansionPath::name);
    paths
}

impl<'a> ExpansionPath<'a> {
    fn templates(&self) -> impl Iterator<Item = &'a ExpansionDocument> {
        std::iter::once(self.first_template).chain(self.further_templates.iter().copied())
    }

    fn last_template(&self) -> &'a ExpansionDocument {
        self.further_templates.last().copied().unwrap_or(self.first_template)
    }

    pub(super) fn name(&self) -> String {
        let names: Vec<&str> = self.templates().map(|template| template.name.as_str()).collect();
        names.join("/")
    }

    pub(super) fn kind(&self) -> &'a GroupVersionKind {
        &self.last_template().generation.kind
    }

    pub(super) fn enforcement(&self) -> Option<Enforcement> {
        self.last_template().enforcement
    }

    pub(super) fn message_prefix(&self, constraint: &str) -> String {
        format!("[{constraint}] [Implied by {}]", self.last_template().name)
    }

    pub(super) fn expansion(&self, mutators: &Arc<[Mutator]>) -> Expansion {
        let changing = Rule {
            operations: Matcher::Only(vec![Operation::Create, Operation::Update]),
            match_policy: MatchPolicy::Exact,
            ..any_rule()
        };
        let generators = self.first_template.apply_to.iter();
        Expansion {
            generators: generators.filter_map(|entry| entry.narrow(&changing)).collect(),
            steps: self.templates().map(|template| template.generation.clone()).collect(),
            mutators: Arc::clone(mutators),
        }
    }
}
