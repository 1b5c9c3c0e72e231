//! Reads CEL expressions of native stages, and of policies of Kubernetes, Kyverno and Gatekeeper, from the same fields.

use std::{collections::HashMap, sync::Arc};

use admittance_admission::Phase;
use admittance_conditions::{
    Binding, CompiledPolicy, DenialReason, MatchCondition, PolicyCompiler, PolicyExpression, Role, Validation,
};

use super::CelDefinition;
use crate::{
    conditions,
    document::{Fields, Node, quoted, readers},
    forms::kubernetes::typing::WrittenExpression,
    names,
};

/// The maximum number of entries in each list of expressions.
const MAX_ENTRY_COUNT: usize = 64;

struct ExpressionReader<'r> {
    compiler: PolicyCompiler,
    expressions: Vec<WrittenExpression>,
    /// A function that rewrites the text of each expression before it is compiled. Only Kyverno's policies have one.
    rewrite: Option<&'r ExpressionRewrite<'r>>,
}

/// A function that gets an expression of a policy, and returns its rewritten text. The first argument is the role of
/// the expression, such as a validation or a message; `None` for a match condition.
type ExpressionRewrite<'r> = dyn Fn(Option<Role>, &str) -> String + 'r;

impl ExpressionReader<'_> {
    fn new(compiler: PolicyCompiler) -> Self {
        Self {
            compiler,
            expressions: Vec::new(),
            rewrite: None,
        }
    }

    fn compile(&mut self, node: &Node<'_>, role: Role) -> Option<PolicyExpression> {
        let text = node.text()?;
        let compiled = match self.rewrite {
            Some(rewrite) => self.compiler.compile(role, &rewrite(Some(role), text)),
            None => self.compiler.compile(role, text),
        };
        let compiled = node.accept(compiled)?;
        self.expressions.push(WrittenExpression::new(node, role, text));
        Some(compiled)
    }
}

pub(crate) fn read(node: &Node<'_>, phase: Phase) -> Option<CelDefinition> {
    let mut fields = node.object()?;
    let mistakes_before = node.mistake_count();
    if fields.has("validations") && fields.has("mutations") {
        node.add_mistake("it has validations and mutations", "make two stages");
    }
    if phase == Phase::Validating
        && let Some(mutations) = fields.optional("mutations")
    {
        let message = "a stage of a validating chain may only allow or deny";
        mutations.add_mistake(message, "move the stage to a mutating chain");
    }
    let (policy, expressions) = read_expressions(&mut fields, PolicyCompiler::new(false), Vec::new());
    if node.mistake_count() == mistakes_before && policy.validations.is_empty() && policy.mutations.is_empty() {
        node.add_mistake("it evaluates nothing", "write `validations` or `mutations`");
    }
    Some(CelDefinition {
        policy: Arc::new(policy),
        binding: Binding::default(),
        expressions: expressions.into(),
    })
}

pub(crate) fn read_policy(fields: &mut Fields<'_>, has_params: bool) -> (CompiledPolicy, Vec<WrittenExpression>) {
    check_as_kubernetes(fields);
    let mut compiler = PolicyCompiler::new(has_params);
    let conditions = read_entries(fields, "matchConditions");
    let compile = |name: &str, text: &str| compiler.compile_condition(name, text);
    let conditions = conditions::read_with(&conditions, compile);
    read_expressions(fields, compiler, conditions)
}

/// Reads and rewrites the expressions of a Kyverno policy. Expressions with a mistake are reported and left out.
pub(crate) fn read_kyverno(
    fields: &mut Fields<'_>,
    namespace: Option<&str>,
    rewrite: &ExpressionRewrite<'_>,
) -> CompiledPolicy {
    let mut reading = ExpressionReader {
        rewrite: Some(rewrite),
        ..ExpressionReader::new(PolicyCompiler::new(false).for_kyverno(namespace))
    };
    read_variables(fields, &mut reading);
    let conditions = read_entries(fields, "matchConditions");
    let compile = |name: &str, text: &str| reading.compiler.compile_condition(name, &rewrite(None, text));
    let conditions = conditions::read_with(&conditions, compile);
    let (mut policy, _) = read_results(fields, reading, conditions);
    for (index, validation) in policy.validations.iter_mut().enumerate() {
        let message = &mut validation.message;
        message.get_or_insert_with(|| format!("CEL expression validation failed at index {index}"));
    }
    policy
}

/// Reports those parts of a policy that kube-apiserver rejects, although this program could evaluate them.
fn check_as_kubernetes<'a>(fields: &mut Fields<'a>) {
    const MAX_ANNOTATION_COUNT: usize = 20;
    const MAX_ANNOTATION_LENGTH: usize = 5 << 10;
    let mut list = |name: &'static str| -> Vec<Node<'a>> {
        let children = fields.optional(name).map(|node| node.children());
        children
            .into_iter()
            .flatten()
            .filter_map(|(key, entry)| key.is_none().then_some(entry))
            .collect()
    };
    for entry in list("variables") {
        if let Some((node, name)) = text_field(&entry, "name")
            && RESERVED_WORDS.contains(&name)
        {
            let message = "the name is a reserved word of CEL";
            node.add_mistake(message, "give the variable another name");
        }
    }
    for entry in list("validations") {
        if let Some((node, message)) = text_field(&entry, "message")
            && message.trim().is_empty()
        {
            node.add_mistake("the message is empty", "write a message, or leave it out");
        }
        if let Some((node, "Unauthorized")) = text_field(&entry, "reason") {
            let fix = "write Forbidden, Invalid or RequestEntityTooLarge";
            node.add_mistake("kube-apiserver knows no policies with this reason", fix);
        }
    }
    let annotations = list("auditAnnotations");
    for entry in &annotations {
        if let Some((node, key)) = text_field(entry, "key")
            && key.contains('/')
        {
            let message = "the key of an annotation has no prefix: that is the name of the policy";
            node.add_mistake(message, "write the part after the `/` alone");
        }
        if let Some((node, value)) = text_field(entry, "valueExpression")
            && value.trim().len() > MAX_ANNOTATION_LENGTH
        {
            node.add_mistake("the expression is longer than 5 KiB", "make it shorter");
        }
    }
    if annotations.len() > MAX_ANNOTATION_COUNT
        && let Some(node) = fields.optional("auditAnnotations")
    {
        node.add_mistake("there are more than 20 annotations", "write 20 at most");
    }
}

fn text_field<'a>(entry: &Node<'a>, name: &'static str) -> Option<(Node<'a>, &'a str)> {
    let (_, node) = entry.children().into_iter().find(|(key, _)| *key == Some(name))?;
    let text = node.ignoring_mistakes().string()?;
    Some((node, text))
}

const RESERVED_WORDS: [&str; 21] = [
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

/// Reads the expressions of a Gatekeeper template. They may use two variables, which Gatekeeper defines.
pub(crate) fn read_template(fields: &mut Fields<'_>) -> CompiledPolicy {
    const PREDEFINED_VARIABLES: [(&str, &str); 2] = [
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
    let compile = |name: &str, text: &str| compiler.compile_condition(name, text);
    let conditions = conditions::read_with(&read_entries(fields, "matchConditions"), compile);
    for (name, text) in PREDEFINED_VARIABLES {
        if let Some(value) = fields.node().accept(compiler.compile(Role::Variable, text)) {
            compiler.define(name, value);
        }
    }
    read_expressions(fields, compiler, conditions).0
}

fn read_expressions(
    fields: &mut Fields<'_>,
    compiler: PolicyCompiler,
    conditions: Vec<MatchCondition>,
) -> (CompiledPolicy, Vec<WrittenExpression>) {
    let mut reading = ExpressionReader::new(compiler);
    read_variables(fields, &mut reading);
    read_results(fields, reading, conditions)
}

fn read_variables(fields: &mut Fields<'_>, reading: &mut ExpressionReader<'_>) {
    for entry in read_entries(fields, "variables") {
        read_variable(&entry, reading);
    }
}

fn read_results(
    fields: &mut Fields<'_>,
    mut reading: ExpressionReader<'_>,
    conditions: Vec<MatchCondition>,
) -> (CompiledPolicy, Vec<WrittenExpression>) {
    let read_validation_entry = |entry: &Node<'_>| read_validation(entry, &mut reading);
    let validations = read_entries(fields, "validations")
        .iter()
        .filter_map(read_validation_entry)
        .collect();
    let annotations = read_entries(fields, "auditAnnotations");
    let mut key_lines = HashMap::new();
    let read_annotation_entry = |entry: &Node<'_>| read_annotation(entry, &mut reading, &mut key_lines);
    let annotations = annotations.iter().filter_map(read_annotation_entry).collect();
    let read_mutation_entry = |entry: &Node<'_>| read_mutation(entry, &mut reading);
    let mutations = read_entries(fields, "mutations")
        .iter()
        .filter_map(read_mutation_entry)
        .collect();
    let ExpressionReader {
        compiler, expressions, ..
    } = reading;
    let policy = compiler.finish(conditions, validations, annotations, mutations);
    (policy, expressions)
}

fn read_entries<'a>(fields: &mut Fields<'a>, name: &'static str) -> Vec<Node<'a>> {
    let Some(node) = fields.optional(name) else {
        return Vec::new();
    };
    let entries = node.list().unwrap_or_default();
    if entries.len() > MAX_ENTRY_COUNT {
        let message = format!("there are {} entries", entries.len());
        node.add_mistake(message, format!("write {MAX_ENTRY_COUNT} at most"));
    }
    entries
}

fn read_variable(node: &Node<'_>, reading: &mut ExpressionReader<'_>) {
    let Some(mut fields) = node.object() else {
        return;
    };
    let name = fields.required("name", "name the variable").and_then(|node| {
        let name = node.parse_with(names::check_identifier)?;
        if reading.compiler.is_defined(&name) {
            let message = format!("{} is already defined", quoted(&name));
            return node.reject(message, "give each variable its own name");
        }
        Some(name)
    });
    let expression = fields
        .required("expression", "write its value, `object.spec.containers`")
        .and_then(|node| reading.compile(&node, Role::Variable));
    if let (Some(name), Some(expression)) = (name, expression) {
        reading.compiler.define(&name, expression);
        if let Some(last_expression) = reading.expressions.last_mut() {
            last_expression.variable = Some(name);
        }
    }
}

fn read_validation(node: &Node<'_>, reading: &mut ExpressionReader<'_>) -> Option<Validation> {
    let mut fields = node.object()?;
    let fix = "write what must be true, `object.spec.replicas <= 5`";
    let expression_node = fields.required("expression", fix);
    let is_kyverno = reading.rewrite.is_some();
    let has_several_lines = expression_node.as_ref().is_some_and(|node| {
        let text = node.ignoring_mistakes().string();
        text.is_some_and(|text| text.trim().contains('\n'))
    });
    let expression = expression_node.and_then(|node| reading.compile(&node, Role::Validation));
    let message = fields.optional("message").and_then(|node| {
        let message = node.text()?;
        if message.trim().contains('\n') && !is_kyverno {
            node.add_mistake("the message has several lines", "write it on one line");
        }
        Some(message.to_owned())
    });
    let message_node = fields.optional("messageExpression");
    // If a validation has no message, Kubernetes shows its expression as the message. A message must be on one line, so
    // an expression of several lines needs a separate message.
    if has_several_lines && !is_kyverno && message.is_none() && message_node.is_none() {
        let fix = "write a `message`";
        node.add_mistake("an expression of several lines needs a message", fix);
    }
    let message_expression = message_node.and_then(|node| reading.compile(&node, Role::Message));
    let reason = fields.get("reason", DenialReason::default(), Node::word);
    Some(Validation {
        expression: expression?,
        message,
        message_expression,
        reason,
    })
}

fn read_annotation(
    node: &Node<'_>,
    reader: &mut ExpressionReader<'_>,
    key_lines: &mut HashMap<String, u32>,
) -> Option<(String, PolicyExpression)> {
    let mut fields = node.object()?;
    let key = fields.required("key", "name the annotation").and_then(|node| {
        node.parse_with(names::check_label_key)?;
        let key = node.text()?;
        if let Some(line) = key_lines.insert(key.to_owned(), node.location().line) {
            let message = format!("{} is also the key of the annotation on line {line}", quoted(key));
            node.add_mistake(message, "give each annotation its own key");
        }
        Some(key.to_owned())
    });
    let value = fields
        .required("valueExpression", "write its value, a string or null")
        .and_then(|node| reader.compile(&node, Role::Annotation));
    Some((key?, value?))
}

fn read_mutation(node: &Node<'_>, reading: &mut ExpressionReader<'_>) -> Option<PolicyExpression> {
    const PATCHES: [(&str, (&str, Role)); 2] = [
        ("ApplyConfiguration", ("applyConfiguration", Role::ApplyConfiguration)),
        ("JSONPatch", ("jsonPatch", Role::JsonPatch)),
    ];
    let mut fields = node.object()?;
    let read_patch_type = readers::one_of("patch type", &PATCHES);
    let fix = "write ApplyConfiguration or JSONPatch";
    let patch_type = fields.get_required("patchType", fix, read_patch_type);
    let present = fields.present_fields(&["applyConfiguration", "jsonPatch"]);
    let (field_name, role) = patch_type?;
    if let Some((other, node)) = present.iter().find(|(field, _)| *field != field_name) {
        let fix = format!("write it in `{field_name}`, or correct `patchType`");
        return node.reject(format!("`{other}` does not fit the patch type"), fix);
    }
    let Some((_, patch)) = present.into_iter().next() else {
        let fix = format!("write `{field_name}: {{ expression: ... }}`");
        return node.reject(format!("`{field_name}` is missing"), fix);
    };
    let mut fields = patch.object()?;
    let fix = match role {
        Role::JsonPatch => "write the operations, `[JSONPatch{op: \"add\", path: \"/spec/x\", value: 1}]`",
        _ => "write what is applied, `Object{spec: Object.spec{replicas: 1}}`",
    };
    reading.compile(&fields.required("expression", fix)?, role)
}
