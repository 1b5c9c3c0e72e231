//! Checks the types of policies against the schemas of the kinds that they are for, as kube-apiserver does for their
//! status.

use admittance_admission::{ClusterKind, GroupVersionKind, Matcher, Rule};
use admittance_conditions::{Policy, PolicyCompiler, Role, Structure};

use super::resource::{Resource, ResourceDocument};
use crate::{
    Location,
    document::{Fields, Mistake, Mistakes, Node, quoted},
};

/// The most kinds with which a policy is checked.
const MOST_KINDS: usize = 10;

/// An expression of a policy as it was written.
#[derive(Debug)]
pub(super) struct Written {
    /// The name of the variable whose value it is.
    variable: Option<String>,
    role: Role,
    text: String,
    location: Location,
    path: String,
}

/// The variables of a policy and the expressions of its validations, in the order in which they are evaluated.
pub(super) fn written(spec: &mut Fields<'_>) -> Vec<Written> {
    let ignored = &mut Mistakes::new();
    let mut found = Vec::new();
    for (list, fields) in [
        ("variables", &[("expression", Role::Variable)][..]),
        (
            "validations",
            &[
                ("expression", Role::Validation),
                ("messageExpression", Role::Message),
            ],
        ),
    ] {
        let entries = spec.optional(list).and_then(|entries| entries.list(ignored));
        for entry in entries.unwrap_or_default() {
            let Some(mut entry) = entry.object(ignored) else {
                continue;
            };
            let name = entry.optional("name");
            let name = name.and_then(|name| name.text(ignored).map(str::to_owned));
            for &(field, role) in fields {
                let node = entry.optional(field);
                found.extend(node.and_then(|node| Written::of(&node, role, name.clone())));
            }
        }
    }
    found
}

impl Written {
    fn of(node: &Node<'_>, role: Role, variable: Option<String>) -> Option<Self> {
        Some(Self {
            variable,
            role,
            text: node.text(&mut Mistakes::new())?.to_owned(),
            location: node.location(),
            path: node.path().to_owned(),
        })
    }
}

/// The places of the expressions of a policy's mutations.
pub(super) fn written_mutations(spec: &mut Fields<'_>) -> Vec<(Location, String)> {
    let ignored = &mut Mistakes::new();
    let entries = spec
        .optional("mutations")
        .and_then(|entries| entries.list(ignored));
    let mut found = Vec::new();
    for entry in entries.unwrap_or_default() {
        let patch = entry.object(ignored).and_then(|mut entry| {
            let apply = entry.optional("applyConfiguration");
            apply.or_else(|| entry.optional("jsonPatch"))
        });
        let expression = patch.and_then(|patch| patch.object(ignored)?.optional("expression"));
        found.extend(expression.map(|node| (node.location(), node.path().to_owned())));
    }
    found
}

/// The fields that mutations set although there are none of these names in the kinds that the rules name.
pub(super) fn unknown_fields(
    places: &[(Location, String)],
    policy: &Policy,
    rules: &[Rule],
    known: &[ResourceDocument],
) -> Vec<Mistake> {
    // With a mistake in one of them, it is not known which is which.
    if places.len() != policy.mutations.len() {
        return Vec::new();
    }
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
    let mut seen: Vec<&GroupVersionKind> = Vec::new();
    let mut warnings = Vec::new();
    for (kind, plural, structure) in given.chain(own) {
        let is_named = !seen.contains(&kind) && rules.iter().any(|rule| names(rule, kind, &plural));
        if !is_named || seen.len() == MOST_KINDS {
            continue;
        }
        seen.push(kind);
        for (mutation, (location, path)) in policy.mutations.iter().zip(places) {
            for (object, field) in mutation.unknown_fields(&structure) {
                warnings.push(Mistake {
                    location: location.clone(),
                    path: path.clone(),
                    message: format!(
                        "for {kind}: {object} has no field {}, so every request that it is applied to is refused",
                        quoted(field)
                    ),
                    fix: "correct the name of the field".to_owned(),
                });
            }
        }
    }
    // By their lines: the kinds of the program are in no order.
    warnings.sort_by_key(|warning: &Mistake| (warning.location.line, warning.message.clone()));
    warnings
}

/// What is wrong with these expressions for the kinds that the rules name and whose schemas are known.
pub(super) fn warnings(
    expressions: &[Written],
    rules: &[Rule],
    params: Option<&ClusterKind>,
    known: &[ResourceDocument],
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
                    warnings.push(Mistake {
                        location: expression.location.clone(),
                        path: expression.path.clone(),
                        message: format!("for {}: {error}", resource.kind),
                        fix: "correct the expression, or the schema of the kind".to_owned(),
                    });
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
