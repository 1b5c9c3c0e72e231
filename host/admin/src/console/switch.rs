//! Shows the controls that disable a stage for some time, or put it into mode Audit for that time.

use std::time::Duration;

use admittance::{ChainStatus, DisableOptions, DisabledStage, StageStatus};
use admittance_definitions::StageId;
use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Redirect, Response},
    routing::post,
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    chains,
    components::{Tone, badge, moment},
    form::ChangeForm,
    layout::{Section, form_key, refusal_page},
    session::Session,
};
use crate::{Api, v1::changes::client_name, v1::stages};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/stages/disable", post(disable))
        .route("/stages/enable", post(enable))
}

/// The durations for which the console can disable a stage, in minutes. The command line accepts any duration.
const DISABLE_TIMES: [(u64, &str); 5] = [
    (15, "15 minutes"),
    (30, "30 minutes"),
    (60, "1 hour"),
    (4 * 60, "4 hours"),
    (24 * 60, "24 hours"),
];

pub(super) fn stage_switch(session: &Session, chain: &ChainStatus, stage: &StageStatus) -> Markup {
    let id = format!("{}:{}/{}", chain.phase, chain.name, stage.name);
    html! {
        @if let Some(disabled) = &stage.disabled { (disabled_notice(session, &id, disabled)) }
        @if session.may_change() {
            details.switch {
                summary { @if stage.disabled.is_some() { "Disable it for another time…" } @else { "Disable it for a time…" } }
                form.filters method="post" action="/stages/disable" {
                    (form_key(session))
                    input type="hidden" name="stage" value=(id);
                    label { "For"
                        select name="minutes" {
                            @for (minutes, name) in DISABLE_TIMES { option value=(minutes) selected[minutes == 30] { (name) } }
                        }
                    }
                    label { "How"
                        select name="audit" {
                            option value="false" { "Off: it is not called" }
                            option value="true" { "Audit: it is called, and nothing is enforced" }
                        }
                    }
                    label.wide { "Reason" input name="reason" required maxlength="1000" placeholder="incident 4711: the scanner is down"; }
                    p.actions.wide { button.danger type="submit" { "Disable" } }
                }
            }
        }
    }
}

fn disabled_notice(session: &Session, id: &str, disabled: &DisabledStage) -> Markup {
    html! {
        div.notice.warn {
            p {
                (badge(Tone::Warn, if disabled.audit { "only audited" } else { "off" }))
                " until " (moment(disabled.until)) ", since " (moment(disabled.since))
                @if let Some(by) = &disabled.by { " by " (by) }
                ": " (disabled.reason)
            }
            @if session.may_change() {
                form method="post" action="/stages/enable" {
                    (form_key(session))
                    input type="hidden" name="stage" value=(id);
                    button type="submit" { "Enable it now" }
                }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct DisableForm {
    stage: StageId,
    minutes: u64,
    audit: bool,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct EnableForm {
    stage: StageId,
}

async fn disable(State(api): State<Api>, ChangeForm { session, fields }: ChangeForm<DisableForm>) -> Response {
    let how = DisableOptions {
        audit: fields.audit,
        duration: Duration::from_secs(fields.minutes.saturating_mul(60)),
        reason: fields.reason,
        by: Some(client_name(Some(session.caller.clone()))),
    };
    match stages::disable_stage(&api, fields.stage, how).await {
        Ok(switched) => redirect_to_chain(&switched.0.disabled.stage),
        Err(error) => refusal_page(&session, Section::Chains, &error),
    }
}

async fn enable(State(api): State<Api>, ChangeForm { session, fields }: ChangeForm<EnableForm>) -> Response {
    let by = client_name(Some(session.caller.clone()));
    match stages::enable_stage(&api, fields.stage, by).await {
        Ok(switched) => redirect_to_chain(&switched.0.disabled.stage),
        Err(error) => refusal_page(&session, Section::Chains, &error),
    }
}

/// Redirects to the page of the chain that has the stage `stage`, such as `Mutating:pods/images`.
pub(super) fn redirect_to_chain(stage: &str) -> Response {
    let parts = stage.split_once(':').and_then(|(phase, rest)| {
        let (chain, stage) = rest.rsplit_once('/')?;
        Some((phase.parse().ok()?, chain, stage))
    });
    let address = match parts {
        Some((phase, chain, _)) => chains::address(phase, chain),
        None => "/chains".to_owned(),
    };
    Redirect::to(&address).into_response()
}
