//! Reads selectors of namespaces and of labels.

use admittance_admission::{LabelOperator, LabelSelector, NamespaceSelector, Requirement};

use crate::{
    document::{Fields, Mistakes, Node, readers},
    names,
};

const NAME_OPERATORS: [(&str, fn(Vec<String>) -> NamespaceSelector); 2] =
    [("In", NamespaceSelector::In), ("NotIn", NamespaceSelector::NotIn)];

/// The rules for valid labels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Every label is valid, since control planes have their own rules.
    Free,
    /// Only labels that kube-apiserver accepts are valid, since a selector with another label could never match.
    Kubernetes,
}

impl Syntax {
    /// Checks a part of a label. The caller reports an empty part.
    fn check(
        self,
        node: &Node<'_>,
        text: &str,
        check: fn(&str) -> Result<(), String>,
        mistakes: &mut Mistakes,
    ) {
        if self == Self::Kubernetes
            && !text.is_empty()
            && let Err(message) = check(text)
        {
            node.wrong(message, "", mistakes);
        }
    }
}

/// Reads the namespace selector of a native stage: by name as in BCS, or by label as in Kubernetes.
pub(crate) fn namespaces(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NamespaceSelector> {
    let fields = node.object(mistakes)?;
    let by_name = fields.has("operator") || fields.has("values");
    let by_label = fields.has("matchLabels") || fields.has("matchExpressions");
    if by_name && by_label {
        let message =
            "it selects by name (`operator`, `values`) and by label (`matchLabels`, `matchExpressions`)";
        node.wrong(message, "use one of the two forms", mistakes);
        return None;
    }
    if by_name {
        let selector = by_names(fields, mistakes)?;
        if let NamespaceSelector::In(names) | NamespaceSelector::NotIn(names) = &selector
            && names.is_empty()
        {
            let fix = "name at least one namespace, or remove the selector";
            node.wrong("it lists no namespace", fix, mistakes);
        }
        return Some(selector);
    }
    Some(NamespaceSelector::Labels(by_labels(
        fields,
        Syntax::Free,
        &["operator", "values"],
        mistakes,
    )))
}

/// Reads the namespace selector of a BCS hook. Without values, `In` selects no namespace and `NotIn` every one, as in the
/// BCS driver.
pub(crate) fn bcs_namespaces(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NamespaceSelector> {
    by_names(node.object_of_any_case(mistakes)?, mistakes)
}

fn by_names(mut fields: Fields<'_>, mistakes: &mut Mistakes) -> Option<NamespaceSelector> {
    let read = readers::one_of("operator", &NAME_OPERATORS);
    let selector = fields.get_required("operator", "write In or NotIn", read, mistakes);
    let values = fields.get("values", Vec::new(), Node::strings, mistakes);
    fields.finish(mistakes);
    Some(selector?(values))
}

/// Reads a field with a label selector in the form of Kubernetes. A missing selector selects everything.
pub(crate) fn labels_of(
    fields: &mut Fields<'_>,
    name: &'static str,
    syntax: Syntax,
    mistakes: &mut Mistakes,
) -> LabelSelector {
    match fields.get_optional(name, Node::object, mistakes) {
        Some(fields) => by_labels(fields, syntax, &[], mistakes),
        None => LabelSelector::default(),
    }
}

/// Returns the selector of namespaces by these labels; `None` if it selects every namespace.
pub(crate) fn namespaces_with(labels: LabelSelector) -> Option<NamespaceSelector> {
    (!labels.is_empty()).then_some(NamespaceSelector::Labels(labels))
}

/// Reads a label selector. `also_known` are the fields of other forms of the selector, which may be suggested for an unknown
/// field.
fn by_labels(
    mut fields: Fields<'_>,
    syntax: Syntax,
    also_known: &[&'static str],
    mistakes: &mut Mistakes,
) -> LabelSelector {
    let mut requirements = Vec::new();
    for (key, value) in fields.get("matchLabels", Vec::new(), Node::map, mistakes) {
        let Some(text) = value.string(mistakes) else {
            continue;
        };
        syntax.check(&value, key, names::label_key, mistakes);
        syntax.check(&value, text, names::label_value, mistakes);
        match Requirement::new(key, LabelOperator::In, vec![text.to_owned()]) {
            Ok(requirement) => requirements.push(requirement),
            Err(error) => value.wrong(error.to_string(), "", mistakes),
        }
    }
    for expression in fields.get("matchExpressions", Vec::new(), Node::list, mistakes) {
        requirements.extend(requirement(&expression, syntax, mistakes));
    }
    fields.ignore(also_known);
    fields.finish(mistakes);
    LabelSelector::new(requirements)
}

fn requirement(node: &Node<'_>, syntax: Syntax, mistakes: &mut Mistakes) -> Option<Requirement> {
    let mut fields = node.object(mistakes)?;
    let read = |node: &Node<'_>, check: fn(&str) -> Result<(), String>, mistakes: &mut Mistakes| {
        let text = node.string(mistakes)?;
        syntax.check(node, text, check, mistakes);
        Some(text.to_owned())
    };
    let read_key = |node: &Node<'_>, mistakes: &mut Mistakes| read(node, names::label_key, mistakes);
    let key = fields.get_required("key", "name the label", read_key, mistakes);
    let fix = "write In, NotIn, Exists or DoesNotExist";
    let operator = fields.get_required("operator", fix, Node::word, mistakes);
    let values = match fields.optional("values") {
        Some(values) => values.list(mistakes).map(|values| {
            let values = values.iter();
            values
                .filter_map(|value| read(value, names::label_value, mistakes))
                .collect()
        }),
        None => Some(Vec::new()),
    };
    fields.finish(mistakes);
    node.accept(Requirement::new(key?, operator?, values?), mistakes)
}
