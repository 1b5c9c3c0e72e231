//! Shows links to all pages and chains. The page is opened as a dialog when the user presses `/` or Ctrl K on any page.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::html;

use super::{
    chains,
    layout::{Section, page},
    session::Session,
};
use crate::Api;

pub(super) fn router() -> Router<Api> {
    Router::new().route("/go", get(destinations))
}

async fn destinations(session: Session, State(api): State<Api>) -> Response {
    let table = api.sources.host.table();
    let content = html! {
        ul #destinations {
            @for section in Section::ALL { li { a href=(section.address()) { (section.as_str()) } } }
            @for chain in table.chains() {
                li { a href=(chains::address(chain.phase, &chain.name)) { "Chain " (chain.name) " (" (chain.phase) ")" } }
            }
        }
        p.hint {
            "On every page, " kbd { "/" } " or " kbd { "Ctrl K" } " opens this list, and " kbd { "j" } " and " kbd { "k" }
            " move through the rows of tables."
        }
    };
    page(&session, Section::Overview, "Go to", content)
}
