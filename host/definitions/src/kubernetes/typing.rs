//! Checks the types of policies against the schemas of the kinds that they are for, as kube-apiserver does for their
//! status.

use admittance_admission::{ClusterKind, Matcher, Rule};
use admittance_conditions::{PolicyCompiler, Role};

use super::resource::{Resource, ResourceDocument};
use crate::{
    Location,
    document::{Fields, Mistake, Mistakes, Node},
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
        if is_new && rules.iter().any(|rule| names(rule, resource)) {
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
fn names(rule: &Rule, resource: &Resource) -> bool {
    let has = |matcher: &Matcher<String>, word: &String| match matcher {
        Matcher::Any => false,
        Matcher::Only(words) => words.contains(word),
    };
    has(&rule.api_groups, &resource.kind.group)
        && has(&rule.api_versions, &resource.kind.version)
        && rule
            .resources
            .iter()
            .any(|pattern| pattern.to_string() == resource.plural)
}
