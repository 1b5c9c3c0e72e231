//! Shows the manual, which is compiled into the program from the pages of `docs`, and searches its sections.

use std::{borrow::Cow, collections::HashMap, sync::LazyLock};

use axum::{
    Router,
    extract::{Path, Query},
    response::{IntoResponse, Response},
    routing::get,
};
use http::StatusCode;
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Alignment, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html::push_html};
use serde::Deserialize;

use super::{
    layout::{Section, not_found, page},
    session::Session,
};
use crate::Api;

/// A page of the manual. Its name is its file name without `.md`.
struct ManualPage {
    name: &'static str,
    text: &'static str,
}

macro_rules! pages {
    ($($name:literal)*) => {
        &[$(ManualPage { name: $name, text: include_str!(concat!("../../../../docs/", $name, ".md")) }),*]
    };
}

const SUMMARY: &str = include_str!("../../../../docs/SUMMARY.md");

/// All pages, in the order of `SUMMARY.md`.
#[rustfmt::skip]
const PAGES: &[ManualPage] = pages! {
    "vocabulary" "install" "operators" "configuration" "dialect-rest" "tls" "limits" "definitions"
    "definitions-requests" "definitions-plugins" "definitions-expressions" "definitions-webhooks"
    "stock-plugins" "changes" "exceptions" "health" "logs" "metrics" "observability" "decisions" "commands"
    "console" "admin-api" "kubernetes" "kubernetes-reviews" "kubernetes-helm" "kubernetes-resources"
    "kubernetes-replicas" "kubernetes-webhooks" "kubernetes-audits" "kubernetes-nodes" "kubernetes-systems"
    "kubernetes-policies" "gatekeeper" "kubewarden" "kyverno" "sidecarset" "authors" "authors-javascript"
    "authors-python" "authors-c" "testing" "embedders" "bcs" "bcs-migration" "bcs-differences" "gateway"
    "clusters" "cluster-access" "cluster-roles" "threat-model" "architecture" "benchmarks"
    "benchmarks-plugins" "benchmarks-history" "long-tests"
};

/// The pages as HTML, rendered when the first page is requested.
static PAGE_TEXTS: LazyLock<Vec<ManualText>> =
    LazyLock::new(|| PAGES.iter().map(|page| ManualText::parse(page.text)).collect());

const MAX_RESULTS: usize = 100;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/docs", get(show_contents))
        .route("/docs/{page}", get(show_page))
}

#[derive(Debug, Default, Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
}

async fn show_contents(session: Session, Query(search): Query<Search>) -> Response {
    let query = search.q.trim();
    let content = html! {
        form.filters method="get" action="/docs" role="search" {
            label { "Words " input type="search" name="q" value=(query); }
            button type="submit" { "Search" }
        }
        @if query.is_empty() {
            article.manual { (PreEscaped(ManualText::parse(SUMMARY).html)) }
        } @else {
            (results_list(&search_manual(query)))
        }
    };
    page(&session, Section::Manual, "Manual", content)
}

async fn show_page(session: Session, Path(name): Path<String>) -> Response {
    let Some((_, text)) = PAGES.iter().zip(&*PAGE_TEXTS).find(|(page, _)| page.name == name) else {
        let reply = page(&session, Section::Manual, "Not found", not_found());
        return (StatusCode::NOT_FOUND, reply).into_response();
    };
    let content = html! {
        p { a href="/docs" { "Manual" } }
        article.manual { (PreEscaped(&text.html)) }
    };
    page(&session, Section::Manual, &text.title, content)
}

fn results_list(sections: &[FoundSection]) -> Markup {
    html! {
        @if sections.is_empty() { p { "No section has all of these words." } }
        ul.manual-results {
            @for section in sections {
                li {
                    a href={ "/docs/" (section.page) "#" (section.anchor) } { (section.title) }
                    span.muted { " in " (section.page_title) }
                }
            }
        }
    }
}

#[derive(Debug, PartialEq)]
struct FoundSection {
    page: &'static str,
    page_title: String,
    anchor: String,
    title: String,
}

/// Returns the sections that contain all words of the query in any case, first those with all words in their titles.
fn search_manual(query: &str) -> Vec<FoundSection> {
    let query = query.to_lowercase();
    let has_all = |text: &str| {
        let text = text.to_lowercase();
        query.split_whitespace().all(|word| text.contains(word))
    };
    let mut sections = Vec::new();
    for (page, text) in PAGES.iter().zip(&*PAGE_TEXTS) {
        let ends = text.sections.iter().skip(1).map(|section| section.start);
        for (section, end) in text.sections.iter().zip(ends.chain([page.text.len()])) {
            if page.text.get(section.start..end).is_some_and(has_all) {
                sections.push(FoundSection {
                    page: page.name,
                    page_title: text.title.clone(),
                    anchor: section.anchor.clone(),
                    title: section.title.clone(),
                });
            }
        }
    }
    sections.sort_by_key(|section| !has_all(&section.title));
    sections.truncate(MAX_RESULTS);
    sections
}

#[derive(Debug, Default)]
struct ManualText {
    title: String,
    html: String,
    sections: Vec<ManualSection>,
}

#[derive(Debug)]
struct ManualSection {
    title: String,
    anchor: String,
    start: usize,
}

impl ManualText {
    /// Renders Markdown. Headings get the same anchors as on GitHub and in mdBook.
    fn parse(markdown: &str) -> Self {
        let mut this = Self::default();
        let mut anchors = HashMap::new();
        let mut events = Vec::new();
        let mut is_title = false;
        let mut drops_link = false;
        let mut parser = Parser::new_ext(markdown, Options::ENABLE_TABLES)
            .into_offset_iter()
            .peekable();
        while let Some((event, range)) = parser.next() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let mut inner = Vec::new();
                    while let Some((event, _)) =
                        parser.next_if(|(event, _)| !matches!(event, Event::End(TagEnd::Heading(_))))
                    {
                        inner.push(event);
                    }
                    let title = plain_text(&inner);
                    let anchor = anchor(&title, &mut anchors);
                    is_title = level == HeadingLevel::H1;
                    if is_title {
                        this.title.clone_from(&title);
                    } else {
                        events.push(Event::Start(Tag::Heading {
                            level,
                            id: Some(anchor.clone().into()),
                            classes: Vec::new(),
                            attrs: Vec::new(),
                        }));
                        events.extend(inner);
                    }
                    this.sections.push(ManualSection {
                        title,
                        anchor,
                        start: range.start,
                    });
                }
                Event::End(TagEnd::Heading(_)) if is_title => {}
                Event::Start(Tag::Link {
                    link_type,
                    dest_url,
                    title,
                    id,
                }) => match link_address(&dest_url) {
                    Some(address) => events.push(Event::Start(Tag::Link {
                        link_type,
                        dest_url: address.into_owned().into(),
                        title,
                        id,
                    })),
                    None => drops_link = true,
                },
                Event::End(TagEnd::Link) if drops_link => drops_link = false,
                Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => {}
                // Alignment is dropped: it would become inline styles, which the content security policy forbids.
                Event::Start(Tag::Table(columns)) => {
                    events.push(Event::Start(Tag::Table(vec![Alignment::None; columns.len()])));
                }
                event => events.push(event),
            }
        }
        push_html(&mut this.html, events.into_iter());
        this
    }
}

fn plain_text(events: &[Event<'_>]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(&**text),
        _ => None,
    });
    texts.collect()
}

/// Returns the anchor of a heading, with a number if an earlier heading has the same text.
fn anchor(title: &str, earlier: &mut HashMap<String, usize>) -> String {
    let characters = title
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let anchor: String = characters
        .map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase();
    let count = earlier.entry(anchor.clone()).or_default();
    *count += 1;
    if *count == 1 {
        anchor
    } else {
        format!("{anchor}-{}", *count - 1)
    }
}

/// Returns the address at which the console serves the target of a link; `None` if the program does not contain it.
fn link_address(target: &str) -> Option<Cow<'_, str>> {
    if target.contains("://") || target.starts_with('#') {
        return Some(target.into());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let name = file.strip_suffix(".md")?;
    let is_page = PAGES.iter().any(|page| page.name == name);
    let hash = if anchor.is_empty() { "" } else { "#" };
    is_page.then(|| format!("/docs/{name}{hash}{anchor}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_contains_all_pages_of_the_manual_in_their_order() {
        let names: Vec<_> = PAGES.iter().map(|page| format!("({}.md)", page.name)).collect();
        let summary_links: Vec<_> = SUMMARY
            .split(']')
            .skip(1)
            .map(|rest| rest.lines().next().unwrap())
            .collect();
        assert_eq!(names, summary_links);
    }

    #[test]
    fn links_between_pages_lead_to_existing_anchors() {
        let pages: HashMap<_, _> = PAGES
            .iter()
            .map(|page| (page.name, ManualText::parse(page.text)))
            .collect();
        for (name, text) in &pages {
            assert!(!text.title.is_empty(), "{name}");
            for link in text.html.split("href=\"").skip(1) {
                let target = link.split('"').next().unwrap();
                let (page, anchor) = match target.strip_prefix("/docs/") {
                    Some(target) => target.split_once('#').unwrap_or((target, "")),
                    None => (*name, target.strip_prefix('#').unwrap_or_default()),
                };
                let is_valid = anchor.is_empty() || pages[page].sections.iter().any(|section| section.anchor == anchor);
                assert!(is_valid, "{name}: {target}");
            }
        }
    }

    #[test]
    fn a_search_finds_the_sections_with_all_words() {
        let sections = search_manual("signed MODULES");
        assert!(
            sections.iter().any(|section| section.page == "configuration"),
            "{sections:?}"
        );
        assert!(search_manual("signed xyzzy").is_empty());
        let titled = &search_manual("vocabulary")[0];
        assert_eq!((titled.page, &*titled.title), ("vocabulary", "Vocabulary"));
    }

    #[test]
    fn links_from_the_manual_to_other_files_and_images_become_text() {
        let text = ManualText::parse("# T\n\n## A `b`\n\n[x](../a.rs) [y](tls.md#a-b) ![z](z.png)\n\n## A b\n");
        assert_eq!(
            text.html,
            "<h2 id=\"a-b\">A <code>b</code></h2>\n<p>x <a href=\"/docs/tls#a-b\">y</a> z</p>\n<h2 id=\"a-b-1\">A b</h2>\n"
        );
        assert_eq!(text.title, "T");
    }
}
