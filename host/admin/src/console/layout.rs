//! Adds navigation and layout to all pages, and shows errors as pages.

use admittance::Moment;
use admittance_admission::keywords;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::{alerts, assets, session::Session};
use crate::{Overview, error::ApiError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Live,
    Chains,
    History,
    Applies,
    Playground,
    Health,
    Manual,
}

keywords!(Section, "page": Overview = "Overview", Live = "Live", Chains = "Chains", History = "History",
    Applies = "What applies?", Playground = "Playground", Health = "Health", Manual = "Manual");

impl Section {
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Live => "/live",
            Self::Chains => "/chains",
            Self::History => "/history",
            Self::Applies => "/applies",
            Self::Playground => "/playground",
            Self::Health => "/health",
            Self::Manual => "/docs",
        }
    }
}

pub(super) fn page(session: &Session, section: Section, title: &str, content: Markup) -> Response {
    page_with(&(session.sources.overview)(), session, section, title, &content)
}

/// Returns a page. Its alerts are computed from `overview`; the caller makes the content from the same value, so that
/// the alerts and the content do not contradict each other.
pub(super) fn page_with(
    overview: &Overview,
    session: &Session,
    section: Section,
    title: &str,
    content: &Markup,
) -> Response {
    let markup = frame(title, Some((session, section, overview)), content);
    Html(markup.into_string()).into_response()
}

/// Returns a page that shows an error to this user. Its HTTP status is the one that the API sends for the same error.
pub(super) fn refusal_page(session: &Session, section: Section, error: &ApiError) -> Response {
    (
        error.status(),
        page(session, section, title_of(error), explanation(error)),
    )
        .into_response()
}

pub(super) fn plain_refusal(error: &ApiError) -> Response {
    (error.status(), plain_page(title_of(error), &explanation(error))).into_response()
}

pub(super) fn plain_page(title: &str, content: &Markup) -> Html<String> {
    Html(frame(title, None, content).into_string())
}

pub(super) fn form_key(session: &Session) -> Markup {
    html! { input type="hidden" name="form_key" value=(session.form_key); }
}

pub(super) fn forwarding_page(address: &str) -> Html<String> {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0; url=" (address) };
                // If a page names no icon, browsers request /favicon.ico, which does not exist.
                link rel="icon" type="image/svg+xml" href=(assets::address("icon.svg"));
                title { "Admittance" }
            }
            body { p { a href=(address) { "Continue" } } }
        }
    };
    Html(markup.into_string())
}

pub(super) fn not_found() -> Markup {
    html! {
        p { "This page does not exist." }
        p { a href="/" { "Open the overview" } }
    }
}

fn title_of(error: &ApiError) -> &'static str {
    match error {
        ApiError::NotFound(_) => "Not found",
        ApiError::Denied(_) => "Not allowed",
        ApiError::Unavailable(_) => "Not available",
        _ => "This did not work",
    }
}

fn explanation(error: &ApiError) -> Markup {
    html! {
        p.notice.bad role="alert" { (error) }
        @if let ApiError::CannotGoLive(mistakes) = error {
            ul { @for mistake in mistakes { li { (mistake) } } }
        }
    }
}

fn frame(title: &str, user: Option<(&Session, Section, &Overview)>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Admittance" }
                link rel="icon" type="image/svg+xml" href=(assets::address("icon.svg"));
                link rel="stylesheet" href=(assets::address("console.css"));
                script type="module" src=(assets::address("console.js")) {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    a.brand href="/" { "Admittance" }
                    @if let Some((session, section, _)) = user {
                        (navigation(section))
                        a.button.search href="/go" title="/ or Ctrl K" { "Go to…" }
                        (account(session))
                    }
                }
                @if let Some((_, _, overview)) = user { (alerts::alert_bar(overview, Moment::now())) }
                main #content tabindex="-1" {
                    h1 { (title) }
                    (content)
                }
            }
        }
    }
}

fn navigation(section: Section) -> Markup {
    html! {
        nav aria-label="Pages" {
            ul {
                @for entry in Section::ALL {
                    li {
                        a href=(entry.address()) aria-current=[(entry == section).then_some("page")] { (entry.as_str()) }
                    }
                }
            }
        }
    }
}

fn account(session: &Session) -> Markup {
    html! {
        div.account {
            span title="Who you are, and your role" { (session.caller) ", " (session.role) }
            @if session.id.is_some() {
                form method="post" action="/sign-out" {
                    (form_key(session))
                    button type="submit" { "Sign out" }
                }
            }
        }
    }
}
