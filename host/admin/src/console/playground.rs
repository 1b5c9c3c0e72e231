//! Shows a page on which users edit a chain and evaluate a request with it. The live chains are not affected.

use std::{borrow::Cow, collections::BTreeMap};

use admittance::{
    DecisionFilter, DecisionVerdict, EvaluateError, EvaluationResult,
    admission::{Object, Request, ReviewVersion, read_review, write_review},
};
use admittance_definitions::ChainId;
use axum::{
    Router,
    extract::{Query, State},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    applies::operation_select,
    assets,
    components::{MAX_SHOWN_TEXT, Tone, badge, duration, yaml},
    decision::{expectation, timeline},
    diff::side_by_side,
    form::{ChangeForm, split_names},
    http_text,
    layout::{Section, form_key, page, refusal_page},
    live::tone,
    mistakes::problems_notice,
    session::Session,
};
use crate::{
    Api,
    api::evaluation::{DescribedRequest, EvaluateRequest},
    config::AdminRole,
    decisions, described_requests,
    error::ApiError,
    route::LARGE_BODY_LIMIT,
    v1::evaluate::{evaluate_described, evaluate_request},
};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/playground", get(show).post(run))
        .route("/playground/test-case", axum::routing::post(test_case))
}

/// The name of the edited chain in error messages, such as `chain:9:7: spec.stages: missing`. A script on the page uses
/// such a message to mark the line with the mistake.
const DEFINITION_FILE_NAME: &str = "chain";

const EXAMPLE_CHAIN: &str = r#"apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: example
spec:
  phase: Validating
  rules:
    - operations: [CREATE, UPDATE]
      apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
  stages:
    - name: owner
      cel:
        validations:
          - expression: has(object.metadata.labels) && 'owner' in object.metadata.labels
            message: a Pod needs the label owner
"#;

const EXAMPLE_OBJECT: &str = "apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: default
spec:
  containers:
    - name: web
      image: nginx:1.29
";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PlaygroundFields {
    definitions: String,
    /// The settings to use instead of those in the definitions, in YAML or JSON. The keys are the names of stages.
    settings: String,
    object: String,
    old_object: String,
    operation: String,
    resource: String,
    namespace: String,
    user: String,
    groups: String,
    webhooks: bool,
    /// Whether the reply contains only the outcome, which a script inserts into the page.
    outcome: bool,
}

impl PlaygroundFields {
    async fn evaluate(&self, api: &Api, session: &Session) -> Result<EvaluationResult, ApiError> {
        let (request, caller) = (self.build_request()?, Some(session.caller.clone()));
        match &api.sources.dialect {
            Some(dialect) if http_text::is_http(&self.object) => {
                let mut described = http_text::read(dialect.as_ref(), &self.object)?;
                described.user.username = self.user.trim().to_owned();
                described.user.groups = split_names(&self.groups);
                let other_fields = [&self.operation, &self.resource, &self.namespace, &self.old_object];
                if other_fields.iter().any(|text| !text.trim().is_empty()) {
                    return Err(ApiError::CannotEvaluate(vec![
                        "object: an HTTP request tells everything but the user: empty the other fields".to_owned(),
                    ]));
                }
                evaluate_described(api, caller, &request, described).await
            }
            _ => evaluate_request(api, caller, &request).await,
        }
    }

    fn build_request(&self) -> Result<EvaluateRequest, ApiError> {
        let non_empty = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let object = |text: &str| non_empty(text).map(|_| Value::from(text));
        Ok(EvaluateRequest {
            definitions: Some(self.definitions.clone()),
            name: Some(DEFINITION_FILE_NAME.to_owned()),
            chain: None,
            settings: self.parse_settings()?,
            call_webhooks: self.webhooks,
            request: DescribedRequest {
                object: object(&self.object),
                old_object: object(&self.old_object),
                operation: non_empty(&self.operation),
                resource: non_empty(&self.resource),
                namespace: non_empty(&self.namespace),
                user: non_empty(&self.user),
                groups: split_names(&self.groups),
                ..DescribedRequest::default()
            },
        })
    }

    fn parse_settings(&self) -> Result<BTreeMap<String, Value>, ApiError> {
        if self.settings.trim().is_empty() {
            return Ok(BTreeMap::new());
        }
        match described_requests::parse_value("settings", &Value::from(self.settings.as_str()))? {
            Value::Object(settings) => Ok(settings.into_iter().collect()),
            _ => Err(ApiError::CannotEvaluate(vec![
                "settings:1:1: not an object; write the name of a stage, and below it the settings of its plugin"
                    .to_owned(),
            ])),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PlaygroundQuery {
    /// The phase and name of the live chain to edit, such as `Mutating:pods`.
    chain: Option<String>,
    /// The uid of the decision whose request is filled in. Default: the last request of the chain.
    uid: Option<String>,
}

async fn show(session: Session, State(api): State<Api>, Query(beginning): Query<PlaygroundQuery>) -> Response {
    match beginning.build_fields(&api, &session).await {
        Ok(fields) => page(
            &session,
            Section::Playground,
            "Playground",
            content(&session, &fields, &html! {}),
        ),
        Err(error) => refusal_page(&session, Section::Playground, &error),
    }
}

impl PlaygroundQuery {
    /// Returns the initial content of the form. If the log does not have a request of the chain with its objects, the
    /// form contains an example request.
    async fn build_fields(self, api: &Api, session: &Session) -> Result<PlaygroundFields, ApiError> {
        let dialect = api.sources.dialect.as_deref();
        let example = dialect.and_then(|dialect| http_text::write(dialect, None));
        let chain = match self.chain {
            Some(chain) if session.may_change() => {
                let parsed = chain.parse::<ChainId>();
                Some(parsed.map_err(|error| ApiError::Malformed(format!("chain: {error}")))?)
            }
            Some(_) => return Err(session.read_only_error()),
            // The front end has an example request of its own, which is not a Kubernetes request. The example chain
            // handles only Kubernetes requests, so the page shows a live chain instead.
            None if example.is_some() && session.may_change() => first_chain(api),
            None => None,
        };
        let object = example.unwrap_or_else(|| EXAMPLE_OBJECT.to_owned());
        let Some(chain) = chain else {
            return Ok(PlaygroundFields {
                definitions: EXAMPLE_CHAIN.to_owned(),
                object,
                ..PlaygroundFields::default()
            });
        };
        let stored = api.sources.host.live_definitions(&chain).await?;
        let texts: Vec<_> = stored.into_iter().map(|stored| stored.text).collect();
        if texts.is_empty() {
            return Err(EvaluateError::NoSuchChain(chain).into());
        }
        Ok(PlaygroundFields {
            definitions: texts.join("\n---\n"),
            object: last_request(api, chain.name, self.uid).await?.unwrap_or(object),
            ..PlaygroundFields::default()
        })
    }
}

fn first_chain(api: &Api) -> Option<ChainId> {
    let table = api.sources.host.table();
    let chain = table.chains().next()?;
    Some(ChainId {
        phase: chain.phase,
        name: chain.name.to_string(),
    })
}

/// Returns the request with this uid, or else the chain's last request.
async fn last_request(api: &Api, chain: String, uid: Option<String>) -> Result<Option<String>, ApiError> {
    let mut filter = DecisionFilter::default();
    filter.chain = Some(chain);
    let uid = uid.or_else(|| {
        let last = api.sources.host.decisions().list(&filter, None, 1);
        last.decisions.into_iter().next().map(|decision| decision.uid)
    });
    let Some(uid) = uid else { return Ok(None) };
    let details = decisions::get(api, AdminRole::Admin, &uid, None).await?.decisions;
    let recorded = details.into_iter().next_back().and_then(|detail| detail.review);
    let text = recorded.and_then(|recorded| {
        let review = json!({"apiVersion": recorded.api_version, "kind": recorded.kind, "request": recorded.request});
        let admission_review = read_review(review.to_string()).ok();
        let dialect = api.sources.dialect.as_deref();
        let http = dialect
            .zip(admission_review)
            .and_then(|(dialect, parsed_review)| http_text::write(dialect, Some(&parsed_review.request)));
        http.or_else(|| Some(yaml(&review)))
    });
    Ok(text.filter(|text| text.len() <= MAX_SHOWN_TEXT))
}

fn review_json(request: &Request) -> Value {
    serde_json::from_slice(&write_review(ReviewVersion::V1, request)).unwrap_or_default()
}

fn content(session: &Session, fields: &PlaygroundFields, outcome: &Markup) -> Markup {
    html! {
        p {
            "Runs a request through a chain that you write here, in the real sandbox with its limits. Nothing that is live is \
             touched: the request is a dry run, and nothing is counted or recorded."
        }
        @if !session.may_change() {
            p.notice { "Evaluating needs the role Admin: plugins of the chain are called, with what it grants them." }
        }
        playground-page schema=(assets::address("chain.schema.json")) {
            form.playground method="post" action="/playground" {
                (form_key(session))
                div.editors {
                    (editor("definitions", "Chain", &fields.definitions, 22))
                    div {
                        (editor("object", "Object, AdmissionReview or HTTP request", &fields.object, 12))
                        (editor("settings", "Settings in place of those in the chain, by stage", &fields.settings, 5))
                    }
                }
                details.more open[has_optional_fields(fields)] {
                    summary { "More of the request" }
                    div.filters {
                        (operation_select(&fields.operation))
                        label { "Resource" input name="resource" value=(fields.resource) placeholder="guessed from the kind" spellcheck="false"; }
                        label { "Namespace" input name="namespace" value=(fields.namespace) spellcheck="false"; }
                        label { "User" input name="user" value=(fields.user) spellcheck="false"; }
                        label { "Groups" input name="groups" value=(fields.groups) spellcheck="false"; }
                    }
                    (editor("old_object", "Old object", &fields.old_object, 5))
                }
                @if session.may_change() {
                    p.actions {
                        button.primary type="submit" { "Evaluate" }
                        button type="submit" formaction="/playground/test-case" { "Save as a test case" }
                        label.check { input type="checkbox" name="webhooks" value="true" checked[fields.webhooks]; "Call webhooks of the chain" }
                        span.sharing {}
                    }
                }
                p.hint { "In an editor, Tab indents; press Escape and then Tab to leave it. Ctrl+Space completes a field or a value." }
            }
            section #outcome aria-label="Outcome" { (outcome) }
        }
    }
}

fn has_optional_fields(fields: &PlaygroundFields) -> bool {
    let more = [
        &fields.operation,
        &fields.resource,
        &fields.namespace,
        &fields.user,
        &fields.groups,
        &fields.old_object,
    ];
    more.into_iter().any(|text| !text.trim().is_empty())
}

fn editor(name: &str, label: &str, text: &str, rows: u8) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            code-editor {
                // HTML parsers drop a line break at the beginning of a text area. With one more line break there, the
                // text itself keeps its first line.
                textarea id=(name) name=(name) rows=(rows) spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off" { "\n" (text) }
            }
        }
    }
}

async fn run(
    State(api): State<Api>,
    ChangeForm { session, fields }: ChangeForm<PlaygroundFields, LARGE_BODY_LIMIT>,
) -> Response {
    let result = fields.evaluate(&api, &session).await;
    let (status, outcome) = match &result {
        Ok(evaluated) => (http::StatusCode::OK, outcome_section(evaluated)),
        Err(error) => (error.status(), problems_notice(error)),
    };
    if fields.outcome {
        return (status, Html(outcome.into_string())).into_response();
    }
    let page = page(
        &session,
        Section::Playground,
        "Playground",
        content(&session, &fields, &outcome),
    );
    (status, page).into_response()
}

fn outcome_section(evaluated: &EvaluationResult) -> Markup {
    let decision = &evaluated.decision;
    // A script in the page offers completions while the user types settings. It takes them from these schemas.
    let schemas = serde_json::to_string(&evaluated.settings_schemas).unwrap_or_default();
    html! {
        h2 data-schemas=(schemas) {
            "Outcome: "
            @if decision.stages.is_empty() { (badge(Tone::Plain, "not matched")) }
            @else { (badge(tone(decision.verdict), decision.verdict.as_str())) }
            span.muted { " in " (duration(decision.microseconds)) }
        }
        @if let Some(message) = &decision.message {
            p.notice.bad { (message) @if let Some(code) = decision.code { " (" (code) ")" } }
        }
        @if decision.stages.is_empty() { p.notice { "No chain is for this request, so it passes unchanged." } }
        @for warning in &decision.warnings { p.notice.warn { "Warning: " (warning) } }
        @for unmatched in &evaluated.unmatched { p.notice { "Chain " (unmatched.chain) ": " (unmatched.reason) } }
        @if !decision.stages.is_empty() { (timeline(decision)) }
        @if decision.verdict == DecisionVerdict::Changed {
            h3 { "Changes" }
            @match side_by_side(["Before", "After"], &object_text(evaluated.request.object.as_ref()), &object_text(evaluated.outcome.object.as_ref())) {
                Some(compared) => (compared),
                None => p.hint { "The objects are too long to be compared here. The test case has the patch." },
            }
        }
    }
}

fn object_text(object: Option<&Object>) -> String {
    object.map(|object| yaml(object.value())).unwrap_or_default()
}

async fn test_case(
    State(api): State<Api>,
    ChangeForm { session, fields }: ChangeForm<PlaygroundFields, LARGE_BODY_LIMIT>,
) -> Response {
    let saved = async { test_case_yaml(&fields, &fields.evaluate(&api, &session).await?) };
    match saved.await {
        Ok(text) => {
            let headers = [
                (CONTENT_TYPE, "application/yaml"),
                (CONTENT_DISPOSITION, "attachment; filename=\"playground.yaml\""),
            ];
            (headers, text).into_response()
        }
        Err(error) => {
            let page = page(
                &session,
                Section::Playground,
                "Playground",
                content(&session, &fields, &problems_notice(&error)),
            );
            (error.status(), page).into_response()
        }
    }
}

fn test_case_yaml(fields: &PlaygroundFields, evaluated: &EvaluationResult) -> Result<String, ApiError> {
    let decision = &evaluated.decision;
    let mut request = json!({});
    let mut set = |name: &str, value: Value| {
        if let Some(request) = request.as_object_mut() {
            request.insert(name.to_owned(), value);
        }
    };
    let text = |value: &str| described_requests::parse_value("object", &Value::from(value));
    let object = match fields.object.trim() {
        "" => None,
        http if http_text::is_http(http) => Some(review_json(&evaluated.request)),
        _ => Some(text(&fields.object)?),
    };
    match object {
        Some(review) if review.get("kind").and_then(Value::as_str) == Some("AdmissionReview") => set("review", review),
        object => {
            if let Some(object) = object {
                set("object", object);
            }
            if !fields.old_object.trim().is_empty() {
                set("oldObject", text(&fields.old_object)?);
            }
            for (name, value) in [
                ("operation", &fields.operation),
                ("resource", &fields.resource),
                ("namespace", &fields.namespace),
            ] {
                if !value.trim().is_empty() {
                    set(name, value.trim().into());
                }
            }
            let groups = split_names(&fields.groups);
            if !fields.user.trim().is_empty() || !groups.is_empty() {
                set("user", json!({"username": fields.user.trim(), "groups": groups}));
            }
        }
    }
    let mut expect = expectation(decision);
    if decision.stages.is_empty() {
        expect.insert("stages".to_owned(), json!([]));
    }
    let name = format!("{} of {} is {}", decision.operation, decision.kind, decision.verdict);
    let case = json!({"cases": [{"name": name, "request": request, "expect": expect}]});
    let settings: Cow<'_, str> = match fields.settings.trim() {
        "" => "".into(),
        settings => {
            let lines = settings.lines().map(|line| format!("#   {line}\n"));
            format!(
                "# It expects these settings in the chain:\n{}",
                lines.collect::<String>()
            )
            .into()
        }
    };
    Ok(format!(
        "# Run it with the chain: admittance test CHAIN.yaml --cases playground.yaml\n{settings}{}",
        yaml(&case)
    ))
}
