//! Evaluates the assertions of a Gatekeeper suite: how many messages of a constraint must match a pattern.

use admittance::admission::{Outcome, StageResult, TraceRow};
use admittance_definitions::document::{Fields, Node, readers};
use regex::Regex;
use serde_json::Value;

use crate::test::comparison::UnmetExpectation;

#[derive(Debug)]
pub(in crate::test) struct Assertion {
    violations: Violations,
    message: Option<Regex>,
}

#[derive(Clone, Copy, Debug)]
enum Violations {
    Some,
    None,
    Number(usize),
}

pub(super) fn read_assertions(fields: &mut Fields<'_>) -> Vec<Assertion> {
    let mut assertions = Vec::new();
    for entry in fields.get("assertions", Vec::new(), Node::list) {
        let Some(mut fields) = entry.object() else {
            continue;
        };
        let violations = fields.get("violations", Violations::Some, read_violations);
        let message = fields.get_optional("message", readers::parse_with(parse_pattern));
        assertions.push(Assertion { violations, message });
    }
    assertions
}

/// Compiles a Go regexp. In Go, unlike in Rust, a `{` that starts no repetition is literal.
fn parse_pattern(text: &str) -> Result<Regex, String> {
    let mut escaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        escaped.push_str(before);
        let inner = from
            .split_once('}')
            .map_or("", |(inner, _)| inner)
            .trim_start_matches('{');
        let is_number = |part: &str| part.chars().all(|c| c.is_ascii_digit());
        let (minimum, maximum) = inner.split_once(',').unwrap_or((inner, ""));
        let is_repetition = !minimum.is_empty() && is_number(minimum) && is_number(maximum);
        let is_class = before.ends_with("\\p") || before.ends_with("\\P") || before.ends_with("\\x");
        let is_escaped = before.ends_with('\\');
        if !is_repetition && !is_class && !is_escaped {
            escaped.push('\\');
        }
        escaped.push('{');
        rest = from.get(1..).unwrap_or_default();
    }
    escaped.push_str(rest);
    Regex::new(&escaped).map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default();
        format!(
            "{text:?} is not a valid regular expression: {}",
            why.trim_start_matches("error: ")
        )
    })
}

fn read_violations(node: &Node<'_>) -> Option<Violations> {
    match node.json() {
        Value::Bool(true) => return Some(Violations::Some),
        Value::Bool(false) => return Some(Violations::None),
        Value::Number(number) => {
            if let Some(number) = number.as_u64().and_then(|number| usize::try_from(number).ok()) {
                return Some(Violations::Number(number));
            }
        }
        Value::String(text) if text == "yes" => return Some(Violations::Some),
        Value::String(text) if text == "no" => return Some(Violations::None),
        _ => {}
    }
    node.reject("it is no number of violations", "write yes, no, or how many")
}

pub(in crate::test) fn unmet_assertions(
    constraint: &str,
    assertions: &[Assertion],
    outcome: &Outcome,
) -> Vec<UnmetExpectation> {
    let mut messages = Vec::new();
    let prefix = format!("[{constraint}] ");
    let mut take = |text: &str| {
        let text = text.strip_prefix(&prefix).unwrap_or(text);
        messages.extend(text.split(&format!("\n{prefix}")).map(str::to_owned));
    };
    let is_of_constraint = |row: &&TraceRow| match row.stage.strip_prefix(constraint) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    };
    for row in outcome.trace.iter().filter(is_of_constraint) {
        match &row.result {
            StageResult::Denied(denial) => take(&denial.message),
            StageResult::Failed { failure, .. } => {
                return vec![UnmetExpectation::new("failure", failure.message.clone())];
            }
            _ => {}
        }
    }
    if messages.is_empty() {
        let warnings = outcome.warnings.iter().filter(|warning| warning.starts_with(&prefix));
        messages.extend(warnings.filter_map(|warning| Some(warning.strip_prefix(&prefix)?.to_owned())));
    }
    assertions
        .iter()
        .filter_map(|assertion| assertion.unmet_expectation(&messages))
        .collect()
}

impl Assertion {
    fn unmet_expectation(&self, messages: &[String]) -> Option<UnmetExpectation> {
        let is_counted = |message: &&String| self.message.as_ref().is_none_or(|pattern| pattern.is_match(message));
        let violation_count = messages.iter().filter(is_counted).count();
        let (is_met, expected) = match self.violations {
            Violations::Some => (violation_count > 0, "at least one".to_owned()),
            Violations::None => (violation_count == 0, "none".to_owned()),
            Violations::Number(number) => (violation_count == number, number.to_string()),
        };
        if is_met {
            return None;
        }
        let message_condition = match &self.message {
            Some(pattern) => format!(" with a message like /{pattern}/"),
            None => String::new(),
        };
        let message_list = match messages {
            [] => String::new(),
            messages => format!("; the messages are:\n{}", messages.join("\n")),
        };
        Some(UnmetExpectation::new(
            "violations",
            format!("expected {expected}{message_condition}, and there are {violation_count}{message_list}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brace_that_starts_no_repetition_is_literal() {
        for (text, sample, expected) in [
            (r#"missing: {"a"}"#, r#"missing: {"a"}"#, true),
            ("a{2}", "aa", true),
            ("a{2,3}b", "aab", true),
            ("^a{2,}$", "a", false),
            (r"\{a", "{a", true),
            (r"\p{Lu}", "A", true),
            ("{", "{", true),
        ] {
            assert_eq!(parse_pattern(text).unwrap().is_match(sample), expected, "{text}");
        }
        let error = parse_pattern("a(").unwrap_err();
        assert_eq!(error, "\"a(\" is not a valid regular expression: unclosed group");
    }
}
