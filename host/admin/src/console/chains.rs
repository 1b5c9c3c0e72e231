//! Shows the list of live chains, and a page for each chain with its stages, candidates and definition.

use std::{borrow::Cow, collections::HashMap};

use admittance::{
    ChainRates, ChainStatus, HookStatus, Host, StageState, StageStatus, Status,
    admission::{Mode, Phase},
    definitions::{ChainId, StoredDefinition},
};
use admittance_admission::did_you_mean;
use admittance_definitions::without_granted_values;
use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;

use super::{
    candidates,
    components::{
        Column::{Number, Text},
        Tone, badge, count_text, empty_hint, headings, latency, moment, number,
    },
    layout::{Section, page, refusal_page},
    live::{RATE_COLUMNS, latest_rates, rate_cells},
    session::Session,
    switch::stage_switch,
};
use crate::{Api, error::ApiError, v1::views};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/chains", get(list))
        .route("/chains/{phase}/{*name}", get(show_chain))
        .merge(candidates::router())
}

/// The characters that are percent-encoded in the address of a chain's page. BCS definitions have `/` in their names.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_');

pub(super) fn address(phase: Phase, name: &str) -> String {
    format!("/chains/{phase}/{}", utf8_percent_encode(name, PATH))
}

/// Returns the address of a stage: the address of the chain's page, and the anchor of the stage on that page.
pub(super) fn stage_address(phase: Phase, chain: &str, stage: &str) -> String {
    let stage = utf8_percent_encode(stage, PATH);
    format!("{}#stage-{stage}", address(phase, chain))
}

async fn list(session: Session, State(api): State<Api>) -> Response {
    page(&session, Section::Chains, "Chains", overview(&api.sources.host))
}

fn overview(host: &Host) -> Markup {
    let (status, rates) = (host.status(), latest_rates(host));
    html! {
        p {
            "Revision " a href={ "/history/" (status.revision) } { (status.revision) } " is live since "
            (moment(status.live_since)) "."
            @if status.building { " " (badge(Tone::Change, "a new table is being built")) }
        }
        @if status.chains.is_empty() {
            (empty_hint("No chain is live: every request passes unchanged.", "/playground", "Write a chain in the playground"))
        } @else {
            (chain_table(&chains_with_rates(&status, &rates)))
        }
    }
}

/// A live chain and its rates; `None` if no request matched it in the last minute.
type RatedChain<'a> = (&'a ChainStatus, Option<&'a ChainRates>);

pub(super) fn chains_with_rates<'a>(status: &'a Status, rates: &'a [ChainRates]) -> Vec<RatedChain<'a>> {
    let rates: HashMap<_, _> = rates
        .iter()
        .map(|rates| ((rates.phase, rates.chain.as_str()), rates))
        .collect();
    let chains = status.chains.iter();
    chains
        .map(|chain| (chain, rates.get(&(chain.phase, chain.name.as_str())).copied()))
        .collect()
}

pub(super) fn chain_table(chains: &[RatedChain<'_>]) -> Markup {
    html! {
        table.data.chains {
            (headings(&[&[Text("Chain"), Text("State")], RATE_COLUMNS.as_slice()].concat()))
            tbody {
                @for (chain, rates) in chains {
                    tr {
                        th scope="row" {
                            a href=(address(chain.phase, &chain.name)) { (chain.name) }
                            span.detail { (chain.phase) ": " (stage_names(chain)) }
                        }
                        td data-label="State" { (chain_state(chain)) }
                        (rate_cells(*rates))
                    }
                }
            }
        }
        p.hint { "Requests that matched the chain in the last minute." }
    }
}

fn failing_stage_count(chain: &ChainStatus) -> usize {
    let stages = chain.stages.iter();
    stages.filter(|stage| stage.state == StageState::Failing).count()
}

/// Returns a sort key that is larger the more a chain needs attention.
pub(super) fn urgency((chain, rates): &RatedChain<'_>) -> impl Ord + use<> {
    let rate = |number: fn(&ChainRates) -> u64| rates.map(number).unwrap_or_default();
    (
        failing_stage_count(chain),
        rate(|rates| rates.failed),
        chain.stages.iter().any(|stage| stage.disabled.is_some()),
        chain.stages.iter().any(|stage| stage.candidate.is_some()),
        rate(|rates| rates.denied + rates.would_deny),
        rate(|rates| rates.requests),
    )
}

fn chain_state(chain: &ChainStatus) -> Markup {
    let failing = failing_stage_count(chain);
    let is_disabled = chain.stages.iter().any(|stage| stage.disabled.is_some());
    html! {
        @if failing > 0 { (badge(Tone::Bad, &format!("{} failing", count_text(failing as u64, "stage")))) }
        @if is_disabled { " " (badge(Tone::Warn, "disabled")) }
        @if chain.stages.iter().any(|stage| stage.candidate.is_some()) { " " (badge(Tone::Change, "candidate")) }
        @if failing == 0 && !is_disabled {
            @let is_idle = chain.stages.iter().all(|stage| stage.state == StageState::Idle);
            " " (state_badge(if is_idle { StageState::Idle } else { StageState::Healthy }))
        }
    }
}

fn stage_names(chain: &ChainStatus) -> String {
    let names: Vec<_> = chain.stages.iter().map(|stage| stage.name.as_str()).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        names => names.join(", "),
    }
}

async fn show_chain(session: Session, State(api): State<Api>, Path((phase, name)): Path<(String, String)>) -> Response {
    match content(&api, &session, &phase, &name).await {
        Ok(content) => page(&session, Section::Chains, &format!("Chain {name}"), content),
        Err(error) => refusal_page(&session, Section::Chains, &error),
    }
}

async fn content(api: &Api, session: &Session, phase: &str, name: &str) -> Result<Markup, ApiError> {
    let host = &api.sources.host;
    let status = host.status();
    let is_requested = |chain: &&ChainStatus| chain.phase.as_str() == phase && chain.name == name;
    let Some(chain) = status.chains.iter().find(is_requested) else {
        let phase_chains = status.chains.iter().filter(|chain| chain.phase.as_str() == phase);
        let suggestion = did_you_mean(name, phase_chains.map(|chain| &chain.name));
        return Err(ApiError::NotFound(format!(
            "no {phase} chain {name} is live{suggestion}"
        )));
    };
    let id = ChainId {
        phase: chain.phase,
        name: chain.name.clone(),
    };
    let definitions = host.live_definitions(&id).await?;
    let candidates = views::candidates_for(host, session.role);
    Ok(html! {
        p { a href="/chains" { "All chains" } }
        dl.facts {
            dt { "Phase" }
            dd { (chain.phase) (phase_hint(chain.phase)) }
            dt { "Revision" }
            dd { a href={ "/history/" (status.revision) } { (status.revision) } " (" span.mono { (status.hash.to_short_hex()) } ")" ", live since " (moment(status.live_since)) }
        }
        @if session.may_change() && !definitions.is_empty() {
            p.actions { a.button href={ "/playground?chain=" (chain.phase) ":" (utf8_percent_encode(name, NON_ALPHANUMERIC)) } { "Try it in the playground" } }
        }
        h2 { "Stages" }
        @if chain.stages.is_empty() { p.notice { "This chain has no stages." } }
        @for stage in &chain.stages { (stage_section(session, chain, stage, &definitions)) }
        (candidates::section(session, chain, &candidates))
        h2 { "Definition" }
        @if definitions.is_empty() { p.notice { "The program itself made this chain." } }
        @for stored in &definitions { (definition_section(session, stored)) }
    })
}

fn phase_hint(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutating => ": its stages are called one after the other, and may change the object",
        Phase::Validating => ": its stages are called at the same time, with the final object",
    }
}

fn stage_section(
    session: &Session,
    chain: &ChainStatus,
    stage: &StageStatus,
    definitions: &[StoredDefinition],
) -> Markup {
    let calls = &stage.calls;
    let recent = &calls.recent;
    let minutes = recent.seconds.div_ceil(60);
    html! {
        section.stage id={ "stage-" (stage.name) } {
            h3 {
                (stage.name) " "
                @match &stage.disabled {
                    Some(disabled) if disabled.audit => (badge(Tone::Warn, "only audited")),
                    Some(_) => (badge(Tone::Warn, "disabled")),
                    None => (state_badge(stage.state)),
                }
                @if stage.mode == Mode::Audit { " " (badge(Tone::Warn, "Audit")) }
            }
            (stage_switch(session, chain, stage))
            div.panels {
                dl.facts {
                    (hook_facts(&stage.hook))
                    @if let Some((file, line)) = stage_line(definitions, &stage.name) {
                        dt { "Defined in" }
                        dd { a href={ "#line-" (line) } { code { (file) ":" (line) } } }
                    }
                    dt { "Mode" }
                    dd { (stage.mode) }
                    dt { "Failure policy" }
                    dd { (stage.failure_policy) }
                    @if let Some(failure) = &stage.last_failure {
                        dt { "Last failure" }
                        dd { (badge(Tone::Bad, &failure.kind)) " " (moment(failure.at)) div.muted { (failure.message) } }
                    }
                }
                table.data {
                    caption.visually-hidden { "Calls of stage " (stage.name) " of chain " (chain.name) }
                    (headings(&[
                        Text("Calls"), Number("Allowed"), Number("Changed"), Number("Denied"), Number("Failed"),
                        Number("p50"), Number("p99")
                    ]))
                    tbody {
                        tr {
                            th.nowrap scope="row" { "last " (minutes.max(1)) " min" }
                            (number("Allowed", recent.allowed, None)) (number("Changed", recent.changed, None))
                            (number("Denied", recent.denied, None)) (number("Failed", recent.failed, Some(Tone::Bad)))
                            td.number data-label="p50" { (time_text(calls.p50_microseconds)) }
                            td.number data-label="p99" { (time_text(calls.p99_microseconds)) }
                        }
                        tr {
                            th.nowrap scope="row" title={ "since " (calls.since) } { "in total" }
                            (number("Allowed", calls.allowed, None)) (number("Changed", calls.changed, None))
                            (number("Denied", calls.denied, None)) (number("Failed", calls.failed, Some(Tone::Bad)))
                            td {} td {}
                        }
                    }
                }
            }
        }
    }
}

fn time_text(microseconds: Option<u64>) -> String {
    latency(microseconds.unwrap_or_default())
}

fn state_badge(state: StageState) -> Markup {
    match state {
        StageState::Idle => badge(Tone::Plain, "idle"),
        StageState::Healthy => badge(Tone::Good, "healthy"),
        StageState::Failing => badge(Tone::Bad, "failing"),
        _ => html! {},
    }
}

pub(super) fn hook_facts(hook: &HookStatus) -> Markup {
    html! {
        dt { (title(&hook.kind)) }
        dd { (hook.summary) }
        @for (name, fact) in &hook.facts {
            @if let Some(text) = fact_text(fact).filter(|text| *text != hook.summary) {
                dt { (title(name)) }
                dd { (text) }
            }
        }
        @for (name, member) in &hook.plugins {
            dt { "Member " (name) }
            dd { dl.facts { (hook_facts(member)) } }
        }
    }
}

/// Turns a key of the API into a heading: `configuredPerCall` becomes "Configured per call", `url` becomes "URL".
fn title(key: &str) -> String {
    if key.len() <= 3 {
        return key.to_ascii_uppercase();
    }
    let mut title = String::new();
    for letter in key.chars() {
        if title.is_empty() {
            title.extend(letter.to_uppercase());
        } else if letter.is_uppercase() {
            title.push(' ');
            title.extend(letter.to_lowercase());
        } else {
            title.push(letter);
        }
    }
    title
}

/// Returns the value of a hook's property on one line; `None` for null and false, as these are not shown.
fn fact_text(fact: &Json) -> Option<String> {
    match fact {
        Json::Null | Json::Bool(false) => None,
        Json::Bool(true) => Some("yes".to_owned()),
        Json::String(text) => Some(text.clone()),
        Json::Array(list) => Some(list.iter().filter_map(fact_text).collect::<Vec<_>>().join(", ")),
        other => Some(other.to_string()),
    }
}

fn definition_section(session: &Session, stored: &StoredDefinition) -> Markup {
    // Values that are granted to plugins may be secrets, so only users who may change definitions see them.
    let text: Cow<'_, str> = if session.may_change() {
        stored.text.as_str().into()
    } else {
        without_granted_values(&stored.file, &stored.text)
    };
    html! {
        p { code { (stored.file.display()) ":" (stored.line) } ", " (stored.id) }
        (numbered_lines(&text, first_line(stored), true))
    }
}

/// Returns the file and line at which the stage is named. Returns `None` if there is no such line, for instance because
/// the chain was made from a policy of another system.
fn stage_line(definitions: &[StoredDefinition], stage: &str) -> Option<(String, u32)> {
    definitions.iter().find_map(|stored| {
        let mut lines = (first_line(stored)..).zip(stored.text.lines());
        let (line, _) = lines.find(|(_, line)| {
            let field = line.trim().trim_start_matches("- ").strip_prefix("name:");
            field.is_some_and(|name| name.trim().trim_matches(['"', '\'']) == stage)
        })?;
        Some((stored.file.display().to_string(), line))
    })
}

/// Returns the line of the file at which the text of a definition begins. The text includes the comments above the
/// definition, whereas `stored.line` is the line after those comments.
fn first_line(stored: &StoredDefinition) -> u32 {
    let is_before = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let before = u32::try_from(stored.text.lines().take_while(is_before).count()).unwrap_or(u32::MAX);
    stored.line.saturating_sub(before).max(1)
}

/// Shows a text with line numbers. If `has_targets` is true, links can lead to its lines. This must be true for only
/// one text on a page, because the ids of the lines would be the same in both texts.
pub(super) fn numbered_lines(text: &str, first: u32, has_targets: bool) -> Markup {
    html! {
        pre.numbered tabindex="0" {
            @for (number, line) in (first..).zip(text.lines()) {
                span.line id=[has_targets.then(|| format!("line-{number}"))] data-number=(number) { (line) "\n" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chains_are_escaped_in_addresses() {
        for (name, expected) in [
            ("pods", "/chains/Mutating/pods"),
            ("ns/inject.v2", "/chains/Mutating/ns/inject.v2"),
            ("a b?c#d%", "/chains/Mutating/a%20b%3Fc%23d%25"),
        ] {
            assert_eq!(address(Phase::Mutating, name), expected);
        }
    }

    #[test]
    fn line_numbers_count_from_the_start_of_the_file() {
        let markup = numbered_lines("a: <b>\nc: d", 7, true).into_string();
        assert!(
            markup.contains("id=\"line-7\" data-number=\"7\">a: &lt;b&gt;\n"),
            "{markup}"
        );
        assert!(markup.contains("data-number=\"8\">c: d\n"), "{markup}");
    }
}
