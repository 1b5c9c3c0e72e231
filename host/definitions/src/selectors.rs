//! Reads selectors, which select namespaces by name, or objects and namespaces by their labels.

use admittance_admission::{LabelOperator, LabelRequirement, LabelSelector, NamespaceSelector};

use crate::{
    document::{Fields, Node, readers},
    names,
};

const NAME_OPERATORS: [(&str, fn(Vec<String>) -> NamespaceSelector); 2] =
    [("In", NamespaceSelector::In), ("NotIn", NamespaceSelector::NotIn)];

/// The rules for the labels that a selector may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelSyntax {
    /// All labels are valid, because a control plane other than Kubernetes has its own rules for labels.
    Free,
    /// Only labels that are valid for kube-apiserver are accepted. No object has any other label, so a selector with an
    /// invalid label would never match.
    Kubernetes,
}

impl LabelSyntax {
    /// Checks the key or value of a label with `check`. An empty text is not checked, because the caller reports it.
    fn check(self, node: &Node<'_>, text: &str, check: fn(&str) -> Result<(), String>) {
        if self == Self::Kubernetes
            && !text.is_empty()
            && let Err(message) = check(text)
        {
            node.add_mistake(message, "");
        }
    }
}

/// Reads the namespace selector of a native stage, which selects by name as in BCS, or by label as in Kubernetes.
pub(crate) fn read_namespace_selector(node: &Node<'_>) -> Option<NamespaceSelector> {
    let fields = node.object()?;
    let selects_by_name = fields.has("operator") || fields.has("values");
    let selects_by_label = fields.has("matchLabels") || fields.has("matchExpressions");
    if selects_by_name && selects_by_label {
        let message = "it selects by name (`operator`, `values`) and by label (`matchLabels`, `matchExpressions`)";
        return node.reject(message, "use one of the two forms");
    }
    if selects_by_name {
        let selector = read_name_selector(fields)?;
        if let NamespaceSelector::In(names) | NamespaceSelector::NotIn(names) = &selector
            && names.is_empty()
        {
            let fix = "name at least one namespace, or remove the selector";
            node.add_mistake("it lists no namespace", fix);
        }
        return Some(selector);
    }
    Some(NamespaceSelector::Labels(read_label_selector(
        fields,
        LabelSyntax::Free,
        &["operator", "values"],
    )))
}

/// Reads the namespace selector of a BCS hook. As in the BCS driver, the list `values` may be empty.
pub(crate) fn read_bcs_namespace_selector(node: &Node<'_>) -> Option<NamespaceSelector> {
    read_name_selector(node.object_of_any_case()?)
}

fn read_name_selector(mut fields: Fields<'_>) -> Option<NamespaceSelector> {
    let read_operator = readers::one_of("operator", &NAME_OPERATORS);
    let selector = fields.get_required("operator", "write In or NotIn", read_operator);
    let values = fields.get("values", Vec::new(), Node::strings);
    Some(selector?(values))
}

/// Reads the label selector in the field `name`, in the format of Kubernetes. If it is missing, everything matches.
pub(crate) fn read_labels_of_field(fields: &mut Fields<'_>, name: &'static str, syntax: LabelSyntax) -> LabelSelector {
    match fields.get_optional(name, Node::object) {
        Some(fields) => read_label_selector(fields, syntax, &[]),
        None => LabelSelector::default(),
    }
}

/// Returns a selector of the namespaces with these labels; `None` if every namespace is selected.
pub(crate) fn namespaces_with_labels(labels: LabelSelector) -> Option<NamespaceSelector> {
    (!labels.is_empty()).then_some(NamespaceSelector::Labels(labels))
}

fn read_label_selector(mut fields: Fields<'_>, syntax: LabelSyntax, ignored_fields: &[&'static str]) -> LabelSelector {
    let mut requirements = Vec::new();
    for (key, value) in fields.get("matchLabels", Vec::new(), Node::map) {
        let Some(text) = value.string() else {
            continue;
        };
        syntax.check(&value, key, names::check_label_key);
        syntax.check(&value, text, names::check_label_value);
        match LabelRequirement::new(key, LabelOperator::In, vec![text.to_owned()]) {
            Ok(requirement) => requirements.push(requirement),
            Err(error) => value.add_mistake(error.to_string(), ""),
        }
    }
    for expression in fields.get("matchExpressions", Vec::new(), Node::list) {
        requirements.extend(read_requirement(&expression, syntax));
    }
    fields.ignore(ignored_fields);
    LabelSelector::new(requirements)
}

fn read_requirement(node: &Node<'_>, syntax: LabelSyntax) -> Option<LabelRequirement> {
    let mut fields = node.object()?;
    let read_checked_text = |node: &Node<'_>, check: fn(&str) -> Result<(), String>| {
        let text = node.string()?;
        syntax.check(node, text, check);
        Some(text.to_owned())
    };
    let read_key = |node: &Node<'_>| read_checked_text(node, names::check_label_key);
    let key = fields.get_required("key", "name the label", read_key);
    let operator = fields.get_required("operator", "write In, NotIn, Exists or DoesNotExist", Node::word);
    let values = match fields.optional("values") {
        Some(values) => values.list().map(|values| {
            values
                .iter()
                .filter_map(|value| read_checked_text(value, names::check_label_value))
                .collect()
        }),
        None => Some(Vec::new()),
    };
    node.accept(LabelRequirement::new(key?, operator?, values?))
}
