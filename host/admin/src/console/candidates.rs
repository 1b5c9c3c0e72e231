//! Shows how often a chain's candidates agree with the plugins that they may replace; controls promotion and rollout.

use admittance::{
    AnswerSample, Application, Applied, CandidateReport, ChainStatus, DifferenceEffect, DifferenceSample, Moment,
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
    components::{
        Column::{Number, Text},
        Tone, badge, count_text, headings, meter, moment, number, object_name, relative_moment, segment, steps, yaml,
    },
    diff::side_by_side,
    form::ChangeForm,
    history::comparison_section,
    layout::{Section, form_key, page, refusal_page},
    session::Session,
    switch::redirect_to_chain,
};
use crate::{Api, error::ApiError, v1::changes, v1::stages};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/promote", get(preview_promotion).post(promote))
        .route("/rollout", post(steer))
}

pub(super) fn section(session: &Session, chain: &ChainStatus, candidates: &[CandidateReport]) -> Markup {
    let is_of_chain = |report: &&CandidateReport| {
        let mut stages = chain.stages.iter();
        stages.any(|stage| report.stage == format!("{}:{}/{}", chain.phase, chain.name, stage.name))
    };
    html! {
        @for report in candidates.iter().filter(is_of_chain) {
            section.candidate {
                h2 { "Candidate of " (stage_name(&report.stage)) }
                dl.facts {
                    (hook_facts(&(&report.candidate.plugin).into()))
                    dt { "Compared with" }
                    dd { (report.plugin.name) " " (report.plugin.version) ", " code { (report.plugin.digest) } }
                    dt { "Since" }
                    dd { (moment(report.candidate.since)) ", for " (report.candidate.share) " of the calls" }
                }
                @if let Some(status) = &report.candidate.rollout { (rollout(session, &report.stage, status)) }
                h3 { "Compared answers" }
                (comparisons_table(report))
                @if session.may_change() {
                    p.actions { a.button.primary href={ "/promote?stage=" (utf8_percent_encode(&report.stage, NON_ALPHANUMERIC)) } { "Promote…" } }
                }
            }
        }
    }
}

fn stage_name(address: &str) -> &str {
    address.rsplit_once('/').map_or(address, |(_, stage)| stage)
}

fn rollout(session: &Session, stage: &str, rollout: &RolloutStatus) -> Markup {
    use {RolloutAction::*, RolloutState::*};
    let (tone, actions): (_, &[RolloutAction]) = match rollout.state {
        Progressing => (Tone::Change, &[Next, Pause, Abort]),
        Paused => (Tone::Warn, &[Next, Resume, Abort]),
        Aborted => (Tone::Bad, &[Resume]),
        Completed => (Tone::Good, &[Abort]),
    };
    let now = Moment::now();
    html! {
        h3 { "Rollout " (badge(tone, rollout.state.as_str())) }
        @if let Some(reason) = &rollout.reason { p.notice.warn { (reason) } }
        p {
            "The candidate decides " strong { (rollout.share) } " of the requests, by " (rollout.by) ", since "
            (moment(rollout.since)) "."
        }
        (steps(&rollout.steps, &rollout.share, &countdown(rollout, now)))
        table.data {
            (headings(&[Text("Ends the rollout"), Number("Requests"), Number("Out of"), Number("Limit"), Text("How close")]))
            tbody {
                (limit_row("Failures", rollout.failed, ("Decided", rollout.decided), rollout.failure_limit))
                (limit_row("Refusals", rollout.refused, ("Compared", rollout.compared), rollout.refusal_limit))
            }
        }
        p.hint { "In this step, at most during the last pause. Refusals are denials of requests that the plugin does not deny." }
        @if session.may_change() {
            form method="post" action="/rollout" {
                (form_key(session))
                input type="hidden" name="stage" value=(stage);
                p.actions { @for action in actions { button type="submit" name="action" value=(action) { (action_label(*action)) } } }
            }
        }
    }
}

fn action_label(action: RolloutAction) -> &'static str {
    match action {
        RolloutAction::Next => "Begin the next step",
        RolloutAction::Pause => "Pause",
        RolloutAction::Resume => "Resume",
        RolloutAction::Abort => "Abort",
    }
}

fn countdown(rollout: &RolloutStatus, now: Moment) -> Markup {
    let Some(next) = rollout.next else {
        return html! { (rollout.state) };
    };
    let total = next.0.duration_since(rollout.since.0).unwrap_or_default();
    let elapsed = now.0.duration_since(rollout.since.0).unwrap_or_default();
    let part = elapsed.as_millis() * 1000 / total.as_millis().max(1);
    html! { "ends " (relative_moment(next, now)) (segment(Tone::Change, 0, part.min(1000))) }
}

fn limit_row(name: &str, reached: u64, (all, out_of): (&str, u64), limit: u64) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            (number("Requests", reached, Some(Tone::Bad)))
            (number(all, out_of, None))
            (number("Limit", limit, None))
            td.meter data-label="How close" { (meter(reached, limit)) }
        }
    }
}

fn comparisons_table(report: &CandidateReport) -> Markup {
    let columns = DifferenceEffect::ALL.map(|effect| (effect, format!("Would {effect}")));
    let names: Vec<_> = [Text("Resource"), Number("Same")]
        .into_iter()
        .chain(columns.iter().map(|(_, name)| Number(name)))
        .collect();
    html! {
        @if report.kinds.is_empty() { p.notice { "No answer has been compared yet." } } @else {
            table.data.comparisons {
                (headings(&names))
                tbody {
                    @for kind in &report.kinds {
                        tr {
                            th scope="row" { (kind.kind) }
                            (number("Same", kind.same, None))
                            @for (effect, name) in &columns { (number(name, kind.count_with_effect(*effect), Some(effect_tone(*effect)))) }
                        }
                    }
                }
            }
        }
        @if report.candidate.passed_over > 0 {
            p.hint { (count_text(report.candidate.passed_over, "request")) " passed over, because too many comparisons were waiting." }
        }
        @for (effect, name) in &columns {
            @for kind in &report.kinds {
                @let example = report.samples.iter().find(|sample| sample.effect == *effect && sample.kind == kind.kind);
                @if let Some(example) = example { (difference_details(name, example)) }
            }
        }
    }
}

fn effect_tone(effect: DifferenceEffect) -> Tone {
    match effect {
        DifferenceEffect::Deny | DifferenceEffect::Fail => Tone::Bad,
        DifferenceEffect::Allow | DifferenceEffect::Change => Tone::Warn,
    }
}

fn difference_details(effect: &str, sample: &DifferenceSample) -> Markup {
    let titles = ["Answer of the plugin", "Answer of the candidate"];
    html! {
        details.sample {
            summary {
                (badge(effect_tone(sample.effect), effect)) " "
                (sample.operation) " of " (sample.kind) " " (object_name(sample.namespace.as_deref(), &sample.name))
                span.muted { " " (relative_moment(sample.at, Moment::now())) }
            }
            p { a href={ "/decisions/" (utf8_percent_encode(&sample.uid, NON_ALPHANUMERIC)) } { "The decision" } }
            @if let Some(diff) = side_by_side(titles, &answer_yaml(&sample.plugin), &answer_yaml(&sample.candidate)) { (diff) }
        }
    }
}

fn answer_yaml(answer: &AnswerSample) -> String {
    yaml(&serde_json::to_value(answer).unwrap_or_default())
}

#[derive(Debug, Deserialize)]
struct Promotion {
    stage: StageId,
}

async fn preview_promotion(
    session: Session,
    State(api): State<Api>,
    Query(Promotion { stage }): Query<Promotion>,
) -> Response {
    if !session.may_change() {
        return refusal_page(&session, Section::Chains, &session.read_only_error());
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
        Err(error) => refusal_page(&session, Section::Chains, &ApiError::from(error)),
    }
}

fn confirmation(session: &Session, stage: &StageId, applied: &Applied) -> Markup {
    html! {
        p {
            "The candidate of " strong { (stage) } " becomes its plugin, in the file too. This would be revision "
            (applied.revision) ", with these differences from what is live:"
        }
        (comparison_section(&applied.comparison))
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
    match changes::promote_stage(&api, Some(session.caller.clone()), stage, false).await {
        Ok(_) => redirect_to_chain(&subject),
        Err(error) => refusal_page(&session, Section::Chains, &error),
    }
}

#[derive(Debug, Deserialize)]
struct CandidateAction {
    stage: StageId,
    action: RolloutAction,
}

async fn steer(State(api): State<Api>, ChangeForm { session, fields }: ChangeForm<CandidateAction>) -> Response {
    let actor = changes::client_name(Some(session.caller.clone()));
    match stages::steer_stage(&api, fields.stage, fields.action, actor).await {
        Ok(steered) => redirect_to_chain(&steered.0.stage),
        Err(error) => refusal_page(&session, Section::Chains, &error),
    }
}
