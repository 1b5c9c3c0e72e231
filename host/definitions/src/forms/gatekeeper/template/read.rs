//! Reads `ConstraintTemplate`.

use std::sync::Arc;

use admittance_admission::{FailurePolicy, Operation};
use serde_json::Value as Json;

use super::{Engine, Rego, TemplateDocument};
use crate::{
    cel,
    document::{Fields, Mistakes, Node, quoted, readers},
    forms::kubernetes::read_head,
    rules::OPERATIONS,
};

/// The only target of templates that concerns admission.
const TARGET: &str = "admission.k8s.gatekeeper.sh";

pub(crate) fn read(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<TemplateDocument> {
    let fix = "write the kind of its constraints and its policy: `spec: { crd: ..., targets: ... }`";
    let (name, mut spec) = read_head(root, fix, mistakes)?;
    let fix = "name the kind of its constraints: `crd: { spec: { names: { kind: ... } } }`";
    let crd = spec.get_required("crd", fix, read_crd, mistakes);
    let fix = "write the policy: `targets: [ { target: admission.k8s.gatekeeper.sh, rego: ... } ]`";
    let target = spec.get_required("targets", fix, read_targets, mistakes);
    spec.finish(mistakes);
    let (name, (kind, schema), (engine, operations)) = (name?, crd?, target?);
    if kind.to_lowercase() != name {
        let message = format!(
            "the template {} is for constraints of kind {}",
            quoted(&name),
            quoted(&kind)
        );
        let fix = format!("call it `{}`", kind.to_lowercase());
        root.wrong(message, fix, mistakes);
    }
    Some(TemplateDocument {
        name,
        kind,
        source: root.location(),
        schema,
        engine,
        operations,
    })
}

/// Reads the kind of the constraints, and the schema of their parameters.
fn read_crd(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<(String, Option<Json>)> {
    let mut fields = node.object(mistakes)?;
    let spec = fields.get_required(
        "spec",
        "write `spec: { names: { kind: ... } }`",
        Node::object,
        mistakes,
    );
    fields.finish(mistakes);
    let mut spec = spec?;
    let names = spec.get_required("names", "write `names: { kind: ... }`", Node::object, mistakes);
    let mut schema = None;
    if let Some(mut validation) = spec.get_optional("validation", Node::object, mistakes) {
        schema = validation.optional("openAPIV3Schema").map(|schema| schema.json());
        validation.ignore(&["legacySchema"]);
        validation.finish(mistakes);
    }
    spec.finish(mistakes);
    let mut names = names?;
    let kind = names.get_required(
        "kind",
        "name the kind, `K8sRequiredLabels`",
        readers::text,
        mistakes,
    );
    // Gatekeeper ignores these names, and derives them from the kind.
    names.ignore(&["categories", "listKind", "plural", "shortNames", "singular"]);
    names.finish(mistakes);
    Some((kind?, schema))
}

fn read_targets(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<(Engine, Vec<Operation>)> {
    let targets = node.filled_list("write one target", mistakes)?;
    let [target] = targets.as_slice() else {
        node.wrong("a template has one target", "make several templates", mistakes);
        return None;
    };
    let mut fields = target.object(mistakes)?;
    let fix = "write `target: admission.k8s.gatekeeper.sh`";
    fields.get_required(
        "target",
        fix,
        readers::one_of("target", &[(TARGET, ())]),
        mistakes,
    );
    let operations = fields.get(
        "operations",
        vec![Operation::Create, Operation::Update],
        read_operations,
        mistakes,
    );
    let engine = match fields.optional("code") {
        Some(code) => read_code(&code, mistakes),
        None if fields.has("rego") => read_rego(&mut fields, mistakes),
        None => {
            target.wrong("the target has no policy", "write `rego` or `code`", mistakes);
            None
        }
    };
    // Gatekeeper ignores the older fields if there is `code`.
    fields.ignore(&["rego", "libs"]);
    fields.finish(mistakes);
    Some((engine?, operations))
}

pub(crate) fn read_operations(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<Operation>> {
    let mut operations = Vec::new();
    for entry in node.list(mistakes)? {
        match entry.one_of("operation", &OPERATIONS, mistakes)? {
            Some(operation) => operations.push(operation),
            None => operations.extend(Operation::ALL),
        }
    }
    Some(operations)
}

/// Reads the engines of a template; returns the one that Gatekeeper prefers, which is CEL.
fn read_code(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Engine> {
    const ENGINES: [(&str, bool); 2] = [("K8sNativeValidation", true), ("Rego", false)];
    let fix = "list the policy: `{ engine: Rego, source: { rego: ... } }`";
    let mut found: Vec<(bool, Option<Engine>)> = Vec::new();
    for entry in node.filled_list(fix, mistakes)? {
        let Some(mut fields) = entry.object(mistakes) else {
            continue;
        };
        let read = readers::one_of("engine", &ENGINES);
        let engine = fields.get_required("engine", "write Rego or K8sNativeValidation", read, mistakes);
        let source = fields.get_required("source", "write the policy", Node::object, mistakes);
        fields.finish(mistakes);
        if let (Some(is_cel), Some(mut source)) = (engine, source) {
            let engine = if is_cel {
                read_cel(source, mistakes)
            } else {
                let rego = read_rego(&mut source, mistakes);
                source.finish(mistakes);
                rego
            };
            found.push((is_cel, engine));
        }
    }
    found.sort_by_key(|(is_cel, _)| !is_cel);
    found.into_iter().next().and_then(|(_, engine)| engine)
}

fn read_rego(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Engine> {
    const VERSIONS: [(&str, &str); 2] = [("v0", "v0"), ("v1", "v1")];
    let text = fields.get_required("rego", "write the policy in Rego", readers::text, mistakes);
    let libs = fields.get_or_default("libs", Node::strings, mistakes);
    let version = fields.get("version", "v0", readers::one_of("version", &VERSIONS), mistakes);
    Some(Engine::Rego(Rego {
        text: text?,
        libs,
        version,
    }))
}

fn read_cel(mut source: Fields<'_>, mistakes: &mut Mistakes) -> Option<Engine> {
    let failure_policy = source.get("failurePolicy", FailurePolicy::Fail, Node::word, mistakes);
    // `generateVAP` controls the Kubernetes policies that Gatekeeper can generate.
    source.ignore(&["generateVAP"]);
    let policy = cel::read_template(&mut source, mistakes);
    source.finish(mistakes);
    Some(Engine::Cel(Arc::new(policy), failure_policy))
}
