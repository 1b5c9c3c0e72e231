//! Shows the health of all that the driver depends on: listeners, servers, stores, watches, certificates, disk space.

use admittance::{Moment, Status, StorageStatus};
use axum::{Router, extract::State, response::Response, routing::get};
use bytesize::ByteSize;
use maud::{Markup, html};

use super::{
    components::{Column::Text, badge, count_text, headings, lasting_since, moment},
    layout::{Section, page_with},
    session::Session,
};
use crate::{Api, HealthLine, HealthPanel, StatePart};

pub(super) fn router() -> Router<Api> {
    Router::new().route("/health", get(health))
}

async fn health(session: Session, State(api): State<Api>) -> Response {
    let (overview, now) = ((api.sources.overview)(), Moment::now());
    let disk = HealthPanel {
        title: "On disk",
        lines: api.sources.host.storage().await.iter().map(storage_line).collect(),
    };
    let content = html! {
        (table_facts(&overview.table))
        div.panels { @for panel in overview.panels.iter().chain([&disk]) { (panel_table(panel, now)) } }
    };
    page_with(&overview, &session, Section::Health, "Health", &content)
}

fn table_facts(table: &Status) -> Markup {
    html! {
        dl.facts {
            dt { "Version" }
            dd { (table.version) }
            dt { "Live" }
            dd { "revision " (table.revision) " (" span.mono { (table.hash.to_short_hex()) } ")" " since " (moment(table.live_since)) }
            dt { "In memory" }
            dd { (count_text(table.tables as u64, "table")) ", " (count_text(table.plugins as u64, "plugin")) @if table.building { ", and a table is being built" } }
            dt { "History" }
            dd {
                (count_text(table.history.revisions as u64, "revision"))
                @if table.history.directory.is_none() { ", until the program ends: no directory is configured" }
            }
        }
    }
}

fn panel_table(panel: &HealthPanel, now: Moment) -> Markup {
    html! {
        @if !panel.lines.is_empty() {
            section {
                h2 { (panel.title) }
                table.data {
                    (headings(&[Text("Name"), Text("State")]))
                    tbody {
                        @for line in &panel.lines {
                            tr {
                                th scope="row" { (line.subject) }
                                td { (line_state(line, now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn line_state(line: &HealthLine, now: Moment) -> Markup {
    html! {
        @for part in &line.state {
            @match part {
                StatePart::Text(text) => { (text) }
                StatePart::Badge(tone, word) => { (badge(*tone, word)) }
                StatePart::At(at) => { (moment(*at)) }
                StatePart::Since(since) => { " " (lasting_since(*since, now)) }
                StatePart::Code(text) => { span.mono { (text) } }
            }
        }
        @if let Some(problem) = &line.problem { div.muted { (problem) } }
        @if let Some(advice) = line.advice { div.hint { (advice) } }
    }
}

fn storage_line(storage: &StorageStatus) -> HealthLine {
    let limit = storage
        .limit
        .map(|limit| format!(" of {}", ByteSize(limit).display().iec()));
    let (bytes, files) = (
        ByteSize(storage.bytes).display().iec(),
        count_text(storage.files, "file"),
    );
    HealthLine::new(&storage.name)
        .text(format!("{bytes}{} in {files}, ", limit.unwrap_or_default()))
        .code(storage.directory.display().to_string())
}
