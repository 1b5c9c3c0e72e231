//! Reads the expressions of `cel` in a native stage, and of policies of Kubernetes and Gatekeeper, which have the same
//! fields.

use std::{collections::HashMap, sync::Arc};

use admittance_admission::Phase;
use admittance_conditions::{
    Binding, DenialReason, MatchCondition, Policy, PolicyCompiler, PolicyExpression, Role, Validation,
};

use super::CelDefinition;
use crate::{
    conditions,
    document::{Fields, Mistakes, Node, quoted, readers},
    forms::kubernetes::typing::WrittenExpression,
    names,
};

/// The most entries in each list of expressions of a policy.
const MOST: usize = 64;

struct ExpressionReader<'r> {
    compiler: PolicyCompiler,
    written: Vec<WrittenExpression>,
    /// Rewrites the expressions of a policy of Kyverno, which may also have messages of several lines.
    rewrite: Option<&'r Rewrite<'r>>,
}

/// Changes the text of an expression with this role. Match conditions have no role.
type Rewrite<'r> = dyn Fn(Option<Role>, &str) -> String + 'r;

impl ExpressionReader<'_> {
    fn new(compiler: PolicyCompiler) -> Self {
        Self {
            compiler,
            written: Vec::new(),
            rewrite: None,
        }
    }

    fn compile(&mut self, node: &Node<'_>, role: Role, mistakes: &mut Mistakes) -> Option<PolicyExpression> {
        let text = node.text(mistakes)?;
        let compiled = match self.rewrite {
            Some(rewrite) => self.compiler.compile(role, &rewrite(Some(role), text)),
            None => self.compiler.compile(role, text),
        };
        let compiled = node.accept(compiled, mistakes)?;
        self.written.push(WrittenExpression::new(node, role, text));
        Some(compiled)
    }
}

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

/// Reads the expressions of a policy of Kubernetes. Expressions with a mistake are left out.
pub(crate) fn read_policy(
    fields: &mut Fields<'_>,
    has_params: bool,
    mistakes: &mut Mistakes,
) -> (Policy, Vec<WrittenExpression>) {
    check_as_kubernetes(fields, mistakes);
    let mut compiler = PolicyCompiler::new(has_params);
    let conditions = entries(fields, "matchConditions", mistakes);
    let compile = |name: &str, text: &str| compiler.condition(name, text);
    let conditions = conditions::read_with(&conditions, compile, mistakes);
    read_expressions(fields, compiler, conditions, mistakes)
}

/// Reads the expressions of a policy of Kyverno, each rewritten. Expressions with mistakes are left out.
pub(crate) fn read_kyverno(
    fields: &mut Fields<'_>,
    namespace: Option<&str>,
    rewrite: &Rewrite<'_>,
    mistakes: &mut Mistakes,
) -> Policy {
    let mut reading = ExpressionReader {
        rewrite: Some(rewrite),
        ..ExpressionReader::new(PolicyCompiler::new(false).of_kyverno(namespace))
    };
    read_variables(fields, &mut reading, mistakes);
    let conditions = entries(fields, "matchConditions", mistakes);
    let compile = |name: &str, text: &str| reading.compiler.condition(name, &rewrite(None, text));
    let conditions = conditions::read_with(&conditions, compile, mistakes);
    let (mut policy, _) = read_results(fields, reading, conditions, mistakes);
    for (index, validation) in policy.validations.iter_mut().enumerate() {
        let message = &mut validation.message;
        message.get_or_insert_with(|| format!("CEL expression validation failed at index {index}"));
    }
    policy
}

/// Reports parts of a policy that kube-apiserver rejects, although they could be evaluated.
fn check_as_kubernetes(fields: &mut Fields<'_>, mistakes: &mut Mistakes) {
    const MOST_ANNOTATIONS: usize = 20;
    const LONGEST_ANNOTATION: usize = 5 << 10;
    let mut list = |name: &'static str| {
        let node = fields.optional(name);
        let entries = node.and_then(|node| node.list(&mut Mistakes::new()));
        entries.unwrap_or_default()
    };
    for entry in list("variables") {
        if let Some((node, name)) = text_field(&entry, "name")
            && RESERVED.contains(&name)
        {
            let message = "the name is a reserved word of CEL";
            node.wrong(message, "give the variable another name", mistakes);
        }
    }
    for entry in list("validations") {
        if let Some((node, message)) = text_field(&entry, "message")
            && message.trim().is_empty()
        {
            let fix = "write a message, or leave it out";
            node.wrong("the message is empty", fix, mistakes);
        }
        if let Some((node, "Unauthorized")) = text_field(&entry, "reason") {
            let fix = "write Forbidden, Invalid or RequestEntityTooLarge";
            node.wrong("kube-apiserver knows no policies with this reason", fix, mistakes);
        }
    }
    let annotations = list("auditAnnotations");
    for entry in &annotations {
        if let Some((node, key)) = text_field(entry, "key")
            && key.contains('/')
        {
            let message = "the key of an annotation has no prefix: that is the name of the policy";
            node.wrong(message, "write the part after the `/` alone", mistakes);
        }
        if let Some((node, value)) = text_field(entry, "valueExpression")
            && value.trim().len() > LONGEST_ANNOTATION
        {
            let message = "the expression is longer than 5 KiB";
            node.wrong(message, "make it shorter", mistakes);
        }
    }
    if annotations.len() > MOST_ANNOTATIONS
        && let Some(node) = fields.optional("auditAnnotations")
    {
        let message = "there are more than 20 annotations";
        node.wrong(message, "write 20 at most", mistakes);
    }
}

/// Returns a field if it is a string, without reporting mistakes.
fn text_field<'a>(entry: &Node<'a>, name: &'static str) -> Option<(Node<'a>, &'a str)> {
    let node = entry.object(&mut Mistakes::new())?.optional(name)?;
    let text = node.string(&mut Mistakes::new())?;
    Some((node, text))
}

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

/// Reads the expressions of a template of Gatekeeper, which may use two variables that Gatekeeper defines.
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

fn read_expressions(
    fields: &mut Fields<'_>,
    compiler: PolicyCompiler,
    conditions: Vec<MatchCondition>,
    mistakes: &mut Mistakes,
) -> (Policy, Vec<WrittenExpression>) {
    let mut reading = ExpressionReader::new(compiler);
    read_variables(fields, &mut reading, mistakes);
    read_results(fields, reading, conditions, mistakes)
}

fn read_variables(fields: &mut Fields<'_>, reading: &mut ExpressionReader<'_>, mistakes: &mut Mistakes) {
    for entry in entries(fields, "variables", mistakes) {
        read_variable(&entry, reading, mistakes);
    }
}

fn read_results(
    fields: &mut Fields<'_>,
    mut reading: ExpressionReader<'_>,
    conditions: Vec<MatchCondition>,
    mistakes: &mut Mistakes,
) -> (Policy, Vec<WrittenExpression>) {
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
    let ExpressionReader {
        compiler, written, ..
    } = reading;
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

fn read_variable(node: &Node<'_>, reading: &mut ExpressionReader<'_>, mistakes: &mut Mistakes) {
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
    let expression = fields
        .required("expression", fix, mistakes)
        .and_then(|node| reading.compile(&node, Role::Variable, mistakes));
    fields.finish(mistakes);
    if let (Some(name), Some(expression)) = (name, expression) {
        reading.compiler.define(&name, expression);
        if let Some(written) = reading.written.last_mut() {
            written.variable = Some(name);
        }
    }
}

fn read_validation(
    node: &Node<'_>,
    reading: &mut ExpressionReader<'_>,
    mistakes: &mut Mistakes,
) -> Option<Validation> {
    let mut fields = node.object(mistakes)?;
    let fix = "write what must be true, `object.spec.replicas <= 5`";
    let expression = fields.required("expression", fix, mistakes);
    let is_kyverno = reading.rewrite.is_some();
    let has_several_lines = expression.as_ref().is_some_and(|node| {
        let text = node.string(&mut Mistakes::new());
        text.is_some_and(|text| text.trim().contains('\n'))
    });
    let expression = expression.and_then(|node| reading.compile(&node, Role::Validation, mistakes));
    let message = fields.optional("message").and_then(|node| {
        let message = node.text(mistakes)?;
        if message.trim().contains('\n') && !is_kyverno {
            node.wrong("the message has several lines", "write it on one line", mistakes);
        }
        Some(message.to_owned())
    });
    let message_expression = fields.optional("messageExpression");
    // As in Kubernetes, an expression is the default of its message, which must be on one line.
    if has_several_lines && !is_kyverno && message.is_none() && message_expression.is_none() {
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
    reading: &mut ExpressionReader<'_>,
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
    let value = fields
        .required("valueExpression", fix, mistakes)
        .and_then(|node| reading.compile(&node, Role::Annotation, mistakes));
    fields.finish(mistakes);
    Some((key?, value?))
}

fn read_mutation(
    node: &Node<'_>,
    reading: &mut ExpressionReader<'_>,
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
    let read = readers::one_of("patch type", &PATCHES);
    let fix = "write ApplyConfiguration or JSONPatch";
    let wanted = fields.get_required("patchType", fix, read, mistakes);
    let present = fields.present(&["applyConfiguration", "jsonPatch"]);
    fields.finish(mistakes);
    let (wanted, role) = wanted?;
    if let Some((other, node)) = present.iter().find(|(field, _)| *field != wanted) {
        let fix = format!("write it in `{wanted}`, or correct `patchType`");
        node.wrong(format!("`{other}` does not fit the patch type"), fix, mistakes);
        return None;
    }
    let Some((_, patch)) = present.into_iter().next() else {
        let fix = format!("write `{wanted}: {{ expression: ... }}`");
        node.wrong(format!("`{wanted}` is missing"), fix, mistakes);
        return None;
    };
    let mut fields = patch.object(mistakes)?;
    let fix = match role {
        Role::JsonPatch => "write the operations, `[JSONPatch{op: \"add\", path: \"/spec/x\", value: 1}]`",
        _ => "write what is applied, `Object{spec: Object.spec{replicas: 1}}`",
    };
    let expression = fields
        .required("expression", fix, mistakes)
        .and_then(|node| reading.compile(&node, role, mistakes));
    fields.finish(mistakes);
    expression
}
