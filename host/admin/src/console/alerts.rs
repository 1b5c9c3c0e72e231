//! Shows a bar below the navigation of every page, which lists everything that needs an operator's attention.

use admittance::{ChainStatus, DisabledStage, Moment, Problem, RolloutState, RolloutStatus, admission::Phase};
use maud::{Markup, html};

use super::{
    chains,
    components::{Tone, badge, count_text, lasting_since, relative_moment},
    health::line_state,
};
use crate::Overview;

/// The number of alerts that are visible before the user unfolds the list.
const VISIBLE_ALERTS: usize = 3;

struct Alert {
    tone: Tone,
    word: &'static str,
    text: Markup,
    mistakes: Vec<String>,
    address: String,
}

impl Alert {
    fn new(tone: Tone, word: &'static str, address: impl Into<String>, text: Markup) -> Self {
        Self {
            tone,
            word,
            text,
            mistakes: Vec::new(),
            address: address.into(),
        }
    }
}

pub(super) fn alert_bar(overview: &Overview, now: Moment) -> Markup {
    let mut alerts = collect_alerts(overview, now);
    alerts.sort_by_key(|alert| std::cmp::Reverse(alert.tone));
    let (first, rest) = alerts.split_at(alerts.len().min(VISIBLE_ALERTS));
    html! {
        @if !first.is_empty() {
            aside.alerts aria-label="Needs attention" {
                ul { @for alert in first { (alert_item(alert)) } }
                @if !rest.is_empty() {
                    details {
                        summary { (count_text(rest.len() as u64, "more alert")) }
                        ul { @for alert in rest { (alert_item(alert)) } }
                    }
                }
            }
        }
    }
}

fn alert_item(alert: &Alert) -> Markup {
    html! {
        li.alert.(alert.tone.class()) {
            a href=(alert.address) { (badge(alert.tone, alert.word)) }
            div {
                (alert.text)
                @match alert.mistakes.as_slice() {
                    [] => {}
                    [mistake] => { ": " span.mistake { (mistake) } }
                    mistakes => {
                        details open[mistakes.len() <= VISIBLE_ALERTS] {
                            summary { (count_text(mistakes.len() as u64, "mistake")) }
                            ul { @for mistake in mistakes { li.mistake { (mistake) } } }
                        }
                    }
                }
            }
        }
    }
}

fn collect_alerts(overview: &Overview, now: Moment) -> Vec<Alert> {
    let table = &overview.table;
    let mut alerts = Vec::new();
    if overview.stopping {
        let text = html! { "The driver is stopping: it finishes the requests in flight." };
        alerts.push(Alert::new(Tone::Warn, "stopping", "/health", text));
    }
    alerts.extend(table.problem.as_ref().map(|problem| not_live_alert(problem, now)));
    if let Some(problem) = &table.history.problem {
        let text = html! { "The newest revision could not be written to the history: " (problem) };
        alerts.push(Alert::new(Tone::Bad, "history", "/history", text));
    }
    for sentence in &overview.waiting {
        let text = html! { "A change waits: " (sentence) "." };
        alerts.push(Alert::new(Tone::Warn, "waiting", "/health", text));
    }
    for chain in &table.chains {
        for stage in &chain.stages {
            let address = || chains::stage_address(chain.phase, &chain.name, &stage.name);
            alerts.extend(
                stage
                    .disabled
                    .as_ref()
                    .map(|disabled| self::disabled_alert(disabled, address(), now)),
            );
            let candidate = stage.candidate.as_ref();
            if let Some(status) = candidate.and_then(|candidate| candidate.rollout.as_ref()) {
                alerts.push(rollout_alert(chain, &stage.name, status, address(), now));
            }
        }
    }
    let missing = table.disabled_missing.iter();
    alerts.extend(missing.map(|missing| disabled_alert(missing, "/chains".to_owned(), now)));
    let lines = overview.panels.iter().flat_map(|panel| &panel.lines);
    alerts.extend(lines.filter(|line| line.needs_attention()).map(|line| {
        let text = html! { (line.subject) ": " (line_state(line, now)) };
        Alert::new(line.tone(), "health", "/health", text)
    }));
    alerts
}

fn not_live_alert(problem: &Problem, now: Moment) -> Alert {
    let bad = problem.bad_definitions.len() as u64;
    let text = html! {
        @if bad == 0 { "The newest definitions are not live" }
        @else { (count_text(bad, "definition")) " cannot be used, and all others are live" }
        ", " (lasting_since(problem.since, now)) ", after " (count_text(problem.attempts, "attempt"))
        @match problem.next_attempt {
            Some(next) => { "; the next one is " (relative_moment(next, now)) }
            None => "; correct the definitions or their modules",
        }
    };
    Alert {
        mistakes: problem.mistakes.clone(),
        ..Alert::new(Tone::Bad, "not live", "/chains", text)
    }
}

fn disabled_alert(disabled: &DisabledStage, address: String, now: Moment) -> Alert {
    let text = html! {
        (disabled.stage) " is " @if disabled.audit { "only audited" } @else { "disabled" }
        ", and enabled again " (relative_moment(disabled.until, now))
        @if let Some(by) = &disabled.by { ", by " (by) }
        ": " (disabled.reason)
    };
    Alert::new(Tone::Warn, "disabled", address, text)
}

fn rollout_alert(chain: &ChainStatus, stage: &str, status: &RolloutStatus, address: String, now: Moment) -> Alert {
    let tone = match status.state {
        RolloutState::Progressing => Tone::Change,
        RolloutState::Completed => Tone::Good,
        RolloutState::Paused => Tone::Warn,
        RolloutState::Aborted => Tone::Bad,
    };
    let text = html! {
        (stage_name(chain.phase, &chain.name, stage)) ": the rollout of its candidate is " (status.state.as_str()) " at " (status.share)
        @if let Some(next) = status.next { ", and its next step begins " (relative_moment(next, now)) }
        @if let Some(reason) = &status.reason { ": " (reason) }
    };
    Alert::new(tone, "rollout", address, text)
}

fn stage_name(phase: Phase, chain: &str, stage: &str) -> String {
    format!("{phase}:{chain}/{stage}")
}
