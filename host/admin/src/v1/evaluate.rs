//! Evaluates requests without changing the live table.

use admittance::{EvaluateError, EvaluateOptions, EvaluatedChains, EvaluationResult, admission::Request};
use admittance_definitions::ChainId;

use super::changes::client_name;
use crate::{
    Api,
    access::Caller,
    api::evaluation::{AppliesReply, DescribedRequest, EvaluateReply, EvaluateRequest},
    config::AdminRole,
    described_requests,
    error::ApiError,
    route::{Call, Json, LARGE_BODY_LIMIT, Method::Post, Nothing, REQUEST_BODY_LIMIT, Route},
};

/// The error statuses of `/v1/evaluate` and `/v1/applies`.
const REFUSALS: &[u16] = &[404, 408, 413, 415, 422, 503];

/// The maximum number of simultaneous replies of `/v1/applies`. Each may evaluate all conditions with a large object.
pub(crate) const MAX_EXPLANATIONS: usize = 1;

/// The name of the client's definitions in error messages, unless the request gives another name, such as a file name.
const DEFAULT_NAME: &str = "definitions";

pub(super) fn routes() -> [Route; 2] {
    let routes = [
        Route::new(
            Post,
            Some(AdminRole::Admin),
            "/v1/evaluate",
            "evaluate",
            "Evaluate a request with chains that are not live",
            evaluate,
        )
        .description(
            "The request is evaluated with the chains of definitions that are not applied, or with a live chain, \
             possibly with other settings. Plugins run in the sandbox with all limits, in slots of their own. The \
             evaluation is a dry run. Nothing is counted, recorded or written to the history, and nothing goes live. \
             An evaluation ends after 30 s, or when the client disconnects; at most two are made at a time.",
        ),
        Route::new(
            Post,
            Some(AdminRole::Read),
            "/v1/applies",
            "applies",
            "Which live chains and stages would see a request",
            applies,
        )
        .description(
            "The reply also has the reasons for which other chains and stages would not. No stage is called. Selectors \
             and match conditions are evaluated with the object as it is given, although earlier stages may change it.",
        ),
    ];
    routes.map(|route| route.refusals(REFUSALS))
}

async fn evaluate(
    call: Call<Nothing, Nothing, Json<EvaluateRequest, LARGE_BODY_LIMIT>>,
) -> Result<Json<EvaluateReply>, ApiError> {
    let Json(request) = call.body;
    let evaluated = evaluate_request(&call.api, call.caller, &request).await?;
    Ok(Json(EvaluateReply {
        decision: evaluated.decision,
        object: evaluated.outcome.object.as_ref().map(|object| object.value().clone()),
        unmatched: evaluated.unmatched,
    }))
}

pub(crate) async fn evaluate_request(
    api: &Api,
    caller: Option<Caller>,
    request: &EvaluateRequest,
) -> Result<EvaluationResult, ApiError> {
    evaluate_described(api, caller, request, request.request.to_request()?).await
}

/// Evaluates the admission request `described_request`. The chains and settings are taken from `request`; the admission
/// request that `request` contains is ignored.
pub(crate) async fn evaluate_described(
    api: &Api,
    caller: Option<Caller>,
    request: &EvaluateRequest,
    described_request: Request,
) -> Result<EvaluationResult, ApiError> {
    let name = request.name.as_deref().unwrap_or(DEFAULT_NAME);
    let id;
    let chains = match (&request.definitions, &request.chain) {
        (Some(text), None) => EvaluatedChains::Text { text, name },
        (None, Some(chain)) => {
            let parsed = chain.parse::<ChainId>();
            id = parsed.map_err(|error| ApiError::Malformed(format!("chain: {error}")))?;
            EvaluatedChains::Live(&id)
        }
        _ => {
            return Err(ApiError::Malformed(
                "write either `definitions` or the name of a live `chain`".to_owned(),
            ));
        }
    };
    let mut how = EvaluateOptions::default();
    how.call_webhooks = request.call_webhooks;
    for (stage, value) in &request.settings {
        let name = format!("settings of {stage}");
        let value = described_requests::parse_value(&name, value)?;
        if !value.is_object() {
            return Err(ApiError::CannotEvaluate(vec![format!(
                "{name}: not an object; write the fields of the settings"
            )]));
        }
        how.settings.insert(stage.clone(), value);
    }
    let (by, subject) = (client_name(caller), request.chain.as_deref().unwrap_or(name));
    let result = api.sources.host.evaluate(chains, described_request, &how).await;
    match &result {
        Ok(evaluated) => tracing::info!(
            target: "admittance::audit",
            by, action = "evaluate", subject, uid = %evaluated.outcome.uid,
            "{by}: evaluate {subject}"
        ),
        Err(error) => tracing::info!(
            target: "admittance::audit",
            by, action = "evaluate", subject, %error,
            "{by}: evaluate {subject} was refused: {error}"
        ),
    }
    Ok(result?)
}

async fn applies(
    call: Call<Nothing, Nothing, Json<DescribedRequest, REQUEST_BODY_LIMIT>>,
) -> Result<Json<AppliesReply>, ApiError> {
    let Json(described) = call.body;
    find_applying_chains(&call.api, &described).await.map(Json)
}

pub(crate) async fn find_applying_chains(api: &Api, described: &DescribedRequest) -> Result<AppliesReply, ApiError> {
    let host = &api.sources.host;
    let _turn = api.explanations.acquire().await;
    let request = described.to_request()?;
    Ok(AppliesReply {
        revision: host.table().revision(),
        chains: host.explain_chains(&request).await,
    })
}

impl From<EvaluateError> for ApiError {
    fn from(error: EvaluateError) -> Self {
        use admittance_definitions::PlanError as Definitions;
        match error {
            EvaluateError::Definitions(Definitions::Mistakes(mistakes)) => Self::cannot_evaluate(mistakes.iter()),
            EvaluateError::Chains(admittance::Error::Definitions(mistakes)) => Self::cannot_evaluate(mistakes.iter()),
            EvaluateError::Chains(admittance::Error::Stages(errors)) => Self::cannot_evaluate(errors.iter()),
            EvaluateError::Definitions(_) | EvaluateError::NoSuchPlugin(_) | EvaluateError::Webhook(_) => {
                Self::CannotEvaluate(vec![error.to_string()])
            }
            EvaluateError::NoSuchChain(_) => Self::NotFound(error.to_string()),
            error => Self::Unavailable(error.to_string()),
        }
    }
}
