//! Selectors of namespaces and of labels.

use admittance_admission::{LabelOperator, LabelSelector, NamespaceSelector, Requirement};

use crate::{
    document::{Fields, Mistakes, Node},
    names,
};

const LABEL_OPERATORS: [(&str, LabelOperator); 4] = [
    ("In", LabelOperator::In),
    ("NotIn", LabelOperator::NotIn),
    ("Exists", LabelOperator::Exists),
    ("DoesNotExist", LabelOperator::DoesNotExist),
];

/// How a selector of names compares.
#[derive(Clone, Copy)]
enum NameOperator {
    In,
    NotIn,
}

const NAME_OPERATORS: [(&str, NameOperator); 2] = [("In", NameOperator::In), ("NotIn", NameOperator::NotIn)];

/// What a label may look like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Anything: control planes have their own rules.
    Free,
    /// What kube-apiserver lets pass; a selector of anything else could never match there.
    Kubernetes,
}

impl Syntax {
    /// Push what is wrong with a part of a label. An empty one is told by who needs it.
    fn hold(
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

/// The selector of a native stage: the names of BCS or the labels of Kubernetes.
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

/// The selector of a BCS hook. With no values, `In` is for no namespace and `NotIn` for every one, as
/// the driver has it.
pub(crate) fn bcs_namespaces(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NamespaceSelector> {
    by_names(node.object_of_any_case(mistakes)?, mistakes)
}

fn by_names(mut fields: Fields<'_>, mistakes: &mut Mistakes) -> Option<NamespaceSelector> {
    let operator = fields
        .required("operator", "write In or NotIn", mistakes)
        .and_then(|operator| operator.one_of("operator", &NAME_OPERATORS, mistakes));
    let values = match fields.optional("values") {
        Some(values) => values.strings(mistakes).unwrap_or_default(),
        None => Vec::new(),
    };
    fields.finish(mistakes);
    Some(match operator? {
        NameOperator::In => NamespaceSelector::In(values),
        NameOperator::NotIn => NamespaceSelector::NotIn(values),
    })
}

/// A selector of labels, as Kubernetes writes it.
pub(crate) fn labels(node: &Node<'_>, syntax: Syntax, mistakes: &mut Mistakes) -> LabelSelector {
    match node.object(mistakes) {
        Some(fields) => by_labels(fields, syntax, &[], mistakes),
        None => LabelSelector::default(),
    }
}

/// `also_known`: fields that another form of the selector has, for what is suggested.
fn by_labels(
    mut fields: Fields<'_>,
    syntax: Syntax,
    also_known: &[&'static str],
    mistakes: &mut Mistakes,
) -> LabelSelector {
    let mut requirements = Vec::new();
    if let Some(labels) = fields.optional("matchLabels") {
        for (key, value) in labels.map(mistakes).unwrap_or_default() {
            let Some(text) = value.string(mistakes) else {
                continue;
            };
            syntax.hold(&value, key, names::label_key, mistakes);
            syntax.hold(&value, text, names::label_value, mistakes);
            match Requirement::new(key, LabelOperator::In, vec![text.to_owned()]) {
                Ok(requirement) => requirements.push(requirement),
                Err(error) => value.wrong(error.to_string(), "", mistakes),
            }
        }
    }
    if let Some(expressions) = fields.optional("matchExpressions") {
        for expression in expressions.list(mistakes).unwrap_or_default() {
            requirements.extend(requirement(&expression, syntax, mistakes));
        }
    }
    fields.ignore(also_known);
    fields.finish(mistakes);
    LabelSelector::new(requirements)
}

fn requirement(node: &Node<'_>, syntax: Syntax, mistakes: &mut Mistakes) -> Option<Requirement> {
    let mut fields = node.object(mistakes)?;
    let key = fields
        .required("key", "name the label", mistakes)
        .and_then(|node| {
            let key = node.string(mistakes)?;
            syntax.hold(&node, key, names::label_key, mistakes);
            Some(key)
        });
    let operator = fields
        .required("operator", "write In, NotIn, Exists or DoesNotExist", mistakes)
        .and_then(|operator| operator.one_of("operator", &LABEL_OPERATORS, mistakes));
    let values = match fields.optional("values") {
        Some(values) => values.list(mistakes).map(|values| {
            let text = |value: &Node<'_>, mistakes: &mut Mistakes| {
                let text = value.string(mistakes)?;
                syntax.hold(value, text, names::label_value, mistakes);
                Some(text.to_owned())
            };
            values.iter().filter_map(|value| text(value, mistakes)).collect()
        }),
        None => Some(Vec::new()),
    };
    fields.finish(mistakes);
    match Requirement::new(key?, operator?, values?) {
        Ok(requirement) => Some(requirement),
        Err(error) => {
            node.wrong(error.to_string(), "", mistakes);
            None
        }
    }
}
