//! Reads `matchConditions`. Native stages use the same syntax for them as Kubernetes.

use std::collections::HashMap;

use admittance_admission::MatchConditions;
use admittance_conditions::{CelConditions, ConditionError, MatchCondition};

use crate::document::{Fields, Node, quoted};

const PLACEHOLDER_NAME: &str = "condition";

pub(crate) fn read(fields: &mut Fields<'_>) -> MatchConditions {
    let Some(node) = fields.optional("matchConditions") else {
        return MatchConditions::default();
    };
    let entries = node.list().unwrap_or_default();
    if entries.len() > MatchCondition::MAX_COUNT {
        let message = format!("there are {} conditions", entries.len());
        let fix = format!(
            "write {} at most; several can be one, joined by `&&`",
            MatchCondition::MAX_COUNT
        );
        node.add_mistake(message, fix);
    }
    let conditions: CelConditions = read_with(&entries, MatchCondition::compile).into_iter().collect();
    conditions.into()
}

pub(crate) fn read_with(
    entries: &[Node<'_>],
    mut compile: impl FnMut(&str, &str) -> Result<MatchCondition, ConditionError>,
) -> Vec<MatchCondition> {
    let mut first_lines = HashMap::new();
    let read_entry = |entry| read_one(entry, &mut compile, &mut first_lines);
    entries.iter().filter_map(read_entry).collect()
}

fn read_one<'a>(
    node: &Node<'a>,
    mut compile: impl FnMut(&str, &str) -> Result<MatchCondition, ConditionError>,
    first_lines: &mut HashMap<&'a str, u32>,
) -> Option<MatchCondition> {
    let mut fields = node.object()?;
    let name_node = fields.required("name", "name the condition");
    let name = name_node.as_ref().and_then(|name| name.text());
    let fix = "write what must be true, `object.metadata.namespace != 'kube-system'`";
    let expression_node = fields.required("expression", fix);
    let expression = expression_node.as_ref().and_then(|expression| expression.text());
    if let (Some(name), Some(node)) = (name, &name_node) {
        match first_lines.get(name) {
            Some(line) => {
                let message = format!("{} is also the name of the condition on line {line}", quoted(name));
                node.add_mistake(message, "give each condition its own name");
            }
            None => {
                first_lines.insert(name, node.location().line);
            }
        }
    }
    // A placeholder replaces a missing or invalid name, so that mistakes in the expression are reported as well.
    let mut compiled = compile(name.unwrap_or(PLACEHOLDER_NAME), expression.unwrap_or("true"));
    if let Err(ConditionError::Name { name, why }) = &compiled {
        if let Some(node) = &name_node {
            let message = format!("{} is not a valid condition name: {why}", quoted(name));
            node.add_mistake(message, "");
        }
        compiled = compile(PLACEHOLDER_NAME, expression.unwrap_or("true"));
    }
    match (compiled, expression_node) {
        (Ok(condition), _) => Some(condition),
        (Err(error), Some(node)) => node.reject(error.to_string(), ""),
        (Err(_), None) => None,
    }
}

#[cfg(test)]
mod tests;
