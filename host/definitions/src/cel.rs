//! Expressions of policies: `cel` of a native stage, and the same parts of Kubernetes' policies.

use std::{collections::HashMap, sync::Arc};

use admittance_admission::Phase;
use admittance_conditions::{
    Binding, DenialReason, MatchCondition, Policy, PolicyCompiler, PolicyExpression, Role, Validation,
};

use crate::{
    conditions,
    document::{Fields, Mistakes, Node, quoted},
    model::CelDefinition,
    names,
};

/// The most validations, mutations, variables and annotations of a policy, each.
const MOST: usize = 64;

/// `cel` of a native stage.
pub(crate) fn read(node: &Node<'_>, phase: Phase, mistakes: &mut Mistakes) -> Option<CelDefinition> {
    let mut fields = node.object(mistakes)?;
    let before = mistakes.len();
    if fields.has("validations") && fields.has("mutations") {
        node.wrong("it has validations and mutations", "make two stages", mistakes);
    }
    if phase == Phase::Validating
        && let Some(mutations) = fields.optional("mutations")
    {
        let message = "a stage of a validating chain may only allow or deny";
        mutations.wrong(message, "move the stage to a mutating chain", mistakes);
    }
    let policy = read_expressions(&mut fields, PolicyCompiler::new(false), Vec::new(), mistakes);
    if mistakes.len() == before && policy.validations.is_empty() && policy.mutations.is_empty() {
        let fix = "write `validations` or `mutations`";
        node.wrong("it evaluates nothing", fix, mistakes);
    }
    fields.finish(mistakes);
    Some(CelDefinition {
        policy: Arc::new(policy),
        binding: Binding::default(),
    })
}

/// The expressions of a policy of Kubernetes. Those with a mistake are left out.
pub(crate) fn read_policy(fields: &mut Fields<'_>, params: bool, mistakes: &mut Mistakes) -> Policy {
    let mut compiler = PolicyCompiler::new(params);
    let conditions = entries(fields, "matchConditions", mistakes);
    let compile = |name: &str, text: &str| compiler.condition(name, text);
    let conditions = conditions::read_with(&conditions, compile, mistakes);
    read_expressions(fields, compiler, conditions, mistakes)
}

/// The expressions of a template of Gatekeeper, with the variables that it defines for all of them.
pub(crate) fn read_template(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Policy {
    const GIVEN: [(&str, &str); 2] = [
        (
            "anyObject",
            "has(request.operation) && request.operation == 'DELETE' && object == null ? oldObject : object",
        ),
        (
            "params",
            "!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters",
        ),
    ];
    let mut compiler = PolicyCompiler::new(true);
    let conditions = entries(fields, "matchConditions", mistakes);
    let compile = |name: &str, text: &str| compiler.condition(name, text);
    let conditions = conditions::read_with(&conditions, compile, mistakes);
    for (name, text) in GIVEN {
        let compiled = compiler.compile(Role::Variable, text);
        if let Some(value) = fields.node().accept(compiled, mistakes) {
            compiler.define(name, value);
        }
    }
    read_expressions(fields, compiler, conditions, mistakes)
}

/// `variables`, `validations`, `auditAnnotations` and `mutations`.
fn read_expressions(
    fields: &mut Fields<'_>,
    mut compiler: PolicyCompiler,
    conditions: Vec<MatchCondition>,
    mistakes: &mut Mistakes,
) -> Policy {
    for entry in entries(fields, "variables", mistakes) {
        read_variable(&entry, &mut compiler, mistakes);
    }
    let validations = entries(fields, "validations", mistakes);
    let read = |entry: &Node<'_>| read_validation(entry, &mut compiler, mistakes);
    let validations = validations.iter().filter_map(read).collect();
    let annotations = entries(fields, "auditAnnotations", mistakes);
    let mut seen = HashMap::new();
    let read = |entry: &Node<'_>| read_annotation(entry, &mut compiler, &mut seen, mistakes);
    let annotations = annotations.iter().filter_map(read).collect();
    let mutations = entries(fields, "mutations", mistakes);
    let read = |entry: &Node<'_>| read_mutation(entry, &mut compiler, mistakes);
    let mutations = mutations.iter().filter_map(read).collect();
    compiler.finish(conditions, validations, annotations, mutations)
}

fn entries<'a>(fields: &mut Fields<'a>, name: &'static str, mistakes: &mut Mistakes) -> Vec<Node<'a>> {
    let Some(node) = fields.optional(name) else {
        return Vec::new();
    };
    let entries = node.list(mistakes).unwrap_or_default();
    if entries.len() > MOST {
        let message = format!("there are {} entries", entries.len());
        node.wrong(message, format!("write {MOST} at most"), mistakes);
    }
    entries
}

/// An expression at this node, compiled.
fn compile(
    node: &Node<'_>,
    role: Role,
    compiler: &mut PolicyCompiler,
    mistakes: &mut Mistakes,
) -> Option<PolicyExpression> {
    let compiled = compiler.compile(role, node.text(mistakes)?);
    node.accept(compiled, mistakes)
}

fn read_variable(node: &Node<'_>, compiler: &mut PolicyCompiler, mistakes: &mut Mistakes) {
    let Some(mut fields) = node.object(mistakes) else {
        return;
    };
    let name = fields.required("name", "name the variable", mistakes);
    let name = name.and_then(|node| {
        let name = node.parse_with(names::identifier, mistakes)?;
        if compiler.is_defined(&name) {
            let message = format!("{} is already defined", quoted(&name));
            node.wrong(message, "give each variable its own name", mistakes);
            return None;
        }
        Some(name)
    });
    let fix = "write its value, `object.spec.containers`";
    let expression = fields.required("expression", fix, mistakes);
    let expression = expression.and_then(|node| compile(&node, Role::Variable, compiler, mistakes));
    fields.finish(mistakes);
    if let (Some(name), Some(expression)) = (name, expression) {
        compiler.define(&name, expression);
    }
}

fn read_validation(
    node: &Node<'_>,
    compiler: &mut PolicyCompiler,
    mistakes: &mut Mistakes,
) -> Option<Validation> {
    let mut fields = node.object(mistakes)?;
    let fix = "write what must be true, `object.spec.replicas <= 5`";
    let expression = fields.required("expression", fix, mistakes);
    let several_lines = expression.as_ref().is_some_and(|node| {
        let text = node.string(&mut Mistakes::new());
        text.is_some_and(|text| text.trim().contains('\n'))
    });
    let expression = expression.and_then(|node| compile(&node, Role::Validation, compiler, mistakes));
    let message = fields.optional("message").and_then(|node| {
        let message = node.text(mistakes)?;
        if message.trim().contains('\n') {
            node.wrong("the message has several lines", "write it on one line", mistakes);
        }
        Some(message.to_owned())
    });
    let message_expression = fields.optional("messageExpression");
    // As in Kubernetes: the expression would be the message.
    if several_lines && message.is_none() && message_expression.is_none() {
        let fix = "write a `message`";
        node.wrong("an expression of several lines needs a message", fix, mistakes);
    }
    let message_expression =
        message_expression.and_then(|node| compile(&node, Role::Message, compiler, mistakes));
    let reason = fields.get("reason", DenialReason::default(), Node::word, mistakes);
    fields.finish(mistakes);
    Some(Validation {
        expression: expression?,
        message,
        message_expression,
        reason,
    })
}

fn read_annotation(
    node: &Node<'_>,
    compiler: &mut PolicyCompiler,
    seen: &mut HashMap<String, u32>,
    mistakes: &mut Mistakes,
) -> Option<(String, PolicyExpression)> {
    let mut fields = node.object(mistakes)?;
    let key = fields.required("key", "name the annotation", mistakes);
    let key = key.and_then(|node| {
        node.parse_with(names::label_key, mistakes)?;
        let key = node.text(mistakes)?;
        if let Some(line) = seen.insert(key.to_owned(), node.location().line) {
            let message = format!("{} is also the key of the annotation on line {line}", quoted(key));
            node.wrong(message, "give each annotation its own key", mistakes);
        }
        Some(key.to_owned())
    });
    let fix = "write its value, a string or null";
    let value = fields.required("valueExpression", fix, mistakes);
    let value = value.and_then(|node| compile(&node, Role::Annotation, compiler, mistakes));
    fields.finish(mistakes);
    Some((key?, value?))
}

fn read_mutation(
    node: &Node<'_>,
    compiler: &mut PolicyCompiler,
    mistakes: &mut Mistakes,
) -> Option<PolicyExpression> {
    const PATCHES: [(&str, (&str, Role)); 2] = [
        (
            "ApplyConfiguration",
            ("applyConfiguration", Role::ApplyConfiguration),
        ),
        ("JSONPatch", ("jsonPatch", Role::JsonPatch)),
    ];
    let mut fields = node.object(mistakes)?;
    let read = |node: &Node<'_>, mistakes: &mut Mistakes| node.one_of("patch type", &PATCHES, mistakes);
    let wanted = fields.get_required(
        "patchType",
        "write ApplyConfiguration or JSONPatch",
        read,
        mistakes,
    );
    let present = fields.present(&["applyConfiguration", "jsonPatch"]);
    fields.finish(mistakes);
    let (wanted, role) = wanted?;
    if let Some((other, node)) = present.iter().find(|(field, _)| *field != wanted) {
        let fix = format!("write it in `{wanted}`, or correct `patchType`");
        node.wrong(format!("`{other}` does not fit the patch type"), fix, mistakes);
        return None;
    }
    let Some((_, patch)) = present.into_iter().next() else {
        node.wrong(
            format!("`{wanted}` is missing"),
            format!("write `{wanted}: {{ expression: ... }}`"),
            mistakes,
        );
        return None;
    };
    let mut fields = patch.object(mistakes)?;
    let fix = match role {
        Role::JsonPatch => "write the operations, `[JSONPatch{op: \"add\", path: \"/spec/x\", value: 1}]`",
        _ => "write what is applied, `Object{spec: Object.spec{replicas: 1}}`",
    };
    let expression = fields.required("expression", fix, mistakes);
    let expression = expression.and_then(|node| compile(&node, role, compiler, mistakes));
    fields.finish(mistakes);
    expression
}
