//! Checks the types of policies against the schemas of the kinds that they are for, as kube-apiserver does for their
//! status.

use std::sync::Arc;

use admittance_admission::{ClusterKind, GroupVersionKind, Matcher, Phase, Rule};
use admittance_conditions::{Policy, PolicyCompiler, Role, Structure};

use super::resource::{Resource, ResourceDocument};
use crate::{
    CelDefinition, ChainDefinition, Location,
    document::{Mistake, Node},
};

/// The most kinds with which a policy is checked.
const MOST_KINDS: usize = 10;

/// The structures of custom resources.
pub(super) type Structures = Arc<Vec<(GroupVersionKind, Structure)>>;

/// An expression of a policy as it was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// The name of the variable whose value it is.
    pub(crate) variable: Option<String>,
    role: Role,
    text: String,
    location: Location,
    path: String,
}

/// The place of an expression makes no difference.
impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        (self.role, &self.text) == (other.role, &other.text)
    }
}

impl Written {
    pub(crate) fn new(node: &Node<'_>, role: Role, text: &str) -> Self {
        Self {
            variable: None,
            role,
            text: text.to_owned(),
            location: node.location(),
            path: node.path().to_owned(),
        }
    }

    fn warning(&self, message: String, fix: &str) -> Mistake {
        Mistake {
            location: self.location.clone(),
            path: self.path.clone(),
            message,
            fix: fix.to_owned(),
        }
    }
}

/// The structures of these resources.
pub(super) fn structures(resources: &[&ResourceDocument]) -> Structures {
    let known = resources.iter().flat_map(|document| &document.resources);
    Arc::new(
        known
            .map(|resource| (resource.kind.clone(), resource.structure.clone()))
            .collect(),
    )
}

/// Lets the stages in CEL of native chains use the schemas of these resources. What does not fit them is a warning.
pub(crate) fn use_schemas(chains: &mut [ChainDefinition], resources: &[&ResourceDocument]) {
    let structures = structures(resources);
    for chain in chains {
        for stage in &mut chain.stages {
            let Some(cel) = stage.hook.get_mut::<CelDefinition>() else {
                continue;
            };
            let rules = match stage.spec.rules.as_slice() {
                [] => &chain.rules,
                rules => rules,
            };
            let types = warnings(&cel.written, rules, None, resources);
            let misfits = misfits(&cel.written, &cel.policy, rules, resources);
            chain.warnings.extend(types.into_iter().chain(misfits));
            if chain.phase == Phase::Mutating {
                cel.binding.structures = structures.clone();
            }
        }
    }
}

/// Warns about values that mutations set and that do not fit the kinds that the rules name, or any kind.
pub(super) fn misfits(
    written: &[Written],
    policy: &Policy,
    rules: &[Rule],
    known: &[&ResourceDocument],
) -> Vec<Mistake> {
    let places = written
        .iter()
        .filter(|written| matches!(written.role, Role::ApplyConfiguration | Role::JsonPatch));
    let places: Vec<_> = places.collect();
    let given = known.iter().flat_map(|document| &document.resources);
    let given = given.map(|resource| {
        (
            &resource.kind,
            resource.plural.clone(),
            resource.structure.clone(),
        )
    });
    let own = Structure::builtin_kinds().filter_map(|kind| {
        let structure = Structure::builtin(kind)?;
        Some((kind, kind.guess_resource().resource, structure))
    });
    let mut warnings = Vec::new();
    let mut compare = |structure: Option<&Structure>, of: &str| {
        for (mutation, written) in policy.mutations.iter().zip(&places) {
            for misfit in mutation.misfits(structure) {
                let message = format!("{of}{misfit}, so the mutation fails wherever it is applied");
                warnings.push(written.warning(message, "correct the name or the type"));
            }
        }
    };
    let mut seen: Vec<&GroupVersionKind> = Vec::new();
    for (kind, plural, structure) in given.chain(own) {
        let is_named = !seen.contains(&kind) && rules.iter().any(|rule| names(rule, kind, &plural));
        if is_named && seen.len() < MOST_KINDS {
            seen.push(kind);
            compare(Some(&structure), &format!("for {kind}: "));
        }
    }
    if seen.is_empty() {
        compare(None, "");
    }
    // By their lines: the kinds of the program are in no order.
    warnings.sort_by_key(|warning: &Mistake| (warning.location.line, warning.message.clone()));
    warnings
}

/// Warns about mistakes in these expressions for the kinds that the rules name and whose schemas are known.
pub(super) fn warnings(
    expressions: &[Written],
    rules: &[Rule],
    params: Option<&ClusterKind>,
    known: &[&ResourceDocument],
) -> Vec<Mistake> {
    let resources = || known.iter().flat_map(|document| &document.resources);
    let of_params = params.and_then(|params| {
        let is_named = |resource: &&Resource| {
            (resource.kind.api_version().as_str(), resource.kind.kind.as_str())
                == (params.api_version(), params.kind())
        };
        resources().find(is_named)
    });
    // A kind may be in several documents.
    let mut named: Vec<&Resource> = Vec::new();
    for resource in resources() {
        let is_new = resource.schema.is_some() && named.iter().all(|other| other.kind != resource.kind);
        if is_new
            && rules
                .iter()
                .any(|rule| names(rule, &resource.kind, &resource.plural))
        {
            named.push(resource);
        }
    }
    let mut warnings = Vec::new();
    for resource in named.into_iter().take(MOST_KINDS) {
        let Some(schema) = resource.schema.clone() else {
            continue;
        };
        let compiler = PolicyCompiler::new(params.is_some());
        let of_params = of_params.and_then(|params| params.schema.clone());
        let mut compiler = compiler.with_schemas(schema, of_params);
        for expression in expressions {
            let compiled = compiler.compile(expression.role, &expression.text);
            match (compiled, &expression.variable) {
                (Ok(value), Some(name)) => compiler.define(name, value),
                (Ok(_), None) => {}
                (Err(error), name) => {
                    if let Some(name) = name {
                        compiler.declare(name);
                    }
                    let message = format!("for {}: {error}", resource.kind);
                    let fix = "correct the expression, or the schema of the kind";
                    warnings.push(expression.warning(message, fix));
                }
            }
        }
    }
    warnings
}

/// Whether a rule names this resource; what a wildcard matches is not checked.
fn names(rule: &Rule, kind: &GroupVersionKind, plural: &str) -> bool {
    let has = |matcher: &Matcher<String>, word: &String| match matcher {
        Matcher::Any => false,
        Matcher::Only(words) => words.contains(word),
    };
    has(&rule.api_groups, &kind.group)
        && has(&rule.api_versions, &kind.version)
        && rule.resources.iter().any(|pattern| pattern.to_string() == plural)
}
