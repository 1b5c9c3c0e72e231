//! Serves the page `/style` in development builds. It shows every component in every tone.

use std::time::{Duration, SystemTime};

use admittance::Moment;
use axum::{Router, routing::get};
use maud::{Markup, html};

use super::{
    chains::numbered_lines,
    components::{
        Column::{Number, Text},
        Tone, badge, chip, empty_hint, headings, meter, number, relative_moment, sparkline, steps,
    },
    diff::side_by_side,
    layout::{Section, page},
    session::Session,
};
use crate::Api;

const TONES: [(Tone, &str); 5] = [
    (Tone::Plain, "plain"),
    (Tone::Good, "good"),
    (Tone::Change, "change"),
    (Tone::Warn, "warn"),
    (Tone::Bad, "bad"),
];

pub(super) fn router() -> Router<Api> {
    Router::new().route(
        "/style",
        get(async |session: Session| page(&session, Section::Overview, "Components", content())),
    )
}

fn content() -> Markup {
    let now = Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(10_000));
    html! {
        h2 { "Text" }
        h3 { "A heading within a section" }
        p { "A paragraph with a " a href="/style" { "link" } ", " code { "code" } ", " kbd { "Ctrl K" } " and a time: " (relative_moment(Moment(SystemTime::UNIX_EPOCH), now)) "." }
        p.hint { "A hint." }
        h2 { "Badges and chips" }
        p { @for (tone, name) in TONES { (badge(tone, name)) " " } }
        div.chips { (chip("verdict: denied", "/style")) (chip("namespace: shop", "/style")) }
        h2 { "Notices" }
        @for (tone, name) in TONES { p.notice.(tone.class()) { "A notice: " (name) } }
        (empty_hint("There is nothing here.", "/style", "The next step"))
        h2 { "Cards" }
        div.cards {
            @for (tone, name) in TONES {
                div.card {
                    span.name { (name) }
                    span.figure { "1,204" }
                    (sparkline(tone, name, &[1, 4, 2, 8, 5, 7]))
                    span.trend { "12 % more than the hour before" }
                }
            }
        }
        h2 { "Table" }
        table.data {
            (headings(&[Text("Name"), Text("State"), Number("Count")]))
            tbody {
                @for (tone, name) in TONES {
                    tr { th scope="row" { (name) } td data-label="State" { (badge(tone, name)) } (number("Count", 12, Some(tone))) }
                }
            }
        }
        h2 { "Steps" }
        (steps(&["1%".to_owned(), "10%".to_owned(), "50%".to_owned()], "10%", &html! { "until noon" }))
        h2 { "Meters" }
        @for number in [0, 2, 6, 10] { p { (number) " of 10 " (meter(number, 10)) } }
        h2 { "Buttons and fields" }
        p.actions {
            button type="button" { "Button" }
            button.primary type="button" { "Primary" }
            button.danger type="button" { "Danger" }
        }
        form.filters { label { "Field" input value="text"; } label { "Choice" select { option { "one" } } } }
        h2 { "Texts" }
        (numbered_lines("kind: AdmissionChain\nmetadata: { name: pods }", 1, false))
        @if let Some(diff) = side_by_side(["Before", "After"], "a: 1\nb: 2\n", "a: 1\nb: 3\n") { (diff) }
        div.field { label for="editor" { "Editor" } code-editor { textarea #editor rows="3" { "\nkind: Pod" } } }
    }
}
