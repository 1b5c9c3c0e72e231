//! Reads `ConstraintTemplate`.

use std::sync::Arc;

use admittance_admission::{FailurePolicy, Operation};
use serde_json::Value as Json;

use super::{super::schema::TYPES, Engine, RegoCode, TemplateDocument};
use crate::{
    cel,
    document::{Fields, Node, quoted, readers},
    forms::kubernetes::read_head,
    rules::OPERATIONS,
};

/// The value of `target` for the policies that Gatekeeper evaluates at admission. Other targets are not for admission.
const TARGET: &str = "admission.k8s.gatekeeper.sh";

pub(crate) fn read(root: &Node<'_>) -> Option<TemplateDocument> {
    let fix = "write the kind of its constraints and its policy: `spec: { crd: ..., targets: ... }`";
    let (name, mut spec) = read_head(root, fix)?;
    let fix = "name the kind of its constraints: `crd: { spec: { names: { kind: ... } } }`";
    let crd = spec.get_required("crd", fix, read_crd);
    let fix = "write the policy: `targets: [ { target: admission.k8s.gatekeeper.sh, rego: ... } ]`";
    let target = spec.get_required("targets", fix, read_targets);
    let (name, (kind, schema), (engine, operations)) = (name?, crd?, target?);
    if kind.to_lowercase() != name {
        let message = format!(
            "the template {} is for constraints of kind {}",
            quoted(&name),
            quoted(&kind)
        );
        root.add_mistake(message, format!("call it `{}`", kind.to_lowercase()));
    }
    Some(TemplateDocument {
        name,
        kind,
        location: root.location(),
        schema,
        engine,
        operations,
    })
}

fn read_crd(node: &Node<'_>) -> Option<(String, Option<Json>)> {
    let mut fields = node.object()?;
    let mut spec = fields.get_required("spec", "write `spec: { names: { kind: ... } }`", Node::object)?;
    let names = spec.get_required("names", "write `names: { kind: ... }`", Node::object);
    let mut schema = None;
    if let Some(mut validation) = spec.get_optional("validation", Node::object) {
        schema = validation.optional("openAPIV3Schema").map(|schema| {
            check_types(&schema);
            schema.json()
        });
        validation.ignore(&["legacySchema"]);
    }
    let mut names = names?;
    let kind = names.get_required("kind", "name the kind, `K8sRequiredLabels`", readers::text);
    // Gatekeeper derives these names from the kind, and ignores those that are written in a template.
    names.ignore(&["categories", "listKind", "plural", "shortNames", "singular"]);
    Some((kind?, schema))
}

/// Reports each `type` in the schema that is not a known type, such as `strnig`.
fn check_types(schema: &Node<'_>) {
    if let Some(type_node) = schema.child("type") {
        type_node.one_of("type", &TYPES);
    }
    let properties_node = schema.child("properties");
    let properties = properties_node
        .iter()
        .flat_map(Node::children)
        .map(|(_, property)| property);
    let part_schemas = ["items", "additionalProperties"].map(|key| schema.child(key));
    for part in properties.chain(part_schemas.into_iter().flatten()) {
        check_types(&part);
    }
}

fn read_targets(node: &Node<'_>) -> Option<(Engine, Vec<Operation>)> {
    let targets = node.filled_list("write one target")?;
    let [target] = targets.as_slice() else {
        return node.reject("a template has one target", "make several templates");
    };
    let mut fields = target.object()?;
    let fix = "write `target: admission.k8s.gatekeeper.sh`";
    fields.get_required("target", fix, readers::one_of("target", &[(TARGET, ())]));
    let operations = fields.get(
        "operations",
        vec![Operation::Create, Operation::Update],
        read_operations,
    );
    let engine = match fields.optional("code") {
        Some(code) => read_code(&code),
        None if fields.has("rego") => read_rego(&mut fields),
        None => target.reject("the target has no policy", "write `rego` or `code`"),
    };
    // If `code` is present, Gatekeeper ignores `rego` and `libs`, which are older.
    fields.ignore(&["rego", "libs"]);
    Some((engine?, operations))
}

pub(crate) fn read_operations(node: &Node<'_>) -> Option<Vec<Operation>> {
    let mut operations = Vec::new();
    for entry in node.list()? {
        match entry.one_of("operation", &OPERATIONS)? {
            Some(operation) => operations.push(operation),
            None => operations.extend(Operation::ALL),
        }
    }
    Some(operations)
}

/// Reads the policies in `code`. If one is in CEL and one in Rego, returns that in CEL, which Gatekeeper prefers.
fn read_code(node: &Node<'_>) -> Option<Engine> {
    const ENGINES: [(&str, bool); 2] = [("K8sNativeValidation", true), ("Rego", false)];
    let fix = "list the policy: `{ engine: Rego, source: { rego: ... } }`";
    let mut engines: Vec<(bool, Option<Engine>)> = Vec::new();
    for entry in node.filled_list(fix)? {
        let Some(mut fields) = entry.object() else {
            continue;
        };
        let read_engine = readers::one_of("engine", &ENGINES);
        let engine = fields.get_required("engine", "write Rego or K8sNativeValidation", read_engine);
        let source = fields.get_required("source", "write the policy", Node::object);
        if let (Some(is_cel), Some(mut source)) = (engine, source) {
            let engine = if is_cel {
                read_cel(source)
            } else {
                read_rego(&mut source)
            };
            engines.push((is_cel, engine));
        }
    }
    engines.sort_by_key(|(is_cel, _)| !is_cel);
    engines.into_iter().next().and_then(|(_, engine)| engine)
}

fn read_rego(fields: &mut Fields<'_>) -> Option<Engine> {
    const VERSIONS: [(&str, &str); 2] = [("v0", "v0"), ("v1", "v1")];
    let text = fields.get_required("rego", "write the policy in Rego", readers::text);
    let libs = fields.get_or_default("libs", Node::strings);
    let version = fields.get("version", "v0", readers::one_of("version", &VERSIONS));
    Some(Engine::Rego(RegoCode {
        text: text?,
        libs,
        version,
    }))
}

fn read_cel(mut source: Fields<'_>) -> Option<Engine> {
    let failure_policy = source.get("failurePolicy", FailurePolicy::Fail, Node::word);
    // `generateVAP` is ignored: it only tells Gatekeeper whether to generate a Kubernetes policy.
    source.ignore(&["generateVAP"]);
    let policy = cel::read_template(&mut source);
    Some(Engine::Cel(Arc::new(policy), failure_policy))
}
