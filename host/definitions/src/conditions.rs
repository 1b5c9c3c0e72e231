//! Reads `matchConditions`, which have the same form in native stages as in Kubernetes.

use std::collections::HashMap;

use admittance_admission::MatchConditions;
use admittance_conditions::{CelConditions, ConditionError, MatchCondition};

use crate::document::{Fields, Mistakes, Node, quoted};

/// The name with which an expression is checked if its own name is invalid.
const VALID_NAME: &str = "condition";

pub(crate) fn read(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> MatchConditions {
    let Some(node) = fields.optional("matchConditions") else {
        return MatchConditions::default();
    };
    let entries = node.list(mistakes).unwrap_or_default();
    if entries.len() > MatchCondition::MOST {
        let message = format!("there are {} conditions", entries.len());
        let fix = format!(
            "write {} at most; several can be one, joined by `&&`",
            MatchCondition::MOST
        );
        node.wrong(message, fix, mistakes);
    }
    let conditions: CelConditions = read_with(&entries, MatchCondition::compile, mistakes)
        .into_iter()
        .collect();
    conditions.into()
}

/// Reads conditions with names, which `compile` compiles.
pub(crate) fn read_with(
    entries: &[Node<'_>],
    mut compile: impl FnMut(&str, &str) -> Result<MatchCondition, ConditionError>,
    mistakes: &mut Mistakes,
) -> Vec<MatchCondition> {
    let mut seen = HashMap::new();
    let read = |entry| read_one(entry, &mut compile, &mut seen, mistakes);
    entries.iter().filter_map(read).collect()
}

fn read_one<'a>(
    node: &Node<'a>,
    mut compile: impl FnMut(&str, &str) -> Result<MatchCondition, ConditionError>,
    seen: &mut HashMap<&'a str, u32>,
    mistakes: &mut Mistakes,
) -> Option<MatchCondition> {
    let mut fields = node.object(mistakes)?;
    let name_node = fields.required("name", "name the condition", mistakes);
    let name = name_node.as_ref().and_then(|name| name.text(mistakes));
    let fix = "write what must be true, `object.metadata.namespace != 'kube-system'`";
    let expression_node = fields.required("expression", fix, mistakes);
    let expression = expression_node
        .as_ref()
        .and_then(|expression| expression.text(mistakes));
    fields.finish(mistakes);
    if let (Some(name), Some(node)) = (name, &name_node) {
        match seen.get(name) {
            Some(line) => {
                let message = format!(
                    "{} is also the name of the condition on line {line}",
                    quoted(name)
                );
                node.wrong(message, "give each condition its own name", mistakes);
            }
            None => {
                seen.insert(name, node.location().line);
            }
        }
    }
    // A mistake in the name hides those in the expression, so the expression is compiled again with a valid name.
    let mut compiled = compile(name.unwrap_or(VALID_NAME), expression.unwrap_or("true"));
    if let Err(ConditionError::Name { name, why }) = &compiled {
        if let Some(node) = &name_node {
            let message = format!("{} is not a valid condition name: {why}", quoted(name));
            node.wrong(message, "", mistakes);
        }
        compiled = compile(VALID_NAME, expression.unwrap_or("true"));
    }
    match (compiled, expression_node) {
        (Ok(condition), _) => Some(condition),
        (Err(error), Some(node)) => {
            node.wrong(error.to_string(), "", mistakes);
            None
        }
        (Err(_), None) => None,
    }
}

#[cfg(test)]
mod tests;
