//! The page of everything that the driver depends on: listeners, servers, stores, watches, certificates, and disk
//! space.

use admittance::{Moment, Status, StorageStatus, StoreStatus};
use admittance_definitions::StoreKind;
use axum::{Router, extract::State, response::Response, routing::get};
use bytesize::ByteSize;
use maud::{Markup, html};

use super::{
    layout::{Section, page},
    parts::{Tone, badge, count, moment},
    session::Session,
};
use crate::{
    Api, Overview,
    api::{CertificateStatus, ListenerStatus},
};

/// Certificates that expire within this time are marked.
const SOON: std::time::Duration = std::time::Duration::from_secs(14 * 24 * 3600);

pub(super) fn router() -> Router<Api> {
    Router::new().route("/health", get(health))
}

async fn health(session: Session, State(api): State<Api>) -> Response {
    let (table, driver) = (api.sources.host.status(), (api.sources.overview)());
    let storage = api.sources.host.storage().await;
    let content = content(&table, driver, &storage, Moment::now());
    page(&session, Section::Health, "Health", content)
}

/// A table of the health page; it is left out without lines.
#[derive(Clone, Debug)]
pub struct HealthPanel {
    pub title: &'static str,
    pub lines: Vec<HealthLine>,
}

/// A line of a table: its subject, its state, and the problem with it.
#[derive(Clone, Debug)]
pub struct HealthLine {
    subject: String,
    state: Markup,
    problem: Option<String>,
}

impl HealthLine {
    /// A line without a state. Its state is what the other functions add, one after another.
    pub fn new(subject: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            state: html! {},
            problem: None,
        }
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.with(html! { (text) })
    }

    /// Adds a word in a coloured field.
    #[must_use]
    pub fn badge(self, tone: Tone, word: &str) -> Self {
        self.with(badge(tone, word))
    }

    /// Adds a point in time.
    #[must_use]
    pub fn moment(self, at: Moment) -> Self {
        self.with(moment(at))
    }

    /// Adds a code, such as a hash or an address.
    #[must_use]
    pub fn code(self, text: &str) -> Self {
        self.with(html! { span.mono { (text) } })
    }

    /// Adds a number of things: `1 server`, `2 servers`.
    #[must_use]
    pub fn count(self, number: usize, one: &str) -> Self {
        self.text(&count(number as u64, one))
    }

    /// Adds whether a server is in use.
    #[must_use]
    pub fn up(self, is_up: bool) -> Self {
        if is_up {
            self.badge(Tone::Good, "up")
        } else {
            self.badge(Tone::Bad, "down")
        }
    }

    /// Sets the problem.
    #[must_use]
    pub fn problem(self, problem: Option<String>) -> Self {
        Self { problem, ..self }
    }

    fn with(mut self, part: Markup) -> Self {
        self.state.0.push_str(&part.0);
        self
    }
}

fn content(table: &Status, driver: Overview, storage: &[StorageStatus], now: Moment) -> Markup {
    html! {
        (overview(table, &driver))
        div.panels {
            (panel("Listeners", driver.listeners.iter().map(listener).collect()))
            (panel("Certificates", driver.certificates.iter().map(|entry| certificate(entry, now)).collect()))
            (panel("Definitions", table.stores.iter().map(store).collect()))
            @for given in driver.panels { (panel(given.title, given.lines)) }
            (panel("On disk", storage.iter().map(space).collect()))
        }
    }
}

fn overview(table: &Status, driver: &Overview) -> Markup {
    html! {
        @if driver.stopping {
            p.notice.warn { "The driver is stopping: it finishes the requests in flight." }
        }
        @for sentence in &driver.waiting { p.notice.warn { "A change waits: " (sentence) "." } }
        @if let Some(problem) = &table.problem {
            div.notice.bad {
                p { "The newest definitions are not live since " (moment(problem.since)) ", after " (count(problem.attempts, "attempt")) "." }
                ul { @for mistake in &problem.mistakes { li { (mistake) } } }
            }
        }
        dl.facts {
            dt { "Version" }
            dd { (table.version) }
            dt { "Live" }
            dd { "revision " (table.revision) " (" span.mono { (table.hash.short()) } ")" " since " (moment(table.live_since)) }
            dt { "In memory" }
            dd { (count(table.tables as u64, "table")) ", " (count(table.plugins as u64, "plugin")) @if table.building { ", and a table is being built" } }
            dt { "History" }
            dd {
                (count(table.history.revisions as u64, "revision"))
                @if table.history.directory.is_none() { ", until the program ends: no directory is configured" }
                @if let Some(problem) = &table.history.problem { " " (badge(Tone::Bad, "not written")) " " (problem) }
            }
        }
    }
}

/// Nothing without lines.
fn panel(title: &str, lines: Vec<HealthLine>) -> Markup {
    html! {
        @if !lines.is_empty() {
            section {
                h2 { (title) }
                table.data {
                    thead.visually-hidden { tr { th scope="col" { "What" } th scope="col" { "State" } } }
                    tbody {
                        @for HealthLine { subject, state, problem } in lines {
                            tr {
                                th scope="row" { (subject) }
                                td { (state) @if let Some(problem) = problem { div.muted { (problem) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn listener(listener: &ListenerStatus) -> HealthLine {
    let encryption = if listener.is_tls { "TLS" } else { "no TLS" };
    HealthLine::new(&listener.listener)
        .code(&listener.address.to_string())
        .text(" ")
        .badge(Tone::Plain, encryption)
}

fn certificate(certificate: &CertificateStatus, now: Moment) -> HealthLine {
    let line = HealthLine::new(&certificate.certificate).problem(certificate.problem.clone());
    let Some(end) = certificate.not_after else {
        return line.badge(Tone::Plain, "none presented");
    };
    let line = match end {
        end if end <= now => line.badge(Tone::Bad, "expired").text(" at "),
        end if end.0 <= now.0 + SOON => line.badge(Tone::Warn, "expires soon").text(" at "),
        _ => line.badge(Tone::Good, "valid").text(" until "),
    };
    line.moment(end)
}

fn store(store: &StoreStatus) -> HealthLine {
    let line = HealthLine::new(&store.location);
    match (store.lost, store.count) {
        (true, _) => line.badge(Tone::Bad, "cannot be read"),
        (false, None) => line.badge(Tone::Warn, "not read yet"),
        (false, Some(number)) => {
            let unit = match (store.kind, number) {
                (StoreKind::Files, _) => count(number as u64, "file"),
                (StoreKind::Entries, 1) => "1 entry".to_owned(),
                (StoreKind::Entries, _) => format!("{number} entries"),
            };
            line.badge(Tone::Good, "read").text(" ").text(&unit)
        }
    }
}

fn space(storage: &StorageStatus) -> HealthLine {
    let limit = storage
        .limit
        .map(|limit| format!(" of {}", ByteSize(limit).display().iec()));
    let (bytes, files) = (
        ByteSize(storage.bytes).display().iec(),
        count(storage.files, "file"),
    );
    HealthLine::new(&storage.name)
        .text(&format!("{bytes}{} in {files}, ", limit.unwrap_or_default()))
        .code(&storage.directory.display().to_string())
}
