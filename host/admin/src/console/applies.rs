//! Shows which live chains and stages would be called for a request, and why the other chains and stages would not.

use admittance::{Applies, ChainApplies, StageApplies, admission::Mode};
use axum::{
    Router,
    extract::{Query, State},
    response::{IntoResponse as _, Response},
    routing::get,
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    chains,
    components::{Column::Text, Tone, badge, count_text, headings},
    form::split_names,
    layout::{Section, page},
    mistakes::problems_notice,
    session::Session,
};
use crate::{
    Api,
    api::evaluation::{AppliesReply, DescribedRequest},
    v1::evaluate::find_applying_chains,
};

pub(super) fn router() -> Router<Api> {
    Router::new().route("/applies", get(show_applies))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AppliesQuery {
    kind: String,
    namespace: String,
    name: String,
    operation: String,
    resource: String,
    user: String,
    groups: String,
    object: String,
}

impl AppliesQuery {
    fn is_empty(&self) -> bool {
        self.kind.is_empty() && self.object.trim().is_empty()
    }

    fn described_request(&self) -> DescribedRequest {
        let non_empty = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let object = non_empty(&self.object);
        // The kind and name in the form are used only if the form has no object, because an object contains both.
        let without_object = |text: &str| non_empty(text).filter(|_| object.is_none());
        DescribedRequest {
            kind: without_object(&self.kind),
            name: without_object(&self.name),
            namespace: non_empty(&self.namespace),
            operation: non_empty(&self.operation),
            resource: non_empty(&self.resource),
            user: non_empty(&self.user),
            groups: split_names(&self.groups),
            object: object.map(Into::into),
            old_object: None,
        }
    }
}

async fn show_applies(session: Session, State(api): State<Api>, Query(question): Query<AppliesQuery>) -> Response {
    let mut status = http::StatusCode::OK;
    let answer = if question.is_empty() {
        html! {}
    } else {
        match find_applying_chains(&api, &question.described_request()).await {
            Ok(reply) => answer_section(&reply),
            Err(error) => {
                status = error.status();
                problems_notice(&error)
            }
        }
    };
    let content = html! {
        p {
            "Describe a request: by an object, or by a kind and a namespace. The answer says which chains and stages would see \
             it, and why the others would not. Nothing is called."
        }
        (form(&question))
        div #answer { (answer) }
    };
    (status, page(&session, Section::Applies, "What applies?", content)).into_response()
}

fn form(question: &AppliesQuery) -> Markup {
    html! {
        form.filters.question method="get" action="/applies" {
            label { "Kind" input name="kind" value=(question.kind) placeholder="apps/v1/Deployment" spellcheck="false"; }
            label { "Namespace" input name="namespace" value=(question.namespace) spellcheck="false"; }
            label { "Name" input name="name" value=(question.name) spellcheck="false"; }
            (operation_select(&question.operation))
            label { "Resource" input name="resource" value=(question.resource) placeholder="guessed from the kind" spellcheck="false"; }
            label { "User" input name="user" value=(question.user) spellcheck="false"; }
            label { "Groups" input name="groups" value=(question.groups) placeholder="dev, ops" spellcheck="false"; }
            label.wide {
                "Object, in place of kind and name"
                code-editor { textarea #object name="object" rows="8" spellcheck="false" autocapitalize="off" { "\n" (question.object) } }
            }
            p.actions.wide { button.primary type="submit" { "What applies?" } }
        }
    }
}

pub(super) fn operation_select(selected_operation: &str) -> Markup {
    html! {
        label {
            "Operation"
            select name="operation" {
                @for operation in ["", "CREATE", "UPDATE", "DELETE", "CONNECT"] {
                    option value=(operation) selected[operation == selected_operation] {
                        @if operation.is_empty() { "by the objects" } @else { (operation) }
                    }
                }
            }
        }
    }
}

fn answer_section(reply: &AppliesReply) -> Markup {
    let (excluded_chains, matching_chains): (Vec<_>, Vec<_>) =
        reply.chains.iter().partition(|chain| chain.applies == Applies::No);
    html! {
        h2 { "Chains that would see it" }
        @if matching_chains.is_empty() { p.notice { "None: the request passes unchanged." } }
        @for chain in &matching_chains { (seen_chain(chain)) }
        @if !excluded_chains.is_empty() {
            h2 { "Others" }
            table.data {
                (headings(&[Text("Chain"), Text("Phase"), Text("Why not")]))
                tbody {
                    @for chain in &excluded_chains {
                        tr {
                            th scope="row" { a href=(chains::address(chain.phase, &chain.chain)) { (chain.chain) } }
                            td data-label="Phase" { (chain.phase) }
                            td data-label="Why not" { (chain.reason.as_deref().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
        p.hint { (count_text(reply.chains.len() as u64, "chain")) " of revision " a href={ "/history/" (reply.revision) } { (reply.revision) } ". Earlier stages may change the object, and with it what later ones see." }
    }
}

fn seen_chain(chain: &ChainApplies) -> Markup {
    html! {
        section {
            h3 {
                a href=(chains::address(chain.phase, &chain.chain)) { (chain.chain) }
                " " (badge(Tone::Plain, chain.phase.as_str()))
                @if chain.applies == Applies::Depends { " " (applies_badge(chain.applies)) }
            }
            @if let Some(reason) = &chain.reason { p { (reason) } }
            table.data {
                (headings(&[Text("Stage"), Text("Called"), Text("Why")]))
                tbody { @for stage in &chain.stages { (stage_row(stage)) } }
            }
        }
    }
}

fn stage_row(stage: &StageApplies) -> Markup {
    html! {
        tr {
            th scope="row" { (stage.stage) @if stage.mode == Mode::Audit { " " (badge(Tone::Warn, "Audit")) } }
            td data-label="Called" { (applies_badge(stage.applies)) }
            td data-label="Why" { @if let Some(reason) = &stage.reason { (reason) } }
        }
    }
}

fn applies_badge(applies: Applies) -> Markup {
    match applies {
        Applies::Yes => badge(Tone::Good, "yes"),
        Applies::No => badge(Tone::Plain, "no"),
        Applies::Depends => badge(Tone::Change, "depends"),
        Applies::Unknown => badge(Tone::Bad, "fails"),
    }
}
