//! Reads Kyverno's `PolicyException`: requests to which policies do not apply, or values that policies allow.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance_admission::{Exception, Moment, suggestion_or};
use admittance_conditions::{Allowance, CelConditions, MatchCondition, PolicyCompiler};

use crate::{
    CelDefinition, ChainDefinition, Location, Mistake, conditions,
    document::{Fields, Mistakes, Node, quoted, readers},
    forms::{kubewarden::read_metadata, native::exception::read_end},
};

/// When an exception without an end expires: at the end of the year 9999.
const NO_EXPIRY: Duration = Duration::from_secs(253_402_300_799);

#[derive(Debug)]
pub(super) struct ExceptionDocument {
    /// The name of the exception with its namespace, `{namespace}/{name}`.
    pub(super) name: String,
    until: Moment,
    policies: Vec<PolicyReference>,
    /// The names and expressions of the exception's conditions. They are compiled again for each policy.
    conditions: Vec<(String, String)>,
    images: Vec<String>,
    values: Vec<String>,
}

#[derive(Debug)]
struct PolicyReference {
    kind: String,
    name: String,
    location_and_path: (Location, String),
}

pub(super) fn read(root: &Node<'_>) -> Option<ExceptionDocument> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let fix = "name the exception: `metadata: { name: ... }`";
    let read_names = |node: &Node<'_>| {
        let has_namespace = node.children().iter().any(|(key, _)| *key == Some("namespace"));
        read_metadata(node, has_namespace)
    };
    let names = fields.get_required("metadata", fix, read_names);
    let mut spec = fields.get_required("spec", "write which policies the exception is for", Node::object)?;
    // Kyverno uses these fields only in reports or outside of admission, so they are ignored.
    spec.ignore(&["reportResult", "properties", "evaluationMode"]);
    let until = spec.get_optional("expiresAt", read_end);
    let fix = "list the policies, each with `name` and `kind`";
    let policies = spec
        .required("policyRefs", fix)
        .and_then(|node| node.filled_list_of(fix, read_reference));
    let conditions = read_conditions(&mut spec);
    let images = spec.get_or_default("images", Node::strings);
    let values = spec.get_or_default("allowedValues", Node::strings);
    let (name, namespace) = names?;
    Some(ExceptionDocument {
        name: format!("{}/{name}", namespace.as_deref().unwrap_or("default")),
        until: until.unwrap_or(Moment(SystemTime::UNIX_EPOCH + NO_EXPIRY)),
        policies: policies?,
        conditions,
        images,
        values,
    })
}

fn read_reference(node: &Node<'_>) -> Option<PolicyReference> {
    let mut fields = node.object()?;
    let name = fields.get_required("name", "name the policy", readers::text);
    let kind = fields.get_required("kind", "write the kind, `ValidatingPolicy`", readers::text);
    Some(PolicyReference {
        kind: kind?,
        name: name?,
        location_and_path: (node.location(), node.path().to_owned()),
    })
}

/// Reads the exception's conditions. They are evaluated before the policy, so they may read only the request.
fn read_conditions(spec: &mut Fields<'_>) -> Vec<(String, String)> {
    let Some(node) = spec.optional("matchConditions") else {
        return Vec::new();
    };
    let mut compiler = PolicyCompiler::new(false).for_kyverno(None);
    let entries = node.list().unwrap_or_default();
    let compile = |name: &str, text: &str| compiler.compile_condition(name, text);
    let conditions = conditions::read_with(&entries, compile);
    let policy = compiler.finish(Vec::new(), Vec::new(), Vec::new(), Vec::new());
    if policy.lookups().next().is_some() || policy.uses_namespace() || policy.uses_http() {
        let message = "the conditions of an exception see nothing but the request";
        let fix = "write them in the policy, with `exceptions.allowedValues`";
        node.add_mistake(message, fix);
    }
    let texts = conditions.iter();
    texts
        .map(|condition| (condition.name().to_owned(), condition.expression().to_owned()))
        .collect()
}

impl ExceptionDocument {
    /// Adds the exception to all stages of the policies that it names.
    pub(super) fn attach(&self, chains: &mut [(&str, ChainDefinition)], mistakes: &mut Mistakes) {
        for reference in &self.policies {
            let chains_of_kind = || chains.iter().filter(|(kind, _)| *kind == reference.kind);
            let names = || chains_of_kind().map(|(_, chain)| own_name(chain));
            if !names().any(|name| name == reference.name) {
                let (location, path) = reference.location_and_path.clone();
                mistakes.push(Mistake {
                    location,
                    path,
                    message: format!("there is no {} {}", reference.kind, quoted(&reference.name)),
                    fix: suggestion_or(&reference.name, names(), "add its document, or correct the name"),
                });
            }
            for (kind, chain) in chains.iter_mut() {
                if *kind == reference.kind && own_name(chain) == reference.name {
                    self.add_exception(chain);
                }
            }
        }
    }

    fn add_exception(&self, chain: &mut ChainDefinition) {
        for stage in &mut chain.stages {
            if self.images.is_empty() && self.values.is_empty() {
                let mut exception = Exception::new(&*self.name, self.until);
                exception.match_conditions = self.compile_conditions().into_iter().collect::<CelConditions>().into();
                stage.spec.exceptions.push(Arc::new(exception));
            } else if let Some(cel) = stage.hook.get::<CelDefinition>() {
                let mut cel = cel.clone();
                cel.binding.allowances.push(Arc::new(Allowance {
                    expires_at: self.until,
                    conditions: self.compile_conditions(),
                    images: self.images.clone(),
                    values: self.values.clone(),
                }));
                stage.hook = cel.into();
            }
        }
    }

    fn compile_conditions(&self) -> Vec<MatchCondition> {
        let mut compiler = PolicyCompiler::new(false).for_kyverno(None);
        let conditions = self.conditions.iter();
        conditions
            .filter_map(|(name, text)| compiler.compile_condition(name, text).ok())
            .collect()
    }
}

/// Returns the name of the policy that defines a chain. The namespace at the beginning is cut off.
fn own_name(chain: &ChainDefinition) -> &str {
    chain.name.rsplit_once('/').map_or(&*chain.name, |(_, name)| name)
}
