//! Compares outcomes with expectations.

use admittance::admission::{Decision, Object, Outcome, StageResult, TraceRow};
use serde_json::{Map, Value};

use super::{
    case::{CaseExpectation, CaseHooks, ExpectedOutcome, TestCase},
    suite,
};
use crate::output::diff;

#[derive(Debug)]
pub(super) struct UnmetExpectation {
    pub(super) aspect: &'static str,
    pub(super) message: String,
    /// The lines that differ between the expected and the actual value, in colour.
    pub(super) diff: Vec<String>,
}

impl UnmetExpectation {
    pub(super) fn new(aspect: &'static str, message: impl Into<String>) -> Self {
        Self {
            aspect,
            message: message.into(),
            diff: Vec::new(),
        }
    }

    fn with_diff(aspect: &'static str, message: &str, expected: &Value, actual: &Value) -> Self {
        Self {
            diff: diff(Some(expected), Some(actual), 3).concat(),
            ..Self::new(aspect, message)
        }
    }
}

pub(super) fn unmet_expectations(case: &TestCase, outcome: &Outcome) -> Vec<UnmetExpectation> {
    match &case.expected {
        CaseExpectation::Outcome(expected) => unmet_outcome_expectations(case, expected, outcome),
        CaseExpectation::Violations { constraint, assertions } => {
            suite::unmet_assertions(constraint, assertions, outcome)
        }
        CaseExpectation::Invalid => Vec::new(),
    }
}

fn unmet_outcome_expectations(case: &TestCase, expected: &ExpectedOutcome, outcome: &Outcome) -> Vec<UnmetExpectation> {
    let mut failures: Vec<_> = unmet_decision(expected.allowed, outcome).into_iter().collect();
    if let (Decision::Refused(refusal), false) = (&outcome.decision, expected.allowed) {
        let text = refusal.to_string();
        if let Some(pattern) = expected.message.as_ref().filter(|pattern| !pattern.is_in(&text)) {
            let message = format!("`{pattern}` is not in the message: {text}");
            failures.push(UnmetExpectation::new("message", message));
        }
        if let Some(code) = expected.code.filter(|code| *code != refusal.code()) {
            let message = format!("expected {code}, and it is {}", refusal.code());
            failures.push(UnmetExpectation::new("code", message));
        }
    }
    if let Some(kind) = expected.failure {
        let failure_kinds: Vec<_> = outcome.trace.iter().filter_map(failure_kind).collect();
        if !failure_kinds.contains(&kind.as_str()) {
            failures.push(UnmetExpectation::new(
                "failure",
                format!("expected {kind}, found {}", name_list(&failure_kinds)),
            ));
        }
    }
    failures.extend(match &expected.stages {
        Some(stages) => unmet_calls(stages, outcome),
        None if case.may_call_no_stage() => None,
        None => unmet_first_call(outcome),
    });
    if let Some(patterns) = &expected.warnings {
        let warnings = &outcome.warnings;
        let are_met = patterns.len() == warnings.len()
            && patterns
                .iter()
                .zip(warnings)
                .all(|(pattern, warning)| pattern.is_in(warning));
        if !are_met {
            let expected_warnings: Vec<_> = patterns.iter().map(ToString::to_string).collect();
            let (expected_json, actual_json) = (Value::from(expected_warnings), Value::from(warnings.clone()));
            failures.push(UnmetExpectation::with_diff(
                "warnings",
                "they differ",
                &expected_json,
                &actual_json,
            ));
        }
    }
    if expected.allowed && outcome.is_allowed() {
        failures.extend(unmet_result(case, expected, outcome));
    }
    failures
}

fn unmet_decision(allowed: bool, outcome: &Outcome) -> Option<UnmetExpectation> {
    match &outcome.decision {
        Decision::Allowed if !allowed => Some(UnmetExpectation::new("allowed", "the request is allowed")),
        Decision::Refused(refusal) if allowed => Some(UnmetExpectation::new(
            "allowed",
            format!("the request is refused: {refusal}"),
        )),
        _ => None,
    }
}

fn failure_kind(row: &TraceRow) -> Option<&'static str> {
    match &row.result {
        StageResult::Failed { failure, .. } => Some(failure.kind.as_str()),
        _ => None,
    }
}

fn called_rows(outcome: &Outcome) -> Vec<&TraceRow> {
    let is_called = |row: &&TraceRow| !matches!(row.result, StageResult::Skipped(_) | StageResult::NotReached);
    outcome.trace.iter().filter(is_called).collect()
}

fn unmet_first_call(outcome: &Outcome) -> Option<UnmetExpectation> {
    if !called_rows(outcome).is_empty() {
        return None;
    }
    let lines = outcome.trace.iter().map(|row| match &row.result {
        StageResult::Skipped(reason) => format!("{}: {reason}", row.stage),
        result => format!("{}: {}", row.stage, result.as_str()),
    });
    let rows: Vec<_> = lines.collect();
    let message = format!(
        "no stage is called ({}); if that is right, expect `stages: []`",
        name_list(&rows)
    );
    Some(UnmetExpectation::new("stages", message))
}

fn unmet_calls(expected: &[String], outcome: &Outcome) -> Option<UnmetExpectation> {
    let called = called_rows(outcome);
    let is_stage = |row: &TraceRow, name: &str| *row.stage == *name || format!("{}/{}", row.chain, row.stage) == name;
    let are_met = called.len() == expected.len() && called.iter().zip(expected).all(|(row, name)| is_stage(row, name));
    (!are_met).then(|| {
        let called: Vec<_> = called.iter().map(|row| &*row.stage).collect();
        let message = format!(
            "expected {}, and {} are called",
            name_list(expected),
            name_list(&called)
        );
        UnmetExpectation::new("stages", message)
    })
}

fn name_list<T: AsRef<str>>(names: &[T]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
    }
}

fn unmet_result(case: &TestCase, expected: &ExpectedOutcome, outcome: &Outcome) -> Vec<UnmetExpectation> {
    let mut failures = Vec::new();
    if let Some(patch) = &expected.patch {
        let expected = Value::from(patch.clone());
        let actual = serde_json::to_value(&outcome.patch).unwrap_or_default();
        if expected != actual {
            failures.push(UnmetExpectation::with_diff("patch", "it differs", &expected, &actual));
        }
    }
    let object_after = outcome.object.as_ref().map(Object::value).cloned().unwrap_or_default();
    let is_kyverno = matches!(case.hooks, CaseHooks::Kyverno { .. });
    let resulting_object = if is_kyverno {
        without_empty(object_after)
    } else {
        object_after
    };
    if expected.unexpected_object.as_ref() == Some(&resulting_object) {
        let message = "the resulting object is the one of `patchedResources`";
        failures.push(UnmetExpectation::new("object", message));
    }
    for (aspect, expected, keep) in [
        ("object", &expected.object, ComparedFields::All),
        ("fields", &expected.fields, ComparedFields::Expected),
    ] {
        let Some(expected) = expected else { continue };
        let compared_object = arrange_like(expected, &resulting_object, keep);
        if *expected != compared_object {
            failures.push(UnmetExpectation::with_diff(
                aspect,
                "the resulting object differs",
                expected,
                &compared_object,
            ));
        }
    }
    failures
}

/// Removes empty objects and lists from a value, because Kyverno's tests ignore them.
pub(super) fn without_empty(value: Value) -> Value {
    let is_left = |value: &Value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null => false,
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| is_left(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).filter(is_left).collect()),
        value => value,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ComparedFields {
    All,
    /// Only the fields that are in the expected value are compared. A missing field counts as `null`.
    Expected,
}

/// Sorts the fields of the actual value as in the expected value, so that fewer lines of their texts differ.
fn arrange_like(expected: &Value, actual: &Value, keep: ComparedFields) -> Value {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual_fields)) => {
            let mut fields = Map::new();
            for (key, expected) in expected {
                match actual_fields.get(key) {
                    Some(actual_field) => drop(fields.insert(key.clone(), arrange_like(expected, actual_field, keep))),
                    None if keep == ComparedFields::Expected && expected.is_null() => {
                        fields.insert(key.clone(), Value::Null);
                    }
                    None => {}
                }
            }
            let extra_fields = actual_fields
                .iter()
                .filter(|(key, _)| keep == ComparedFields::All && !expected.contains_key(*key));
            fields.extend(extra_fields.map(|(key, value)| (key.clone(), value.clone())));
            Value::Object(fields)
        }
        (Value::Array(expected), Value::Array(actual_items)) => {
            let paired = expected
                .iter()
                .zip(actual_items)
                .map(|(expected, actual_item)| arrange_like(expected, actual_item, keep));
            paired
                .chain(actual_items.iter().skip(expected.len()).cloned())
                .collect()
        }
        (_, other) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_without_an_expectation_are_ignored() {
        let actual = json!({"a": 1, "b": {"c": [{"d": 1, "e": 2}, {"d": 3}], "f": null}});
        for (expected, matches) in [
            (json!({}), true),
            (json!({"a": 1}), true),
            (json!({"a": 2}), false),
            (json!({"z": null}), true),
            (json!({"a": null}), false),
            (json!({"b": {"f": null}}), true),
            (json!({"z": 1}), false),
            (json!({"b": {"c": [{"d": 1}, {"d": 3}]}}), true),
            (json!({"b": {"c": [{"d": 1}, {"d": 3, "e": null}]}}), true),
            (json!({"b": {"c": [{"d": 1}]}}), false),
            (json!({"b": {"c": [{"d": 1}, {"d": 3}, {}]}}), false),
            (json!({"b": [1]}), false),
        ] {
            assert_eq!(
                arrange_like(&expected, &actual, ComparedFields::Expected) == expected,
                matches,
                "{expected}"
            );
        }
    }

    #[test]
    fn whole_objects_are_compared_regardless_of_field_order() {
        for (expected, found, matches) in [
            (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": null}), false),
            (json!({"a": null}), json!({}), false),
            (json!([{"a": 1, "b": 2}]), json!([{"b": 2, "a": 1}]), true),
            (json!([1]), json!([1, 2]), false),
        ] {
            let arranged = arrange_like(&expected, &found, ComparedFields::All);
            assert_eq!(arranged == expected, matches, "{expected} {found}");
            if matches {
                assert_eq!(arranged.to_string(), expected.to_string());
            }
        }
    }
}
