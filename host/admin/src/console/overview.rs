//! Shows the first page: what the chains did in the last hour, and what needs an operator's attention.

use std::cmp::Reverse;

use admittance::{Host, Moment, TrafficCounts, TrafficHour};
use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};

use super::{
    chains::{chain_table, chains_with_rates, urgency},
    components::{
        Column::{Number, Text},
        NO_NUMBER, Tone, empty_hint, headings, latency, relative_moment, sparkline,
    },
    history::{changed_names, made_by},
    layout::{Section, page, refusal_page},
    live::{decision_row, latest_rates},
    session::Session,
};
use crate::{
    Api,
    decisions::{self, DecisionQuery},
    error::ApiError,
};

const SHOWN_CHAINS: usize = 8;
const SHOWN_REVISIONS: usize = 5;
const SHOWN_DENIALS: usize = 5;

pub(super) fn router() -> Router<Api> {
    Router::new().route("/", get(show_overview))
}

async fn show_overview(session: Session, State(api): State<Api>) -> Response {
    match content(&session, &api).await {
        Ok(content) => page(&session, Section::Overview, "Overview", content),
        Err(error) => refusal_page(&session, Section::Overview, &error),
    }
}

async fn content(session: &Session, api: &Api) -> Result<Markup, ApiError> {
    let (host, now) = (&api.sources.host, Moment::now());
    let refused = DecisionQuery {
        verdict: vec!["refused".to_owned()],
        limit: Some(SHOWN_DENIALS),
        ..DecisionQuery::default()
    };
    let denials = decisions::list(api, session.role, &refused).await?.decisions;
    Ok(html! {
        (cards(&host.traffic()))
        h2 { "Chains" }
        (chains_section(host))
        h2 { "Last refusals" }
        @if denials.is_empty() {
            (empty_hint("No request was refused.", "/live", "Show all decisions"))
        } @else {
            table.data.live { tbody { @for denial in &denials { (decision_row(denial, false, now)) } } }
            p { a href="/live?verdict=denied&verdict=failed&verdict=deadline&verdict=dry-run" { "All refusals" } }
        }
        h2 { "Last changes" }
        (changes_table(host, now))
    })
}

fn cards([last, before]: &[TrafficHour; 2]) -> Markup {
    type Number = fn(&TrafficCounts) -> u64;
    let count: fn(u64) -> String = |count| count.to_string();
    let numbers: [(&str, Tone, Number, fn(u64) -> String); 6] = [
        ("Requests", Tone::Plain, |counts| counts.requests, count),
        ("Changed", Tone::Change, |counts| counts.changed, count),
        ("Denied", Tone::Warn, |counts| counts.denied, count),
        ("Failed", Tone::Bad, |counts| counts.failed, count),
        ("p50", Tone::Plain, |counts| counts.p50_microseconds, latency),
        ("p99", Tone::Plain, |counts| counts.p99_microseconds, latency),
    ];
    let has_before = before.total.requests > 0;
    html! {
        section.cards aria-label="The last hour" {
            @for (name, tone, number, shown) in numbers {
                @let values: Vec<u64> = last.minutes.iter().map(number).collect();
                div.card {
                    span.name { (name) ", last hour" }
                    @let figure = shown(number(&last.total));
                    span.figure { (figure) }
                    (sparkline(tone, &format!("{name} by the minute in the last hour"), &values))
                    @if has_before && figure != NO_NUMBER {
                        span.trend {
                            (change_text(number(&before.total), number(&last.total))) " the hour before (" (shown(number(&before.total))) ")"
                        }
                    }
                }
            }
        }
        @if !has_before { p.hint { "No request came in the hour before, so there is nothing to compare with." } }
    }
}

/// Compares a number with an earlier one, in words such as `12 % more than`.
fn change_text(before: u64, now: u64) -> String {
    let percent = |part: u64| part.saturating_mul(100) / before.max(1);
    match (before, now) {
        (before, now) if before == now => "the same as".to_owned(),
        (0, _) => "more than".to_owned(),
        (before, now) if now >= before.saturating_mul(3) => format!("{} times", now / before),
        (before, now) if now > before => format!("{} % more than", percent(now - before)),
        (before, now) => format!("{} % less than", percent(before - now)),
    }
}

fn chains_section(host: &Host) -> Markup {
    let (status, rates) = (host.status(), latest_rates(host));
    let mut chains = chains_with_rates(&status, &rates);
    chains.sort_by_cached_key(|chain| Reverse(urgency(chain)));
    let left_out = chains.len().saturating_sub(SHOWN_CHAINS);
    html! {
        @if chains.is_empty() {
            (empty_hint(
                "No chain is live: every request passes unchanged. Write a definition and apply it.",
                "/playground", "Write a chain in the playground"
            ))
        } @else {
            (chain_table(chains.get(..SHOWN_CHAINS).unwrap_or(&chains)))
            @if left_out > 0 { p { a href="/chains" { "All chains, " (left_out) " more" } } }
        }
    }
}

fn changes_table(host: &Host, now: Moment) -> Markup {
    html! {
        table.data {
            (headings(&[Number("Revision"), Text("When"), Text("Made by"), Text("Changed")]))
            tbody {
                @for (revision, changed) in host.revision_changes(SHOWN_REVISIONS) {
                    tr {
                        th.number scope="row" data-label="Revision" { a href={ "/history/" (revision.number) } { (revision.number) } }
                        td data-label="When" { (relative_moment(revision.at, now)) }
                        td data-label="Made by" { (made_by(&revision)) }
                        td.long data-label="Changed" { (changed_names(&changed)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_last_hour_are_compared_with_the_hour_before() {
        for (before, now, expected) in [
            (0, 0, "the same as"),
            (0, 3, "more than"),
            (100, 112, "12 % more than"),
            (100, 450, "4 times"),
            (100, 0, "100 % less than"),
            (8, 7, "12 % less than"),
        ] {
            assert_eq!(change_text(before, now), expected, "{before} {now}");
        }
    }
}
