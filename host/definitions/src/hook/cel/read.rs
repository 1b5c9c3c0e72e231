//! Reads expressions of policies: `cel` of a native stage, and the same parts of Kubernetes' policies.

use std::{collections::HashMap, sync::Arc};

use admittance_admission::Phase;
use admittance_conditions::{
    Binding, DenialReason, MatchCondition, Policy, PolicyCompiler, PolicyExpression, Role, Validation,
};

use super::CelDefinition;
use crate::{
    Location, conditions,
    document::{Fields, Mistake, Mistakes, Node, quoted},
    forms::kubernetes::typing::Written,
    names,
};

/// The most validations, mutations, variables and annotations of a policy, each.
const MOST: usize = 64;

/// Compiles expressions, and keeps where they are.
struct Reading {
    compiler: PolicyCompiler,
    written: Vec<Written>,
}

impl Reading {
    fn new(compiler: PolicyCompiler) -> Self {
        let written = Vec::new();
        Self { compiler, written }
    }

    /// The expression at this node, compiled.
    fn compile(&mut self, node: &Node<'_>, role: Role, mistakes: &mut Mistakes) -> Option<PolicyExpression> {
        let text = node.text(mistakes)?;
        let compiled = node.accept(self.compiler.compile(role, text), mistakes)?;
        self.written.push(Written::new(node, role, text));
        Some(compiled)
    }
}

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
    let (policy, written) = read_expressions(&mut fields, PolicyCompiler::new(false), Vec::new(), mistakes);
    if mistakes.len() == before && policy.validations.is_empty() && policy.mutations.is_empty() {
        let fix = "write `validations` or `mutations`";
        node.wrong("it evaluates nothing", fix, mistakes);
    }
    fields.finish(mistakes);
    Some(CelDefinition {
        policy: Arc::new(policy),
        binding: Binding::default(),
        written: written.into(),
    })
}

/// The expressions of a policy of Kubernetes. Those with a mistake are left out.
pub(crate) fn read_policy(
    fields: &mut Fields<'_>,
    params: bool,
    mistakes: &mut Mistakes,
) -> (Policy, Vec<Written>) {
    check_as_kubernetes(fields, mistakes);
    let mut compiler = PolicyCompiler::new(params);
    let conditions = entries(fields, "matchConditions", mistakes);
    let compile = |name: &str, text: &str| compiler.condition(name, text);
    let conditions = conditions::read_with(&conditions, compile, mistakes);
    read_expressions(fields, compiler, conditions, mistakes)
}

/// Finds what kube-apiserver refuses in the parts of a policy, although it could be evaluated.
fn check_as_kubernetes(fields: &mut Fields<'_>, mistakes: &mut Mistakes) {
    const MOST_ANNOTATIONS: usize = 20;
    const LONGEST_ANNOTATION: usize = 5 << 10;
    let ignored = &mut Mistakes::new();
    let mut parts = |list: &'static str| {
        let node = fields.optional(list);
        let entries = node
            .as_ref()
            .and_then(|node| node.list(ignored))
            .unwrap_or_default();
        (node, entries)
    };
    let field = |entry: &Node<'_>, name: &'static str| {
        let node = entry.object(&mut Mistakes::new())?.optional(name)?;
        let text = node.string(&mut Mistakes::new())?.to_owned();
        Some((node.location(), node.path().to_owned(), text))
    };
    let mut wrong = |(location, path, _): (Location, String, String), message: &str, fix: &str| {
        mistakes.push(Mistake {
            location,
            path,
            message: message.to_owned(),
            fix: fix.to_owned(),
        });
    };
    for entry in parts("variables").1 {
        if let Some(name) = field(&entry, "name").filter(|(_, _, name)| RESERVED.contains(&name.as_str())) {
            wrong(
                name,
                "the name is a reserved word of CEL",
                "give the variable another name",
            );
        }
    }
    for entry in parts("validations").1 {
        if let Some(message) = field(&entry, "message").filter(|(_, _, message)| message.trim().is_empty()) {
            wrong(
                message,
                "the message is empty",
                "write a message, or leave it out",
            );
        }
        if let Some(reason) = field(&entry, "reason").filter(|(_, _, reason)| reason == "Unauthorized") {
            let fix = "write Forbidden, Invalid or RequestEntityTooLarge";
            wrong(reason, "kube-apiserver knows no policies with this reason", fix);
        }
    }
    let (annotations, entries) = parts("auditAnnotations");
    for entry in &entries {
        if let Some(key) = field(entry, "key").filter(|(_, _, key)| key.contains('/')) {
            let message = "the key of an annotation has no prefix: that is the name of the policy";
            wrong(key, message, "write the part after the `/` alone");
        }
        let value = field(entry, "valueExpression");
        if let Some(value) = value.filter(|(_, _, value)| value.trim().len() > LONGEST_ANNOTATION) {
            wrong(value, "the expression is longer than 5 KiB", "make it shorter");
        }
    }
    if let Some(node) = annotations.filter(|_| entries.len() > MOST_ANNOTATIONS) {
        let at = (node.location(), node.path().to_owned(), String::new());
        wrong(at, "there are more than 20 annotations", "write 20 at most");
    }
}

/// The words that CEL keeps for itself.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

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
    read_expressions(fields, compiler, conditions, mistakes).0
}

/// `variables`, `validations`, `auditAnnotations` and `mutations`.
fn read_expressions(
    fields: &mut Fields<'_>,
    compiler: PolicyCompiler,
    conditions: Vec<MatchCondition>,
    mistakes: &mut Mistakes,
) -> (Policy, Vec<Written>) {
    let mut reading = Reading::new(compiler);
    for entry in entries(fields, "variables", mistakes) {
        read_variable(&entry, &mut reading, mistakes);
    }
    let validations = entries(fields, "validations", mistakes);
    let read = |entry: &Node<'_>| read_validation(entry, &mut reading, mistakes);
    let validations = validations.iter().filter_map(read).collect();
    let annotations = entries(fields, "auditAnnotations", mistakes);
    let mut seen = HashMap::new();
    let read = |entry: &Node<'_>| read_annotation(entry, &mut reading, &mut seen, mistakes);
    let annotations = annotations.iter().filter_map(read).collect();
    let mutations = entries(fields, "mutations", mistakes);
    let read = |entry: &Node<'_>| read_mutation(entry, &mut reading, mistakes);
    let mutations = mutations.iter().filter_map(read).collect();
    let Reading { compiler, written } = reading;
    let policy = compiler.finish(conditions, validations, annotations, mutations);
    (policy, written)
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

fn read_variable(node: &Node<'_>, reading: &mut Reading, mistakes: &mut Mistakes) {
    let Some(mut fields) = node.object(mistakes) else {
        return;
    };
    let name = fields.required("name", "name the variable", mistakes);
    let name = name.and_then(|node| {
        let name = node.parse_with(names::identifier, mistakes)?;
        if reading.compiler.is_defined(&name) {
            let message = format!("{} is already defined", quoted(&name));
            node.wrong(message, "give each variable its own name", mistakes);
            return None;
        }
        Some(name)
    });
    let fix = "write its value, `object.spec.containers`";
    let expression = fields.required("expression", fix, mistakes);
    let expression = expression.and_then(|node| reading.compile(&node, Role::Variable, mistakes));
    fields.finish(mistakes);
    if let (Some(name), Some(expression)) = (name, expression) {
        reading.compiler.define(&name, expression);
        if let Some(written) = reading.written.last_mut() {
            written.variable = Some(name);
        }
    }
}

fn read_validation(node: &Node<'_>, reading: &mut Reading, mistakes: &mut Mistakes) -> Option<Validation> {
    let mut fields = node.object(mistakes)?;
    let fix = "write what must be true, `object.spec.replicas <= 5`";
    let expression = fields.required("expression", fix, mistakes);
    let several_lines = expression.as_ref().is_some_and(|node| {
        let text = node.string(&mut Mistakes::new());
        text.is_some_and(|text| text.trim().contains('\n'))
    });
    let expression = expression.and_then(|node| reading.compile(&node, Role::Validation, mistakes));
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
        message_expression.and_then(|node| reading.compile(&node, Role::Message, mistakes));
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
    reading: &mut Reading,
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
    let value = value.and_then(|node| reading.compile(&node, Role::Annotation, mistakes));
    fields.finish(mistakes);
    Some((key?, value?))
}

fn read_mutation(
    node: &Node<'_>,
    reading: &mut Reading,
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
    let expression = expression.and_then(|node| reading.compile(&node, role, mistakes));
    fields.finish(mistakes);
    expression
}
