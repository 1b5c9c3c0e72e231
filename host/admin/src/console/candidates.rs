//! Shows the candidates of a chain: how often they agree with their plugins, the differences, the promotion, and the
//! roll-out.

use admittance::{
    AnswerSample, Application, Applied, CandidateReport, ChainStatus, DifferenceSample, Moment,
    RolloutAction, RolloutState, RolloutStatus,
};
use admittance_definitions::StageId;
use axum::{
    Router,
    extract::{Query, State},
    response::Response,
    routing::{get, post},
};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{
    chains::hook_facts,
    form::ChangeForm,
    history::comparison,
    layout::{Section, form_key, page, refusal},
    parts::{Column::Number, Tone, badge, count, headings, moment, number, object_name, relative, steps},
    session::Session,
    switch::back,
};
use crate::{Api, error::ApiError, v1::changes, v1::stages};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/promote", get(preview).post(promote))
        .route("/rollout", post(steer))
}

/// Shows the candidates of this chain; nothing without any.
pub(super) fn section(session: &Session, chain: &ChainStatus, candidates: &[CandidateReport]) -> Markup {
    let own = |report: &&CandidateReport| {
        let mut stages = chain.stages.iter();
        stages.any(|stage| report.stage == format!("{}:{}/{}", chain.phase, chain.name, stage.name))
    };
    html! {
        @for report in candidates.iter().filter(own) {
            section.candidate {
                h2 { "Candidate of " (stage_of(&report.stage)) }
                dl.facts {
                    (hook_facts(&(&report.candidate.plugin).into()))
                    dt { "Compared with" }
                    dd { (report.plugin.name) " " (report.plugin.version) ", " code { (report.plugin.digest) } }
                    dt { "Since" }
                    dd { (moment(report.candidate.since)) ", for " (report.candidate.share) " of the calls" }
                }
                @if let Some(status) = &report.candidate.rollout { (rollout(session, &report.stage, status)) }
                (statistics(report))
                @if session.may_change() {
                    p.actions { a.button.primary href={ "/promote?stage=" (utf8_percent_encode(&report.stage, NON_ALPHANUMERIC)) } { "Promote…" } }
                }
                @if !report.samples.is_empty() {
                    h3 { "The last differences" }
                    @for sample in &report.samples { (difference(sample)) }
                }
            }
        }
    }
}

fn stage_of(address: &str) -> &str {
    address.rsplit_once('/').map_or(address, |(_, stage)| stage)
}

/// Shows the share that the candidate decides, and the buttons that change it.
fn rollout(session: &Session, stage: &str, rollout: &RolloutStatus) -> Markup {
    use {RolloutAction::*, RolloutState::*};
    let (tone, actions): (_, &[RolloutAction]) = match rollout.state {
        Progressing => (Tone::Change, &[Next, Pause, Abort]),
        Paused => (Tone::Warn, &[Next, Resume, Abort]),
        Aborted => (Tone::Bad, &[Resume]),
        Completed => (Tone::Good, &[Abort]),
    };
    html! {
        h3 { "Rollout " (badge(tone, rollout.state.as_str())) }
        @if let Some(reason) = &rollout.reason { p.notice.warn { (reason) } }
        p {
            "The candidate decides " strong { (rollout.share) } " of the requests, by " (rollout.by) ", since "
            (moment(rollout.since)) "."
            @if let Some(next) = rollout.next { " This step ends " (relative(next, Moment::now())) "." }
        }
        (steps(&rollout.steps, &rollout.share))
        table.data {
            (headings(&[Number("Decided"), Number("Failed"), Number("Compared"), Number("Refused")]))
            tbody { tr {
                (number("Decided", rollout.decided, None)) (number("Failed", rollout.failed, Some(Tone::Bad)))
                (number("Compared", rollout.compared, None)) (number("Refused", rollout.refused, Some(Tone::Bad)))
            } }
        }
        p.hint { "In this step, at most during the last pause. Refused are requests that the plugin does not deny." }
        @if session.may_change() {
            form method="post" action="/rollout" {
                (form_key(session))
                input type="hidden" name="stage" value=(stage);
                p.actions { @for action in actions { button type="submit" name="action" value=(action) { (label(*action)) } } }
            }
        }
    }
}

fn label(action: RolloutAction) -> &'static str {
    match action {
        RolloutAction::Next => "Begin the next step",
        RolloutAction::Pause => "Pause",
        RolloutAction::Resume => "Resume",
        RolloutAction::Abort => "Abort",
    }
}

fn statistics(report: &CandidateReport) -> Markup {
    let candidate = &report.candidate;
    html! {
        table.data {
            (headings(&[Number("Same answer"), Number("Different"), Number("Failed"), Number("Passed over")]))
            tbody { tr {
                (number("Same answer", candidate.same, None)) (number("Different", candidate.different, Some(Tone::Warn)))
                (number("Failed", candidate.failed, Some(Tone::Bad))) (number("Passed over", candidate.passed_over, None))
            } }
        }
    }
}

fn difference(sample: &DifferenceSample) -> Markup {
    html! {
        details.sample {
            summary {
                (sample.operation) " of " (sample.kind) " " (object_name(sample.namespace.as_deref(), &sample.name))
                ": " (verdict(&sample.plugin.verdict)) " and " (verdict(&sample.candidate.verdict))
                span.muted { " " (moment(sample.at)) }
            }
            p { a href={ "/decisions/" (utf8_percent_encode(&sample.uid, NON_ALPHANUMERIC)) } { "The decision" } }
            div.panels {
                (answer("The plugin", &sample.plugin))
                (answer("The candidate", &sample.candidate))
            }
        }
    }
}

fn verdict(verdict: &str) -> Markup {
    let tone = match verdict {
        "allow" => Tone::Good,
        "patch" => Tone::Change,
        _ => Tone::Bad,
    };
    badge(tone, verdict)
}

fn answer(who: &str, answer: &AnswerSample) -> Markup {
    html! {
        div {
            h4 { (who) " " (verdict(&answer.verdict)) }
            @if let Some(message) = &answer.message { p { (message) } }
            @if let Some(patch) = &answer.patch { pre.wrap { (format!("{:#}", **patch)) } }
            @if answer.operations_left_out > 0 {
                p.hint { "And " (count(answer.operations_left_out as u64, "more operation")) "." }
            }
            @for warning in &answer.warnings { p { "Warning: " (warning) } }
            @for note in &answer.audit_annotations { p { "Audit: " (note) } }
        }
    }
}

/// The stage in the address and in the form.
#[derive(Debug, Deserialize)]
struct Promotion {
    stage: StageId,
}

async fn preview(
    session: Session,
    State(api): State<Api>,
    Query(Promotion { stage }): Query<Promotion>,
) -> Response {
    if !session.may_change() {
        return refusal(&session, Section::Chains, &session.only_reads());
    }
    let mut how = Application::default();
    how.dry_run = true;
    match api.sources.host.promote(&stage, &how).await {
        Ok(applied) => page(
            &session,
            Section::Chains,
            "Promote a candidate",
            confirmation(&session, &stage, &applied),
        ),
        Err(error) => refusal(&session, Section::Chains, &ApiError::from(error)),
    }
}

fn confirmation(session: &Session, stage: &StageId, applied: &Applied) -> Markup {
    html! {
        p {
            "The candidate of " strong { (stage) } " becomes its plugin, in the file too. This would be revision "
            (applied.revision) ", with these differences from what is live:"
        }
        (comparison(&applied.comparison))
        @for warning in &applied.warnings { p.notice.warn { (warning) } }
        form method="post" action="/promote" {
            (form_key(session))
            input type="hidden" name="stage" value=(stage);
            p.actions {
                button.primary type="submit" { "Promote" }
                a.button href="/chains" { "Cancel" }
            }
        }
    }
}

async fn promote(
    State(api): State<Api>,
    ChangeForm {
        session,
        fields: Promotion { stage },
    }: ChangeForm<Promotion>,
) -> Response {
    let subject = stage.to_string();
    match changes::promoted(&api, Some(session.caller.clone()), stage, false).await {
        Ok(_) => back(&subject),
        Err(error) => refusal(&session, Section::Chains, &error),
    }
}

#[derive(Debug, Deserialize)]
struct Steering {
    stage: StageId,
    action: RolloutAction,
}

async fn steer(State(api): State<Api>, ChangeForm { session, fields }: ChangeForm<Steering>) -> Response {
    let by = changes::by(Some(session.caller.clone()));
    match stages::steered(&api, fields.stage, fields.action, by).await {
        Ok(steered) => back(&steered.0.stage),
        Err(error) => refusal(&session, Section::Chains, &error),
    }
}
