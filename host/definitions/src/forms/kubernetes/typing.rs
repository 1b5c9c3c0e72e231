//! Checks the types in a policy's expressions against the schemas of the kinds in its rules. kube-apiserver does the
//! same, and reports the warnings in the policy's status.

use std::sync::Arc;

use admittance_admission::{ClusterKind, GroupVersionKind, Matcher, Phase, Rule};
use admittance_conditions::{CompiledPolicy, PolicyCompiler, Role, Structure};

use super::resource::{ResourceDocument, SchemaResource};
use crate::{
    CelDefinition, ChainDefinition,
    document::{Mistake, Node, ValueLocation},
};

/// The maximum number of kinds against which a policy is checked.
const MOST_KINDS: usize = 10;

pub(super) type Structures = Arc<Vec<(GroupVersionKind, Structure)>>;

#[derive(Debug)]
pub(crate) struct WrittenExpression {
    /// The name of the variable whose value the expression defines; `None` if it does not define a variable.
    pub(crate) variable: Option<String>,
    role: Role,
    text: String,
    location: ValueLocation,
}

/// Locations are not compared: two expressions with the same role and text are equal wherever they are written.
impl PartialEq for WrittenExpression {
    fn eq(&self, other: &Self) -> bool {
        (self.role, &self.text) == (other.role, &other.text)
    }
}

impl WrittenExpression {
    pub(crate) fn new(node: &Node<'_>, role: Role, text: &str) -> Self {
        Self {
            variable: None,
            role,
            text: text.to_owned(),
            location: node.value_location(),
        }
    }
}

pub(super) fn structures(resources: &[&ResourceDocument]) -> Structures {
    let known = resources.iter().flat_map(|document| &document.resources);
    let structures = known.map(|resource| (resource.kind.clone(), resource.structure.clone()));
    Arc::new(structures.collect())
}

/// Passes the schemas to the CEL stages of native chains. Warns about expressions that contradict the schemas.
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

/// Warns about values in mutations that do not fit the schema of a kind in the rules.
pub(super) fn misfits(
    written: &[WrittenExpression],
    policy: &CompiledPolicy,
    rules: &[Rule],
    known: &[&ResourceDocument],
) -> Vec<Mistake> {
    let is_mutation =
        |written: &&WrittenExpression| matches!(written.role, Role::ApplyConfiguration | Role::JsonPatch);
    let mutations: Vec<_> = written.iter().filter(is_mutation).collect();
    let resources = known.iter().flat_map(|document| &document.resources);
    let defined = resources.map(|resource| {
        (
            &resource.kind,
            resource.plural.clone(),
            resource.structure.clone(),
        )
    });
    let builtin = Structure::builtin_kinds().filter_map(|kind| {
        let structure = Structure::builtin(kind)?;
        Some((kind, kind.guess_resource().resource, structure))
    });
    let mut warnings = Vec::new();
    let mut compare = |structure: Option<&Structure>, of: &str| {
        for (mutation, written) in policy.mutations.iter().zip(&mutations) {
            for misfit in mutation.misfits(structure) {
                let message = format!("{of}{misfit}, so the mutation fails wherever it is applied");
                warnings.push(written.location.mistake(message, "correct the name or the type"));
            }
        }
    };
    let mut seen: Vec<&GroupVersionKind> = Vec::new();
    for (kind, plural, structure) in defined.chain(builtin) {
        let is_named = !seen.contains(&kind) && rules.iter().any(|rule| names(rule, kind, &plural));
        if is_named && seen.len() < MOST_KINDS {
            seen.push(kind);
            compare(Some(&structure), &format!("for {kind}: "));
        }
    }
    if seen.is_empty() {
        compare(None, "");
    }
    // The order in which the built-in kinds are checked is not fixed, so the warnings are sorted.
    warnings.sort_by_key(|warning: &Mistake| (warning.location.line, warning.message.clone()));
    warnings
}

/// Warns about type errors in the expressions, for each kind in the rules whose schema is known.
pub(super) fn warnings(
    expressions: &[WrittenExpression],
    rules: &[Rule],
    params: Option<&ClusterKind>,
    known: &[&ResourceDocument],
) -> Vec<Mistake> {
    let resources = || known.iter().flat_map(|document| &document.resources);
    let of_params = params.and_then(|params| {
        let is_named = |resource: &&SchemaResource| {
            (resource.kind.api_version().as_str(), resource.kind.kind.as_str())
                == (params.api_version(), params.kind())
        };
        resources().find(is_named)
    });
    let mut named: Vec<&SchemaResource> = Vec::new();
    for resource in resources() {
        let is_new = resource.schema.is_some() && named.iter().all(|other| other.kind != resource.kind);
        let is_named = |rule: &Rule| names(rule, &resource.kind, &resource.plural);
        if is_new && rules.iter().any(is_named) {
            named.push(resource);
        }
    }
    let mut warnings = Vec::new();
    for resource in named.into_iter().take(MOST_KINDS) {
        let Some(schema) = resource.schema.clone() else {
            continue;
        };
        let mut compiler = PolicyCompiler::new(params.is_some())
            .with_schemas(schema, of_params.and_then(|params| params.schema.clone()));
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
                    warnings.push(expression.location.mistake(message, fix));
                }
            }
        }
    }
    warnings
}

/// Returns whether the rule names this resource with its group and version, and without wildcards.
fn names(rule: &Rule, kind: &GroupVersionKind, plural: &str) -> bool {
    let has = |matcher: &Matcher<String>, word: &String| match matcher {
        Matcher::Any => false,
        Matcher::Only(words) => words.contains(word),
    };
    has(&rule.api_groups, &kind.group)
        && has(&rule.api_versions, &kind.version)
        && rule.resources.iter().any(|pattern| pattern.to_string() == plural)
}
