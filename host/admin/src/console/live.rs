//! Shows decisions as they are made, and the rates of requests of each chain.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    time::Duration,
};

use admittance::{
    ChainRates, DecisionRecord, DecisionStream, DecisionVerdict, Host, LoggedDecision, Moment, StreamItem,
    admission::Mode,
};
use admittance_net::limits::Permit;
use axum::{
    Router,
    extract::{RawQuery, State},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing::get,
};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::HeaderMap;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{
    chains,
    components::{
        Column::{self, Number, Text},
        Tone, badge, chip, duration, empty_hint, headings, latency, number, object_name, relative_moment, sparkline,
    },
    layout::{Section, page, refusal_page},
    session::Session,
};
use crate::{
    Api,
    access::Caller,
    decisions::{self, DecisionQuery},
    error::ApiError,
    route,
};

const RATE_PERIOD: Duration = Duration::from_secs(60);
const RATE_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two events with decisions. It leaves browsers time to render the decisions of each event.
const GROUP_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum number of decisions in an event. If there are more, the oldest ones are skipped.
const MAX_GROUP_SIZE: usize = 100;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/live", get(show_decisions))
        .route("/live/events", get(stream_events))
}

/// Browsers also send the form's empty fields, which are ignored.
fn parse_query(text: Option<String>) -> Result<DecisionQuery, ApiError> {
    let mut query: DecisionQuery = route::parse_parameters("filter", &text.unwrap_or_default())?;
    for text in text_filters(&mut query) {
        *text = text.take().filter(|text| !text.trim().is_empty());
    }
    Ok(query)
}

fn text_filters(query: &mut DecisionQuery) -> [&mut Option<String>; 6] {
    let DecisionQuery {
        chain,
        stage,
        namespace,
        user,
        text,
        since,
        ..
    } = query;
    [chain, stage, namespace, user, text, since]
}

/// If `before` is given, the list begins with the newest decision whose id is smaller.
fn address_with(query: &DecisionQuery, page: &str, before: Option<u64>) -> String {
    let query = DecisionQuery {
        before,
        limit: None,
        after: None,
        ..query.clone()
    };
    match serde_html_form::to_string(&query).unwrap_or_default() {
        empty if empty.is_empty() => page.to_owned(),
        parameters => format!("{page}?{parameters}"),
    }
}

async fn show_decisions(session: Session, State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    match content(&session, &api, query).await {
        Ok(content) => page(&session, Section::Live, "Decisions", content),
        Err(error) => refusal_page(&session, Section::Live, &error),
    }
}

async fn content(session: &Session, api: &Api, query: Option<String>) -> Result<Markup, ApiError> {
    let query = parse_query(query)?;
    let list = decisions::list(api, session.role, &query).await?;
    let now = Moment::now();
    let newest = list.decisions.first().map_or(0, |decision| decision.id);
    let table = html! {
        table.data.live {
            (headings(&[
                Text("When"), Text("Verdict"), Text("Request"), Text("Object"), Text("User"),
                Number("Duration"), Text("Why")
            ]))
            tbody data-part="decisions" {
                @for decision in &list.decisions { (decision_row(decision, false, now)) }
            }
        }
        @if list.decisions.is_empty() {
            @if address_with(&query, "/live", None) == "/live" {
                (empty_hint("No request has matched a chain yet. Decisions appear here as they are made.", "/applies", "See which chains match a request"))
            } @else {
                (empty_hint("No decision matches these filters.", "/live", "Clear the filters"))
            }
        }
        nav.actions aria-label="Older and newer decisions" {
            @if query.before.is_some() { a.button href=(address_with(&query, "/live", None)) { "Newest" } }
            @if let Some(next) = list.next { a.button href=(address_with(&query, "/live", Some(next))) { "Older" } }
        }
    };
    Ok(html! {
        (filters(&query, &Suggestions::new(&api.sources.host, &list.decisions)))
        @if query.before.is_some() {
            (table)
        } @else {
            live-decisions src=(address_with(&query, "/live/events", None)) after=(newest) {
                p.actions data-part="controls" { noscript { "Reload the page to see new decisions." } }
                (rates_table(api))
                (table)
            }
        }
    })
}

#[derive(Default)]
struct Suggestions<'a> {
    chains: BTreeSet<String>,
    stages: BTreeSet<String>,
    namespaces: BTreeSet<&'a str>,
    users: BTreeSet<&'a str>,
}

impl<'a> Suggestions<'a> {
    fn new(host: &Host, decisions: &'a [DecisionRecord]) -> Self {
        let mut suggestions = Self::default();
        for chain in host.table().chains() {
            suggestions.chains.insert(chain.name.to_string());
            let stages = chain.stages.iter().map(|stage| stage.spec.name.to_string());
            suggestions.stages.extend(stages);
        }
        for decision in decisions {
            suggestions.namespaces.extend(decision.namespace.as_deref());
            suggestions.users.insert(&decision.user);
        }
        suggestions
    }
}

fn filters(query: &DecisionQuery, suggestions: &Suggestions<'_>) -> Markup {
    let field = |name: &str, label: &str, value: &Option<String>, suggested: Vec<&str>| {
        let list = format!("{name}-suggestions");
        html! {
            label {
                (label)
                input name=(name) value=[value.as_ref()] list=(list) autocomplete="off" spellcheck="false";
                datalist id=(list) { @for suggestion in suggested { option value=(suggestion) {} } }
            }
        }
    };
    let chains = &suggestions.chains;
    let stages = suggestions.stages.iter().map(String::as_str).collect();
    let chain = query.chain.as_deref();
    html! {
        (chips(query))
        details.filtering { summary { "Filter" }
        form.filters method="get" action="/live" role="search" aria-label="Filter decisions" {
            label {
                "Chain"
                select name="chain" {
                    option value="" { "all" }
                    @for name in chains { option selected[chain == Some(name)] { (name) } }
                    // If the filter selects a chain that is no longer live, the form still offers that chain.
                    @if let Some(chain) = chain.filter(|chain| !chains.contains(*chain)) { option selected { (chain) } }
                }
            }
            (field("stage", "Stage", &query.stage, stages))
            (field("namespace", "Namespace", &query.namespace, suggestions.namespaces.iter().copied().collect()))
            (field("user", "User", &query.user, suggestions.users.iter().copied().collect()))
            (field("text", "Text", &query.text, Vec::new()))
            fieldset {
                legend { "Verdict" }
                @for verdict in DecisionVerdict::ALL {
                    label {
                        input type="checkbox" name="verdict" value=(verdict) checked[query.verdict.iter().any(|text| text == verdict.as_str())];
                        (verdict)
                    }
                }
                span.actions {
                    button.primary type="submit" { "Filter" }
                    a.button href="/live" { "Clear" }
                }
            }
        } }
    }
}

fn chips(query: &DecisionQuery) -> Markup {
    let names = ["chain", "stage", "namespace", "user", "text", "since"];
    let mut conditions = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let mut rest = query.clone();
        let removed = text_filters(&mut rest).into_iter().nth(index).and_then(Option::take);
        conditions.extend(removed.map(|text| (format!("{name}: {text}"), rest)));
    }
    for verdict in &query.verdict {
        let mut rest = query.clone();
        rest.verdict.retain(|other| other != verdict);
        conditions.push((format!("verdict: {verdict}"), rest));
    }
    html! {
        @if !conditions.is_empty() {
            div.chips { @for (text, rest) in &conditions { (chip(text, &address_with(rest, "/live", None))) } }
        }
    }
}

pub(super) fn tone(verdict: DecisionVerdict) -> Tone {
    match verdict {
        DecisionVerdict::Allowed => Tone::Good,
        DecisionVerdict::Changed => Tone::Change,
        DecisionVerdict::Denied | DecisionVerdict::Failed => Tone::Bad,
        DecisionVerdict::Deadline | DecisionVerdict::DryRun => Tone::Warn,
    }
}

/// Returns the address of a decision's page. It contains the id, because several decisions may have the same uid.
fn decision_address(decision: &DecisionRecord) -> String {
    let uid = utf8_percent_encode(&decision.uid, NON_ALPHANUMERIC);
    format!("/decisions/{uid}#decision-{}", decision.id)
}

pub(super) fn decision_row(decision: &DecisionRecord, is_new: bool, now: Moment) -> Markup {
    let object = object_name(decision.namespace.as_deref(), &decision.name);
    html! {
        tr.new[is_new] {
            td.head.time { a href=(decision_address(decision)) { (relative_moment(decision.at, now)) } }
            td.head {
                (badge(tone(decision.verdict), decision.verdict.as_str()))
                @if would_be_denied(decision) { " " (badge(Tone::Warn, "denied in audit")) }
            }
            td.short data-label="Request" {
                (decision.operation.as_str()) " " (short_kind(decision)) @if decision.dry_run { " (dry run)" }
            }
            td.short data-label="Object" title=(object) { (object) }
            td.short data-label="User" title=(decision.user) { (decision.user) }
            td.number data-label="Duration" { (duration(decision.microseconds)) }
            td.message.long data-label="Why" { (folded_message(&decision_reason(decision))) }
        }
    }
}

/// Returns the kind of the object with its group and version, such as `apps/v1/Deployment`. If the object has no
/// `apiVersion`, `decision.kind` begins with a `/`, which is removed.
pub(super) fn short_kind(decision: &DecisionRecord) -> &str {
    decision.kind.trim_start_matches('/')
}

fn would_be_denied(decision: &DecisionRecord) -> bool {
    let mut stages = decision.stages.iter();
    stages.any(|stage| stage.mode == Mode::Audit && stage.result == "deny")
}

/// The size in bytes above which a message in the list is shortened. The user can unfold the whole message.
const EXCERPT_LENGTH: usize = 240;

fn folded_message(text: &str) -> Markup {
    let cut = text.get(..text.floor_char_boundary(EXCERPT_LENGTH)).unwrap_or(text);
    let excerpt = cut.rsplit_once(' ').map_or(cut, |(words, _)| words);
    html! {
        @if cut.len() == text.len() { (text) }
        @else { details { summary { (excerpt) " …" } (text) } }
    }
}

/// Returns the message of a decision, or else notes on its stages.
fn decision_reason(decision: &DecisionRecord) -> String {
    if let Some(message) = &decision.message {
        return message.clone();
    }
    let notes = decision.stages.iter().filter_map(|stage| {
        let name = format!("{}/{}", stage.chain, stage.stage);
        let note = match (&stage.exception, &*stage.result, stage.mode.as_str()) {
            (Some(exception), _, _) => format!("{name}: let pass by {exception}"),
            (None, "deny" | "patch" | "failed", "Audit") => format!("{name}: {} in audit", stage.result),
            (None, "patch", _) => format!("{name}: changed"),
            (None, "failed", _) => format!("{name}: failed, ignored"),
            _ => return None,
        };
        Some(note)
    });
    notes.collect::<Vec<_>>().join("; ")
}

fn rates_table(api: &Api) -> Markup {
    html! {
        table.data.chains {
            (headings(&[&[Text("Chain, in the last minute")], RATE_COLUMNS.as_slice()].concat()))
            tbody data-part="chains" { (rate_rows(&latest_rates(&api.sources.host))) }
        }
    }
}

pub(super) fn latest_rates(host: &Host) -> Vec<ChainRates> {
    host.decisions().rates(RATE_PERIOD)
}

pub(super) const RATE_COLUMNS: [Column<'static>; 7] = [
    Number("Requests/s"),
    Number("Changed"),
    Number("Denied"),
    Number("Would deny"),
    Number("Failed"),
    Number("p50"),
    Number("p99"),
];

pub(super) fn rate_cells(rates: Option<&ChainRates>) -> Markup {
    html! {
        @match rates {
            Some(rates) => {
                td.number data-label="Requests/s" {
                    (sparkline(Tone::Plain, "Requests in the last minute", &rates.requests_series)) " " (rate_text(rates))
                }
                (number("Changed", rates.changed, None))
                (number("Denied", rates.denied, None))
                (number("Would deny", rates.would_deny, None))
                (number("Failed", rates.failed, Some(Tone::Bad)))
                td.number data-label="p50" { (latency(rates.p50_microseconds)) }
                td.number data-label="p99" {
                    (sparkline(Tone::Plain, "p99 in the last minute", &rates.p99_series)) " " (latency(rates.p99_microseconds))
                }
            }
            None => { @for _ in RATE_COLUMNS { td {} } }
        }
    }
}

fn rate_rows(rates: &[ChainRates]) -> Markup {
    html! {
        @for chain in rates {
            tr {
                th scope="row" {
                    a href=(chains::address(chain.phase, &chain.chain)) { (chain.chain) }
                    span.detail { (chain.phase) }
                }
                (rate_cells(Some(chain)))
            }
        }
        @if rates.is_empty() { tr { td.muted colspan=(RATE_COLUMNS.len() + 1) { "No request matched a chain in the last minute." } } }
    }
}

fn rate_text(chain: &ChainRates) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let rate = chain.requests as f64 / chain.seconds.max(1.0);
    format!("{rate:.2}")
}

async fn stream_events(
    session: Session,
    State(api): State<Api>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let opened = parse_query(query).and_then(|query| {
        Ok((
            query.filter()?,
            query.after,
            decisions::follower_permit(&api, session.caller.clone())?,
        ))
    });
    let (filter, after, permit) = match opened {
        Ok(opened) => opened,
        Err(error) => return error.into_response(),
    };
    // A browser that reconnects sends the header `Last-Event-ID`.
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let mut ticks = tokio::time::interval(RATE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let following = FollowingPage {
        decisions: api.sources.host.decisions().follow(filter, last.or(after)),
        _permit: permit,
        session,
        api,
        ticks,
        next_group_at: Instant::now(),
    };
    let events = stream::unfold(following, async |mut following| {
        let event = following.next_event().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    Sse::new(events).into_response()
}

struct FollowingPage {
    decisions: DecisionStream,
    _permit: Permit<Caller>,
    session: Session,
    api: Api,
    ticks: Interval,
    next_group_at: Instant,
}

#[derive(Default)]
struct DecisionGroup {
    decisions: VecDeque<LoggedDecision>,
    missed: u64,
}

impl FollowingPage {
    /// Returns `None` when the session has ended or the driver stops.
    async fn next_event(&mut self) -> Option<Event> {
        let next = self.next_group_at;
        let decisions = &mut self.decisions;
        let group = async {
            tokio::time::sleep_until(next).await;
            DecisionGroup::take_available(decisions).await
        };
        tokio::select! {
            group = group => {
                self.next_group_at = Instant::now() + GROUP_INTERVAL;
                Some(group?.into_event())
            }
            _ = self.ticks.tick() => {
                let goes_on = self.session.is_current(&self.api) && !self.api.is_stopping();
                goes_on.then(|| {
                    let rows = rate_rows(&latest_rates(&self.api.sources.host));
                    Event::default().event("chains").data(json!(rows.into_string()).to_string())
                })
            }
        }
    }
}

impl DecisionGroup {
    /// Waits for the next decision, and returns it with all decisions that have arrived by then.
    async fn take_available(decisions: &mut DecisionStream) -> Option<Self> {
        let mut group = Self::default();
        group.add(decisions.next().await?);
        while let Some(Some(followed)) = decisions.next().now_or_never() {
            group.add(followed);
        }
        Some(group)
    }

    fn add(&mut self, followed: StreamItem) {
        match followed {
            StreamItem::Decision(decision) => self.decisions.push_back(decision),
            StreamItem::Missed(missed) => self.missed += missed,
            _ => {}
        }
        if self.decisions.len() > MAX_GROUP_SIZE {
            self.decisions.pop_front();
            self.missed += 1;
        }
    }

    fn into_event(self) -> Event {
        let now = Moment::now();
        let rows =
            html! { @for decision in self.decisions.iter().rev() { (decision_row(&decision.record(), true, now)) } };
        let data = json!({"rows": rows.into_string(), "missed": self.missed});
        let event = Event::default().event("decisions").data(data.to_string());
        match self.decisions.back() {
            Some(last) => event.id(last.id().to_string()),
            None => event,
        }
    }
}
