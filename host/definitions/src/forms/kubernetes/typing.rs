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
const MAX_KIND_COUNT: usize = 10;

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

pub(super) fn collect_structures(documents: &[&ResourceDocument]) -> Structures {
    let known_resources = documents.iter().flat_map(|document| &document.resources);
    let structures = known_resources.map(|resource| (resource.kind.clone(), resource.structure.clone()));
    Arc::new(structures.collect())
}

/// Passes the schemas to the CEL stages of native chains. Warns about expressions that contradict the schemas.
pub(crate) fn use_schemas(chains: &mut [ChainDefinition], documents: &[&ResourceDocument]) {
    let structures = collect_structures(documents);
    for chain in chains {
        for stage in &mut chain.stages {
            let Some(cel) = stage.hook.get_mut::<CelDefinition>() else {
                continue;
            };
            let rules = match stage.spec.rules.as_slice() {
                [] => &chain.rules,
                rules => rules,
            };
            let types = compile_warnings(&cel.expressions, rules, None, documents);
            let misfits = misfits(&cel.expressions, &cel.policy, rules, documents);
            chain.warnings.extend(types.into_iter().chain(misfits));
            if chain.phase == Phase::Mutating {
                cel.binding.structures = structures.clone();
            }
        }
    }
}

/// Warns about values in mutations that do not fit the schema of a kind in the rules.
pub(super) fn misfits(
    expressions: &[WrittenExpression],
    policy: &CompiledPolicy,
    rules: &[Rule],
    documents: &[&ResourceDocument],
) -> Vec<Mistake> {
    let is_mutation =
        |expression: &&WrittenExpression| matches!(expression.role, Role::ApplyConfiguration | Role::JsonPatch);
    let mutations: Vec<_> = expressions.iter().filter(is_mutation).collect();
    let resources = documents.iter().flat_map(|document| &document.resources);
    let defined = resources.map(|resource| (&resource.kind, resource.plural.clone(), resource.structure.clone()));
    let builtin = Structure::builtin_kinds().filter_map(|kind| {
        let structure = Structure::builtin(kind)?;
        Some((kind, kind.guess_resource().resource, structure))
    });
    let mut warnings = Vec::new();
    let mut compare = |structure: Option<&Structure>, prefix: &str| {
        for (mutation, expression) in policy.mutations.iter().zip(&mutations) {
            for misfit in mutation.misfits(structure) {
                let message = format!("{prefix}{misfit}, so the mutation fails wherever it is applied");
                warnings.push(expression.location.mistake(message, "correct the name or the type"));
            }
        }
    };
    let mut checked_kinds: Vec<&GroupVersionKind> = Vec::new();
    for (kind, plural, structure) in defined.chain(builtin) {
        let is_named = !checked_kinds.contains(&kind) && rules.iter().any(|rule| names_kind(rule, kind, &plural));
        if is_named && checked_kinds.len() < MAX_KIND_COUNT {
            checked_kinds.push(kind);
            compare(Some(&structure), &format!("for {kind}: "));
        }
    }
    if checked_kinds.is_empty() {
        compare(None, "");
    }
    // The order in which the built-in kinds are checked is not fixed, so the warnings are sorted.
    warnings.sort_by_key(|warning: &Mistake| (warning.location.line, warning.message.clone()));
    warnings
}

/// Warns about type errors in the expressions, for each kind in the rules whose schema is known.
pub(super) fn compile_warnings(
    expressions: &[WrittenExpression],
    rules: &[Rule],
    params: Option<&ClusterKind>,
    documents: &[&ResourceDocument],
) -> Vec<Mistake> {
    let resources = || documents.iter().flat_map(|document| &document.resources);
    let params_resource = params.and_then(|params| {
        let is_named = |resource: &&SchemaResource| {
            (resource.kind.api_version().as_str(), resource.kind.kind.as_str()) == (params.api_version(), params.kind())
        };
        resources().find(is_named)
    });
    let mut named_resources: Vec<&SchemaResource> = Vec::new();
    for resource in resources() {
        let is_new = resource.schema.is_some() && named_resources.iter().all(|other| other.kind != resource.kind);
        let is_named = |rule: &Rule| names_kind(rule, &resource.kind, &resource.plural);
        if is_new && rules.iter().any(is_named) {
            named_resources.push(resource);
        }
    }
    let mut warnings = Vec::new();
    for resource in named_resources.into_iter().take(MAX_KIND_COUNT) {
        let Some(schema) = resource.schema.clone() else {
            continue;
        };
        let mut compiler = PolicyCompiler::new(params.is_some())
            .with_schemas(schema, params_resource.and_then(|params| params.schema.clone()));
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
fn names_kind(rule: &Rule, kind: &GroupVersionKind, plural: &str) -> bool {
    let has_word = |matcher: &Matcher<String>, word: &String| match matcher {
        Matcher::Any => false,
        Matcher::Only(words) => words.contains(word),
    };
    has_word(&rule.api_groups, &kind.group)
        && has_word(&rule.api_versions, &kind.version)
        && rule.resources.iter().any(|pattern| pattern.to_string() == plural)
}
