//! Shows one decision: a timeline of its stages, the changes to the object, and commands and test cases to copy.

use std::{collections::BTreeSet, fmt::Write as _};

use admittance::{DecisionDetail, DecisionRecord, Moment, RecordedRequest, StageRecord, admission::Mode};
use axum::{
    Router,
    extract::{Path, RawQuery, State},
    response::Response,
    routing::{get, post},
};
use http::HeaderMap;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    chains,
    components::{
        Column::{Number, Text},
        MAX_SHOWN_TEXT, Tone, badge, count_text, duration, headings, moment, object_name, relative_moment, segment,
        shown_text, yaml,
    },
    diff::side_by_side,
    form::ChangeForm,
    layout::{Section, form_key, page, page_with, refusal_page},
    live::{short_kind, tone},
    session::Session,
};
use crate::{
    Api, Overview,
    api::{DecisionDetails, DecisionReplay, Difference, ReplayRequest},
    config::AdminRole,
    decisions, route,
    v1::decisions::DecisionsByUidQuery,
};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/decisions/{uid}", get(show_decision))
        .route("/decisions/{uid}/replay", post(replay))
}

fn decision_address(uid: &str) -> String {
    format!("/decisions/{}", utf8_percent_encode(uid, NON_ALPHANUMERIC))
}

async fn show_decision(
    session: Session,
    State(api): State<Api>,
    Path(uid): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let lookup = async {
        let DecisionsByUidQuery { before } = route::parse_parameters("query", &query.unwrap_or_default())?;
        let details = decisions::get(&api, session.role, &uid, before).await?;
        Ok((before.is_some(), details))
    };
    match lookup.await {
        Ok((is_older, details)) => {
            let overview = (api.sources.overview)();
            let targets = CommandTargets::new(&session, &overview, &headers);
            let is_one_of_several = is_older || details.older > 0 || details.decisions.len() > 1;
            let content = html! {
                div.actions {
                    code.visually-hidden id="uid" aria-hidden="true" { (uid) }
                    copy-text from="uid" label="Copy the uid" {}
                    @if session.may_change() && details.decisions.iter().any(|detail| detail.review.is_some()) {
                        form method="post" action={ (decision_address(&uid)) "/replay" } {
                            (form_key(&session))
                            button type="submit" { "Replay against what is live" }
                        }
                    }
                }
                (links_to_others(&uid, is_older, &details))
                @for detail in &details.decisions { (decision_article(detail, &session, &targets, is_one_of_several)) }
            };
            let title = format!("Decision {uid}");
            page_with(&overview, &session, Section::Live, &title, &content)
        }
        Err(error) => refusal_page(&session, Section::Live, &error),
    }
}

#[derive(Debug, Deserialize)]
struct ReplayForm {}

async fn replay(
    State(api): State<Api>,
    Path(uid): Path<String>,
    ChangeForm { session, .. }: ChangeForm<ReplayForm>,
) -> Response {
    match decisions::replay(
        &api,
        Some(&session.caller),
        &uid,
        ReplayRequest { call_webhooks: false },
    )
    .await
    {
        Ok(replays) => {
            let content = html! {
                p { a href=(decision_address(&uid)) { "The decision" } }
                @for replay in &replays.replays { (replay_section(replay)) }
            };
            page(&session, Section::Live, &format!("Replay of {uid}"), content)
        }
        Err(error) => refusal_page(&session, Section::Live, &error),
    }
}

fn replay_section(replay: &DecisionReplay) -> Markup {
    let (before, after) = (&replay.before.decision, &replay.after.decision);
    html! {
        section {
            h2 { "At " (moment(before.at)) }
            p {
                (badge(tone(before.verdict), before.verdict.as_str())) " then, "
                (badge(tone(after.verdict), after.verdict.as_str())) " now: "
                @match replay.differences.as_slice() {
                    [] => "the answer is the same.",
                    differences => {
                        @for (number, difference) in differences.iter().enumerate() { @if number > 0 { ", " } (difference_name(*difference)) }
                        " would differ."
                    }
                }
            }
            @if let Some(message) = &after.message { p.notice { (message) } }
            (timeline(after))
        }
    }
}

fn difference_name(difference: Difference) -> &'static str {
    match difference {
        Difference::Verdict => "the verdict",
        Difference::Message => "the message",
        Difference::Patch => "the resulting object",
        Difference::Warnings => "the warnings",
    }
}

fn links_to_others(uid: &str, is_older: bool, details: &DecisionDetails) -> Markup {
    let address = decision_address(uid);
    html! {
        @if details.older > 0 {
            p.notice {
                (count_text(details.older as u64, "older decision")) " of this uid "
                @if details.older == 1 { "is" } @else { "are" } " not on this page."
            }
        }
        nav.actions aria-label="Older and newer decisions of this uid" {
            @if is_older { a.button href=(address) { "Newest" } }
            @if let Some(next) = details.next { a.button href={ (address) "?before=" (next) } { "Older" } }
        }
    }
}

struct CommandTargets {
    admin_url: String,
    needs_token: bool,
    reviews_url: Option<String>,
}

impl CommandTargets {
    fn new(session: &Session, overview: &Overview, headers: &HeaderMap) -> Self {
        let listener_named = |name: &str| overview.listeners.iter().find(|listener| listener.listener == name);
        let scheme = |is_tls| if is_tls { "https" } else { "http" };
        let admin = listener_named("admin");
        let host = headers
            .get(http::header::HOST)
            .and_then(|host| host.to_str().ok())
            .map(str::to_owned)
            .or(admin.map(|admin| admin.address.to_string()));
        Self {
            admin_url: format!(
                "{}://{}",
                scheme(admin.is_some_and(|admin| admin.is_tls)),
                host.unwrap_or_default()
            ),
            needs_token: session.id.is_some(),
            reviews_url: listener_named("listen")
                .map(|port| format!("{}://{}/admit", scheme(port.is_tls), port.address)),
        }
    }
}

fn decision_article(
    detail: &DecisionDetail,
    session: &Session,
    targets: &CommandTargets,
    is_one_of_several: bool,
) -> Markup {
    let decision = &detail.decision;
    html! {
        article id={ "decision-" (decision.id) } {
            @if is_one_of_several { h2 { "At " (moment(decision.at)) } }
            (decision_facts(decision))
            @if let Some(message) = &decision.message {
                p.notice.bad { @if let Some(code) = decision.code { strong { (code) } " " } (message) }
            }
            @for warning in &decision.warnings { p.notice.warn { "Warning: " (warning) } }
            (playground_links(detail))
            h2 { "Stages" }
            (timeline(decision))
            h2 { "Changes" }
            (changes(detail, session))
            h2 { "Copy" }
            (copies(detail, targets))
        }
    }
}

/// Shows links that open the playground with the request. They are shown only to users with the role Admin.
fn playground_links(detail: &DecisionDetail) -> Markup {
    let decision = &detail.decision;
    let chains: BTreeSet<_> = decision
        .stages
        .iter()
        .map(|stage| format!("{}:{}", stage.phase, stage.chain))
        .collect();
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    html! {
        @if detail.review.is_some() {
            div.actions {
                @for chain in &chains {
                    a.button href={ "/playground?chain=" (encode(chain)) "&uid=" (encode(&decision.uid)) } {
                        "Open in the playground with " (chain)
                    }
                }
            }
        }
    }
}

fn decision_facts(decision: &DecisionRecord) -> Markup {
    let object = object_name(decision.namespace.as_deref(), &decision.name);
    let fields = [&decision.dialect, &decision.listener, &decision.cluster];
    let origin: Vec<&str> = fields.into_iter().flatten().map(String::as_str).collect();
    html! {
        dl.facts {
            dt { "Verdict" }
            dd { (badge(tone(decision.verdict), decision.verdict.as_str())) " in " (duration(decision.microseconds)) @if decision.dry_run { ", dry run" } }
            dt { "Request" }
            dd { (decision.operation.as_str()) " " (short_kind(decision)) " " strong { (object) } " " span.muted { (decision.resource.trim_start_matches('/')) } }
            dt { "User" }
            dd {
                @if decision.user.is_empty() { span.muted { "unknown" } } @else { (decision.user) }
                @if !decision.groups.is_empty() { " " span.muted { (decision.groups.join(", ")) } }
            }
            dt { "Time" }
            dd { (relative_moment(decision.at, Moment::now())) ", " (moment(decision.at)) ", revision " a href={ "/history/" (decision.revision) } { (decision.revision) } }
            @if !origin.is_empty() { dt { "From" } dd { (origin.join(", ")) } }
            @if let Some(trace) = &decision.trace_id { dt { "Trace" } dd.mono { (trace) } }
        }
    }
}

pub(super) fn timeline(decision: &DecisionRecord) -> Markup {
    let ends = decision
        .stages
        .iter()
        .map(|stage| stage.start_microseconds + stage.microseconds);
    // The timeline lasts until the last stage has ended. This may be later than the decision, because a stage in mode
    // Audit may still run when the decision is made.
    let total_microseconds = ends.chain([decision.microseconds, 1]).max().unwrap_or(1);
    html! {
        table.data.timeline {
            (headings(&[
                Text("Stage"), Text("Result"), Text(&format!("From 0 to {}", duration(total_microseconds))),
                Number("Duration")
            ]))
            tbody { @for stage in &decision.stages { (stage_row(decision, stage, total_microseconds)) } }
        }
        @if decision.stages.is_empty() { p.muted { "No stage was called." } }
    }
}

fn stage_row(decision: &DecisionRecord, stage: &StageRecord, total_microseconds: u64) -> Markup {
    let tone = match (&*stage.result, stage.exception.is_some()) {
        ("allow", _) => Tone::Good,
        ("patch", _) => Tone::Change,
        ("deny" | "failed", true) => Tone::Warn,
        ("deny" | "failed", false) if stage.mode == Mode::Audit => Tone::Warn,
        ("deny" | "failed", false) => Tone::Bad,
        _ => Tone::Plain,
    };
    html! {
        tr {
            th scope="row" {
                a href=(chains::stage_address(stage.phase, &stage.chain, &stage.stage)) { (stage.chain) "/" (stage.stage) }
                span.detail {
                    (stage.phase)
                    @if stage.round > 1 { ", called again" }
                    @if stage.by_candidate { ", by the candidate" }
                }
            }
            td {
                (badge(tone, &stage.result))
                @if is_discarded(decision, stage) { " " span.muted { "discarded" } }
                @if stage.mode == Mode::Audit { " " (badge(Tone::Warn, "Audit, not enforced")) }
                @if let Some(code) = stage.code { " " (code) }
                @if let Some(failure) = &stage.failure { " " code { (failure) } }
                @if let Some(policy) = stage.policy { " " span.muted { "failure policy " (policy) } }
                @if let Some(exception) = &stage.exception { " " span.muted { "let pass by the exception " (exception) } }
                @if let Some(reason) = &stage.reason { span.detail { (reason) } }
                @if !stage.log.is_empty() { pre.wrap { (log_text(stage)) } }
            }
            td.bar { (stage_bar(stage, total_microseconds, tone)) }
            td.number data-label="Duration" { @if stage.microseconds > 0 { (duration(stage.microseconds)) } }
        }
    }
}

fn log_text(stage: &StageRecord) -> String {
    let mut text = String::new();
    for line in &stage.log {
        let level = line.level;
        let context = match &*line.context {
            "" => String::new(),
            context => format!("{context}: "),
        };
        let _ = writeln!(text, "{level} {context}{}", line.message);
    }
    text
}

fn stage_bar(stage: &StageRecord, total_microseconds: u64, tone: Tone) -> Markup {
    if stage.microseconds == 0 {
        return html! {};
    }
    let parts = |microseconds: u64| u128::from(microseconds) * 1000 / u128::from(total_microseconds);
    let start = parts(stage.start_microseconds);
    segment(tone, start.min(996), parts(stage.microseconds).max(4))
}

fn changes(detail: &DecisionDetail, session: &Session) -> Markup {
    let object = detail.review.as_ref().and_then(|review| review.request.get("object"));
    let objects = object.zip(detail.result.as_deref());
    let compared = objects.and_then(|(before, after)| side_by_side(["Before", "After"], &yaml(before), &yaml(after)));
    let discarded = discarded_stages(&detail.decision);
    html! {
        @if !discarded.is_empty() {
            p.notice.warn { "The request was refused, so the patches of " (discarded.join(", ")) " were discarded." }
        }
        @match (compared, &detail.decision.patch) {
            (Some(compared), _) => (compared),
            (None, Some(patch)) => {
                p.hint {
                    @if session.role < AdminRole::Admin {
                        "Values of objects are shown to the role Admin."
                    } @else if objects.is_some() {
                        "The objects of this request are too long to be compared here."
                    } @else {
                        "The objects of this request are not kept: they are Secrets, or too large."
                    }
                }
                (shown_text(&yaml(patch)))
            }
            (None, None) => p.muted { "Nothing was changed." },
        }
    }
}

/// Returns the stages that patched the object in vain, because the request was refused in the end.
fn discarded_stages(decision: &DecisionRecord) -> Vec<String> {
    decision
        .stages
        .iter()
        .filter(|stage| is_discarded(decision, stage))
        .map(|stage| format!("{}/{}", stage.chain, stage.stage))
        .collect()
}

fn is_discarded(decision: &DecisionRecord, stage: &StageRecord) -> bool {
    decision.verdict.is_refusal() && stage.result == "patch" && stage.mode == Mode::Enforce
}

fn copies(detail: &DecisionDetail, targets: &CommandTargets) -> Markup {
    let id = detail.decision.id;
    let mut texts = vec![(
        "Read this decision with curl",
        "curl",
        curl_command(&detail.decision, targets),
    )];
    if let Some(review) = &detail.review {
        if detail.decision.dialect.as_deref() == Some("kubernetes")
            && let Some(url) = &targets.reviews_url
        {
            texts.push(("Send the request again with curl", "again", resend_command(review, url)));
        }
        texts.push((
            "Test case for admittance test",
            "case",
            test_case(&detail.decision, review),
        ));
    }
    html! {
        @for (title, name, text) in texts {
            @let text_id = format!("{name}-{id}");
            details {
                summary { (title) }
                @if text.len() <= MAX_SHOWN_TEXT {
                    p.actions { copy-text from=(text_id) label="Copy" {} }
                    pre.wrap id=(text_id) { (text) }
                } @else {
                    p.hint { "This is too long for a page. The reply to the command above has the request." }
                }
            }
        }
    }
}

fn curl_command(decision: &DecisionRecord, targets: &CommandTargets) -> String {
    let token = if targets.needs_token {
        "--header \"Authorization: Bearer $ADMITTANCE_TOKEN\" "
    } else {
        ""
    };
    let uid = utf8_percent_encode(&decision.uid, NON_ALPHANUMERIC);
    format!(
        "curl --silent {token}{}",
        shell_quote(&format!("{}/v1/decisions/{uid}", targets.admin_url))
    )
}

/// Returns a curl command that sends the recorded AdmissionReview to this program again. The program only answers it,
/// so nothing changes in the cluster.
fn resend_command(review: &RecordedRequest, url: &str) -> String {
    format!(
        "curl --silent --insecure --header 'Content-Type: application/json' --data-binary @- {} <<'REVIEW'\n{}\nREVIEW",
        shell_quote(url),
        json!({"apiVersion": review.api_version, "kind": review.kind, "request": review.request})
    )
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

pub(super) fn expectation(decision: &DecisionRecord) -> Map<String, Value> {
    let mut expect = Map::new();
    let is_allowed = !decision.verdict.is_refusal();
    expect.insert("allowed".to_owned(), is_allowed.into());
    expect.insert("warnings".to_owned(), json!(decision.warnings));
    if is_allowed {
        let patch = decision.patch.as_deref().cloned().unwrap_or_else(|| json!([]));
        expect.insert("patch".to_owned(), patch);
    }
    if let Some(message) = &decision.message {
        expect.insert("message".to_owned(), Value::from(message.as_str()));
    }
    if let Some(code) = decision.code {
        expect.insert("code".to_owned(), code.into());
    }
    expect
}

/// Returns the decision as a test case. If values of the request were redacted, the chains may answer the test
/// differently, so the test case expects only the verdict and the warnings.
fn test_case(decision: &DecisionRecord, review: &RecordedRequest) -> String {
    let mut expect = expectation(decision);
    if review.recording.redacted > 0 {
        expect.retain(|name, _| matches!(&**name, "allowed" | "warnings"));
    }
    let object = object_name(decision.namespace.as_deref(), &decision.name);
    let name = format!("{} of {} {object}", decision.operation.as_str(), decision.kind);
    let review = json!({"apiVersion": review.api_version, "kind": review.kind, "request": review.request});
    yaml(&json!({"cases": [{"name": name, "request": {"review": review}, "expect": expect}]}))
}
