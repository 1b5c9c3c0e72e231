//! Reports the differences that a replay has found, for people or scripts.

use admittance_admin::api::Difference;
use serde::Serialize;
use serde_json::Value;

use super::{answer::ReplayAnswer, recorded::RecordedAdmission};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, WARN, diff, sanitize_line},
};

/// The result of a replay. Scripts depend on its JSON form, so fields may only be added.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReplayReport {
    pub(super) requests: u64,
    pub(super) same: u64,
    pub(super) different: u64,
    pub(super) redacted: u64,
    pub(super) differences: Vec<ReplayDifference>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReplayDifference {
    number: u64,
    uid: String,
    operation: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    different: Vec<Difference>,
    before: ReplayAnswer,
    after: ReplayAnswer,
    #[serde(skip)]
    object: Option<Value>,
}

impl ReplayDifference {
    pub(super) fn new(
        recorded_request: &RecordedAdmission,
        different: Vec<Difference>,
        before: ReplayAnswer,
        after: ReplayAnswer,
    ) -> Self {
        let request = &recorded_request.request;
        Self {
            number: recorded_request.number,
            uid: request.uid.as_str().to_owned(),
            operation: request.operation.as_str().to_owned(),
            kind: request.kind.to_string(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            different,
            before,
            after,
            object: request.object.as_ref().map(|object| object.value().clone()),
        }
    }
}

impl ReplayReport {
    pub(super) fn text(&self) -> String {
        let mut text: String = self.differences.iter().map(ReplayDifference::text).collect();
        let requests = |number| human::count(number, "request");
        if self.redacted > 0 {
            text += &format!(
                "{WARN}note:{WARN:#} values were left out of {} when they were recorded; hooks saw `[redacted]` \
                 in their place, and may have answered differently because of it\n",
                requests(self.redacted)
            );
        }
        let style = if self.different == 0 { GOOD } else { BAD };
        let (total, same, different) = (requests(self.requests), self.same, self.different);
        text + &format!("{total}: {same} the same, {style}{different} different{style:#}\n")
    }
}

impl ReplayDifference {
    fn text(&self) -> String {
        let object = human::object_name(self.namespace.as_deref(), &self.name);
        let mut text = format!(
            "{BOLD}request {}{BOLD:#}  {} of {} {}  {DIM}uid {}{DIM:#}\n",
            self.number,
            self.operation,
            sanitize_line(&self.kind),
            sanitize_line(&object),
            sanitize_line(&self.uid)
        );
        let (before, after) = (&self.before, &self.after);
        for part in &self.different {
            let (name, lines) = match part {
                Difference::Verdict => ("verdict", diff_lines(&before.verdict(), &after.verdict())),
                Difference::Message => {
                    let message = |answer: &ReplayAnswer| answer.message.clone().unwrap_or_default();
                    ("message", diff_lines(&message(before), &message(after)))
                }
                Difference::Warnings => {
                    let lines = diff_lines(&before.warnings.join("; "), &after.warnings.join("; "));
                    ("warnings", lines)
                }
                Difference::Patch => {
                    let result = |answer: &ReplayAnswer| answer.object.clone().or_else(|| self.object.clone());
                    let groups = diff(result(before).as_ref(), result(after).as_ref(), 2);
                    ("object", groups.concat())
                }
            };
            for (name, line) in std::iter::once(name).chain(std::iter::repeat("")).zip(lines) {
                text += &format!("  {name:8}  {line}\n");
            }
        }
        text + "\n"
    }
}

fn diff_lines(before: &str, after: &str) -> Vec<String> {
    let or_dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            sanitize_line(text)
        }
    };
    let (before, after) = (or_dash(before), or_dash(after));
    vec![format!("{BAD}- {before}{BAD:#}"), format!("{GOOD}+ {after}{GOOD:#}")]
}
