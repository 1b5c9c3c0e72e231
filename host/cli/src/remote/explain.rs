//! `admittance explain`: shows a decision with all details.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use admittance::{
    DecisionDetail, DecisionRecord, StageRecord,
    admission::{LogLevel, Mode},
};
use admittance_admin::api::{DecisionDetails, DecisionReplay, DecisionReplays, ReplayRequest};
use clap::Args;
use http::Method;
use serde_json::Value;

use super::{JSON, Query, client::Message, decisions::verdict_style};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, WARN, diff, sanitize_line, sanitize_lines},
};

/// Show the decision on a request: its stages as a timeline, the changes that they made, messages, and the log lines of
/// plugins.
///
/// The option --replay sends the request through the live chains again, and shows their new answer. If it differs, the
/// command exits with 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance explain 0b9bbd0c-5a58-4f10-8a3a-7c3b1b6f8f4e
  admittance explain 0b9bbd0c-5a58-4f10-8a3a-7c3b1b6f8f4e --replay")]
pub(crate) struct ExplainArguments {
    /// The uid of the request, as `decisions` and the log show it.
    #[arg(value_name = "UID")]
    uid: String,
    /// If more decisions have this uid than are shown, show the ones with ids smaller than this id.
    #[arg(long, value_name = "ID", conflicts_with = "replay")]
    before: Option<u64>,
    /// Send the request through the live chains again, and show how the new answer differs.
    #[arg(long)]
    replay: bool,
    /// Call the webhooks of the chains in a replay. Without this option, a request that would reach a webhook is not
    /// replayed.
    #[arg(long, requires = "replay")]
    call_webhooks: bool,
    #[command(flatten)]
    query: Query,
}

impl ExplainArguments {
    pub(crate) fn run(&self) -> crate::Result<ExitCode> {
        if !self.replay {
            let text = |details: &DecisionDetails| {
                let mut texts: Vec<_> = details.decisions.iter().map(detail_text).collect();
                texts.extend(older_note(details));
                texts.join("\n")
            };
            let before = self.before.map(|id| ("before", id.to_string()));
            self.query
                .get_and_print(&["decisions", &self.uid], before.as_slice(), text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = ReplayRequest {
            call_webhooks: self.call_webhooks,
        };
        let message = Message {
            parameters: &[],
            body: Some((JSON, serde_json::to_string(&options)?)),
        };
        let text = |replays: &DecisionReplays| {
            let texts = replays.replays.iter().map(replay_text);
            texts.collect::<Vec<_>>().join("\n")
        };
        let path = ["decisions", &self.uid, "replay"];
        let replays = self.query.send_and_print(Method::POST, &path, message, text)?;
        let is_same = replays.replays.iter().all(|replay| replay.differences.is_empty());
        Ok(crate::exit_code(is_same))
    }
}

fn older_note(details: &DecisionDetails) -> Option<String> {
    let next = details.next?;
    let count = human::count(details.older, "older decision");
    Some(format!(
        "{WARN}note:{WARN:#} {count} of this uid: add `--before {next}`\n"
    ))
}

fn detail_text(detail: &DecisionDetail) -> String {
    let decision = &detail.decision;
    let mut text = heading(decision);
    if let Some(message) = &decision.message {
        let _ = writeln!(text, "{BAD}{}{BAD:#}", sanitize_lines(message));
    }
    for warning in &decision.warnings {
        let _ = writeln!(text, "{WARN}warning:{WARN:#} {}", sanitize_line(warning));
    }
    write_timeline(&mut text, decision);
    text.push_str(&difference_text(detail));
    text
}

fn heading(decision: &DecisionRecord) -> String {
    let object = human::object_name(decision.namespace.as_deref(), &decision.name);
    let style = verdict_style(decision.verdict);
    let code = decision.code.map_or(String::new(), |code| format!(" ({code})"));
    let dry_run = if decision.dry_run { ", a dry run" } else { "" };
    let user = match (decision.user.as_str(), decision.groups.as_slice()) {
        ("", _) => String::new(),
        (user, []) => format!(" by {user}"),
        (user, groups) => format!(" by {user} ({})", groups.join(", ")),
    };
    let request = format!("{} of {} {object}{user}{dry_run}", decision.operation, decision.kind);
    let labels = [
        ("dialect", &decision.dialect),
        ("listener", &decision.listener),
        ("cluster", &decision.cluster),
        ("trace", &decision.trace_id),
    ];
    let label_texts = labels
        .into_iter()
        .filter_map(|(name, value)| Some(format!(", {name} {}", value.as_ref()?)));
    format!(
        "{BOLD}{}{BOLD:#}\n{style}{}{code}{style:#} at {} in {}, revision {}{}  {DIM}uid {}{DIM:#}\n",
        sanitize_line(&request),
        decision.verdict,
        decision.at,
        human::duration(Duration::from_micros(decision.microseconds)),
        decision.revision,
        sanitize_line(&label_texts.collect::<String>()),
        sanitize_line(&decision.uid),
    )
}

const TIMELINE_WIDTH: usize = 24;

fn write_timeline(text: &mut String, decision: &DecisionRecord) {
    let names = decision.stages.iter().map(|row| row_name(row).chars().count());
    let width = names.max().unwrap_or_default();
    for row in &decision.stages {
        let duration = if row.was_called() {
            human::duration(Duration::from_micros(row.microseconds))
        } else {
            "-".to_owned()
        };
        let (style, result) = result_text(row);
        let _ = writeln!(
            text,
            "  {:<width$}  {DIM}|{}|{DIM:#} {duration:>8}  {style}{}{style:#}",
            sanitize_line(&row_name(row)),
            timeline_bar(row, decision.microseconds),
            sanitize_line(&result),
        );
        if let Some(reason) = &row.reason {
            let _ = writeln!(text, "  {:width$}    {}", "", sanitize_line(reason));
        }
        for line in &row.log {
            let style = match line.level {
                LogLevel::Error => BAD,
                LogLevel::Warn => WARN,
                _ => DIM,
            };
            let context = match line.context.as_str() {
                "" => String::new(),
                context => format!("{context}: "),
            };
            let line = format!("{} {context}{}", line.level, line.message);
            let _ = writeln!(text, "  {:width$}    {style}{}{style:#}", "", sanitize_line(&line));
        }
    }
}

fn row_name(row: &StageRecord) -> String {
    let round = if row.round > 1 { ", again" } else { "" };
    format!("{}/{}{round}", row.chain, row.stage)
}

/// Draws the time line of a stage: a bar that shows when its call took place during the request.
fn timeline_bar(row: &StageRecord, total_microseconds: u64) -> String {
    if !row.was_called() {
        return " ".repeat(TIMELINE_WIDTH);
    }
    let column = |microseconds: u64| {
        let position = u128::from(microseconds) * TIMELINE_WIDTH as u128 / u128::from(total_microseconds.max(1));
        usize::try_from(position).unwrap_or(TIMELINE_WIDTH).min(TIMELINE_WIDTH)
    };
    let begin = column(row.start_microseconds).min(TIMELINE_WIDTH - 1);
    let end = column(row.start_microseconds.saturating_add(row.microseconds)).max(begin + 1);
    format!(
        "{}{}{}",
        " ".repeat(begin),
        "=".repeat(end - begin),
        " ".repeat(TIMELINE_WIDTH - end)
    )
}

fn result_text(row: &StageRecord) -> (anstyle::Style, String) {
    let audit = if row.mode == Mode::Audit { " (audit)" } else { "" };
    let exception = row
        .exception
        .as_ref()
        .map_or(String::new(), |name| format!(", let pass by the exception {name}"));
    let (style, text) = match row.result.as_str() {
        "patch" => (GOOD, "patch".to_owned()),
        "deny" => (
            BAD,
            format!("deny{}", row.code.map_or(String::new(), |code| format!(" ({code})"))),
        ),
        "failed" => {
            let kind = row.failure.as_deref().unwrap_or_default();
            let policy = row.policy.map_or(String::new(), |policy| format!(", policy {policy}"));
            (BAD, format!("failed: {kind}{policy}"))
        }
        "allow" => (anstyle::Style::new(), "allow".to_owned()),
        other => (DIM, other.to_owned()),
    };
    let decider = if row.by_candidate { " by the candidate" } else { "" };
    (style, text + decider + audit + &exception)
}

fn difference_text(detail: &DecisionDetail) -> String {
    let Some(patch) = &detail.decision.patch else {
        return String::new();
    };
    let before = detail.review.as_ref().and_then(|review| review.request.get("object"));
    let mut text = String::new();
    match (before, detail.result.as_deref()) {
        (Some(before), Some(after)) => write_diff_groups(&mut text, Some(before), Some(after)),
        _ => {
            for operation in patch.as_array().into_iter().flatten() {
                let _ = writeln!(text, "  {}", sanitize_line(&operation.to_string()));
            }
        }
    }
    text
}

fn write_diff_groups(text: &mut String, before: Option<&Value>, after: Option<&Value>) {
    for (index, group) in diff(before, after, 2).iter().enumerate() {
        if index > 0 {
            let _ = writeln!(text, "  {DIM}...{DIM:#}");
        }
        for line in group {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn replay_text(replay: &DecisionReplay) -> String {
    let DecisionReplay {
        before,
        after,
        differences,
    } = replay;
    let mut text = heading(&before.decision);
    let revision = after.decision.revision;
    if differences.is_empty() {
        let _ = writeln!(text, "{GOOD}the same{GOOD:#} by revision {revision}");
        return text;
    }
    let _ = writeln!(text, "{BAD}different{BAD:#} by revision {revision}");
    for (sign, style, detail) in [('-', BAD, before), ('+', GOOD, after)] {
        let decision = &detail.decision;
        let mut lines = vec![match decision.code {
            Some(code) => format!("{} ({code})", decision.verdict),
            None => decision.verdict.to_string(),
        }];
        lines.extend(decision.message.clone());
        lines.extend(decision.warnings.iter().map(|warning| format!("warning: {warning}")));
        for line in lines {
            let _ = writeln!(text, "{style}{sign} {}{style:#}", sanitize_line(&line));
        }
    }
    let original = before.review.as_ref().and_then(|review| review.request.get("object"));
    let results = [before, after].map(|detail| detail.result.as_deref().or(original));
    if let [Some(old), Some(new)] = results
        && old != new
    {
        write_diff_groups(&mut text, Some(old), Some(new));
    }
    text
}

#[cfg(test)]
mod tests;
