//! Shows the history of the live table: its revisions, their differences, and rollbacks.

use admittance::{Comparison, ModuleChange, Origin, Revision, RevisionModule};
use axum::{
    Router,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    chains::numbered_lines,
    components::{
        Column::{Number, Text},
        Tone, badge, count_text, headings, moment,
    },
    diff::unified_diff,
    form::ChangeForm,
    layout::{Section, form_key, page, refusal_page},
    session::Session,
};
use crate::{
    Api,
    error::ApiError,
    route::Json,
    v1::{changes, views},
};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/history", get(list))
        .route("/history/{revision}", get(show_revision))
        .route("/history/{revision}/rollback", get(preview_rollback).post(rollback))
}

async fn list(session: Session, State(api): State<Api>) -> Response {
    let host = &api.sources.host;
    let (revisions, live) = (host.revision_changes(usize::MAX), host.table().revision());
    let content = html! {
        p {
            "Every table that was live, the newest first. A rollback makes the definitions of an earlier one live again, with \
             exactly its modules; it changes no file."
        }
        table.data {
            (headings(&[
                Number("Revision"), Text("Live since"), Text("Made by"), Text("Changed"), Number("Chains"),
                Number("Plugins"), Text("")
            ]))
            tbody {
                @for (revision, changed) in &revisions {
                    tr {
                        th.number scope="row" data-label="Revision" { a href={ "/history/" (revision.number) } { (revision.number) } }
                        td data-label="Live since" { (moment(revision.at)) }
                        td data-label="Made by" { (made_by(revision)) }
                        td.long data-label="Changed" { (changed_names(changed)) }
                        td.number data-label="Chains" { (revision.chains) }
                        td.number data-label="Plugins" { (revision.modules.len()) }
                        td {
                            @if revision.number == live { (badge(Tone::Good, "live")) }
                            @else if session.may_change() { a href={ "/history/" (revision.number) "/rollback" } { "Roll back…" } }
                        }
                    }
                }
            }
        }
    };
    page(&session, Section::History, "History", content)
}

/// The number of names of changed definitions that a row of the history shows before the user unfolds the list.
const SHOWN_NAMES: usize = 3;

pub(super) fn changed_names(names: &[String]) -> Markup {
    let (first, rest) = names.split_at(names.len().min(SHOWN_NAMES));
    html! {
        (first.join(", "))
        @if !rest.is_empty() { details { summary { "and " (rest.len()) " more" } (rest.join(", ")) } }
    }
}

pub(super) fn made_by(revision: &Revision) -> Markup {
    html! {
        @match &revision.origin {
            Origin::Start => "the start of the program",
            Origin::Files => "a change of definitions or modules",
            Origin::Refreshed => "a new module at its source",
            Origin::Applied => "apply",
            Origin::Deleted => "delete",
            Origin::Promoted { stage } => { "the promotion of " (stage) },
            Origin::RolledBack { to } => { "a rollback to " a href={ "/history/" (to) } { (to) } },
            _ => "another action",
        }
        @if let Some(by) = &revision.by { span.muted { " by " (by) } }
    }
}

/// The revision with which the shown revision is compared; if `None`, the revision before the shown one.
#[derive(Debug, Deserialize)]
struct CompareQuery {
    from: Option<u64>,
}

async fn show_revision(
    session: Session,
    State(api): State<Api>,
    Path(number): Path<u64>,
    Query(against): Query<CompareQuery>,
) -> Response {
    match revision_content(&api, &session, number, against.from) {
        Ok(content) => page(&session, Section::History, &format!("Revision {number}"), content),
        Err(error) => refusal_page(&session, Section::History, &error),
    }
}

fn revision_content(api: &Api, session: &Session, number: u64, from: Option<u64>) -> Result<Markup, ApiError> {
    let host = &api.sources.host;
    let detail = views::revision_detail(host, number, session.role)?;
    let (revision, live) = (&detail.revision, host.table().revision());
    let revisions = host.history();
    let from = from.or_else(|| {
        let earlier = revisions.iter().map(|revision| revision.number);
        earlier.filter(|earlier| *earlier < number).max()
    });
    let differences = match from {
        Some(from) => Some(views::revision_detail(host, from, session.role)?.compare(&detail)),
        None => None,
    };
    Ok(html! {
        p { a href="/history" { "All revisions" } }
        dl.facts {
            dt { "Live since" }
            dd { (moment(revision.at)) @if number == live { " " (badge(Tone::Good, "live")) } }
            dt { "Made by" }
            dd { (made_by(revision)) }
            @if let Some(hash) = revision.hash {
                dt { "Hash" }
                dd.mono { (hash) }
            }
            dt { "It has" }
            dd { (count_text(revision.chains as u64, "chain")) " and " (count_text(revision.modules.len() as u64, "plugin")) }
        }
        @if session.may_change() && number != live {
            p.actions { a.button.danger href={ "/history/" (number) "/rollback" } { "Roll back to it…" } }
        }
        h2 { "Differences" }
        (compare_with(&revisions, number, from))
        @match &differences {
            Some(differences) => { (comparison_section(differences)) }
            None => { p.notice { "No earlier revision is kept." } }
        }
        @if !revision.modules.is_empty() {
            h2 { "Modules" }
            (modules_table(&revision.modules))
        }
        h2 { "Definitions" }
        @if detail.files.is_empty() { p.notice { "There are none." } }
        @for file in &detail.files {
            details.file {
                summary { code { (file.path.display()) } }
                (numbered_lines(&file.text, 1, false))
            }
        }
    })
}

fn compare_with(revisions: &[Revision], number: u64, from: Option<u64>) -> Markup {
    html! {
        @if revisions.len() > 1 {
            form.inline method="get" action={ "/history/" (number) } {
                label for="from" { "Compare with revision" }
                select #from name="from" {
                    @for revision in revisions.iter().filter(|revision| revision.number != number) {
                        option value=(revision.number) selected[Some(revision.number) == from] { (revision.number) }
                    }
                }
                button type="submit" { "Compare" }
            }
        }
    }
}

fn modules_table(modules: &[RevisionModule]) -> Markup {
    html! {
        table.data {
            (headings(&[Text("Stage"), Text("Plugin"), Text("Module"), Text("Digest")]))
            tbody {
                @for module in modules {
                    tr {
                        th scope="row" { (module.stage) @if module.candidate { " " (badge(Tone::Change, "candidate")) } }
                        td data-label="Plugin" { (module.plugin) " " (module.version) }
                        td data-label="Module" { code { (module.source) } }
                        td data-label="Digest" { code { (module.digest) } }
                    }
                }
            }
        }
    }
}

pub(super) fn comparison_section(comparison: &Comparison) -> Markup {
    html! {
        @if comparison.modules.is_empty() && comparison.text.is_empty() {
            p.notice { "There are no differences." }
        }
        @if !comparison.modules.is_empty() {
            ul { @for change in &comparison.modules { li { (module_change(change)) } } }
        }
        @if !comparison.text.is_empty() { (unified_diff(&comparison.text)) }
    }
}

fn module_change(change: &ModuleChange) -> Markup {
    let version = |module: &RevisionModule| {
        let hash = module.digest.strip_prefix("sha256:").unwrap_or(&module.digest);
        let digest = hash.get(..12).unwrap_or(hash).to_owned();
        html! { (module.plugin) " " (module.version) " (" code title=(module.digest) { (digest) } ")" }
    };
    html! {
        strong { (change.stage) } @if change.candidate { ", its candidate" } ": "
        @match (&change.from, &change.to) {
            (Some(from), Some(to)) => { (version(from)) " becomes " (version(to)) }
            (None, Some(to)) => { (version(to)) " is added" }
            (Some(from), None) => { (version(from)) " is removed" }
            (None, None) => {}
        }
    }
}

async fn preview_rollback(session: Session, State(api): State<Api>, Path(number): Path<u64>) -> Response {
    if !session.may_change() {
        return refusal_page(&session, Section::History, &session.read_only_error());
    }
    let host = &api.sources.host;
    let live = host.table().revision();
    match host.compare(live, number) {
        Ok(differences) => {
            let title = format!("Roll back to revision {number}");
            let content = confirmation(&session, number, live, &differences);
            page(&session, Section::History, &title, content)
        }
        Err(error) => refusal_page(&session, Section::History, &ApiError::from(error)),
    }
}

fn confirmation(session: &Session, number: u64, live: u64, differences: &Comparison) -> Markup {
    html! {
        p {
            "The definitions of revision " a href={ "/history/" (number) } { (number) }
            " go live again, with exactly its modules. No file is changed: it stays live until the definitions or their \
             modules change again."
        }
        h2 { "Differences from revision " (live) ", which is live" }
        (comparison_section(differences))
        form method="post" action={ "/history/" (number) "/rollback" } {
            (form_key(session))
            input type="hidden" name="live" value=(live);
            p.actions {
                button.danger type="submit" { "Roll back" }
                a.button href="/history" { "Cancel" }
            }
        }
    }
}

/// The form that confirms a rollback. `live` is the revision that was live when the form was shown.
#[derive(Debug, Deserialize)]
struct Rollback {
    live: u64,
}

async fn rollback(
    State(api): State<Api>,
    Path(number): Path<u64>,
    ChangeForm { session, fields }: ChangeForm<Rollback>,
) -> Response {
    let live = api.sources.host.table().revision();
    if live != fields.live {
        let error = ApiError::Conflict(format!(
            "revision {live} went live in the meantime; look at the differences again before you roll back"
        ));
        return refusal_page(&session, Section::History, &error);
    }
    match changes::roll_back(&api, Some(session.caller.clone()), number).await {
        Ok(Json(revision)) => Redirect::to(&format!("/history/{}", revision.number)).into_response(),
        Err(error) => refusal_page(&session, Section::History, &error),
    }
}
