//! Defines the rows of the table from which the router and the OpenAPI document are made. The types of a handler
//! declare the parameters, the body and the replies of its route.

use std::{future::Future, time::Duration};

use admittance::{BodyError, BodyLimits};
use admittance_net::limits::Permit;
use axum::{
    body::{Body, Bytes},
    extract::{FromRequestParts, Path, State},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use http::{HeaderMap, Request, header::CONTENT_TYPE, request::Parts};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Api,
    access::{AccessDenied, Caller, log_refusal},
    config::AdminRole,
    error::ApiError,
    v1::changes,
};

/// The largest body of a request with definitions, in bytes. Such a body may contain more than the definitions: a body
/// for `/v1/evaluate` also describes an admission request.
pub(crate) const LARGE_BODY_LIMIT: usize = 8 << 20;
/// The largest body, in bytes, of a request that describes an admission request but contains no definitions. There is
/// room for an AdmissionReview with two objects of the largest size that Kubernetes allows.
pub(crate) const REQUEST_BODY_LIMIT: usize = 4 << 20;
/// The largest body, in bytes, of a form, and of a request that contains no definitions and no admission request.
pub(crate) const SMALL_BODY_LIMIT: usize = 64 << 10;
/// The maximum number of requests with a body larger than [`SMALL_BODY_LIMIT`] at the same time.
pub(crate) const MAX_LARGE_BODIES: usize = 8;
/// The maximum number of parameters in the query of an address, and of fields in a form.
const MAX_PARAMETERS: usize = 128;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The content types of definitions that are accepted: YAML and JSON, with other names that clients use for them.
const TEXT_TYPES: [&str; 5] = [
    "application/yaml",
    "application/json",
    "application/x-yaml",
    "text/yaml",
    "text/plain",
];

#[derive(Clone, Debug)]
pub struct Route {
    pub(crate) method: Method,
    /// The role that the route requires; `None` if it requires no authentication.
    pub(crate) role: Option<AdminRole>,
    /// The path in the syntax of axum: `{*name}` matches the rest of a path.
    pub(crate) path: &'static str,
    /// The unique name of the route in the OpenAPI document, as `operationId`.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    /// The error statuses of this route, besides those that all routes share.
    pub(crate) refusals: &'static [u16],
    pub(crate) handler: MethodRouter<Api>,
    pub(crate) path_schema: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) query_schema: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) body_schemas: fn(&mut SchemaGenerator) -> Vec<RouteContent>,
    pub(crate) replies: fn(&mut SchemaGenerator) -> Vec<ReplyForm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// The media type of a body, and the schema of its content.
#[derive(Clone, Debug)]
pub struct RouteContent {
    pub media_type: &'static str,
    pub schema: Schema,
}

#[derive(Clone, Debug)]
pub struct ReplyForm {
    pub status: u16,
    pub description: &'static str,
    pub content: RouteContent,
}

impl ReplyForm {
    /// Returns a reply with the status 200.
    pub fn ok(media_type: &'static str, schema: Schema) -> Self {
        Self {
            status: 200,
            description: "Success.",
            content: RouteContent { media_type, schema },
        }
    }
}

/// A request whose client may call the route, with the parsed parameters and body.
#[derive(Debug)]
pub struct Call<P = Nothing, Q = Nothing, B = Nothing> {
    pub(crate) api: Api,
    /// The client; `None` if no authentication is required.
    pub(crate) caller: Option<Caller>,
    /// The role of the client; `None` if no authentication is required.
    pub(crate) role: Option<AdminRole>,
    pub(crate) head: Parts,
    pub path: P,
    pub query: Q,
    pub body: B,
    /// The permit that a request with a large body needs. It is held until the reply is made.
    _permit: Option<Permit<Caller>>,
}

/// The type of parameters or of a body for a route that has none.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

pub trait ReadBody: Sized + Send {
    /// The maximum size of the body in bytes.
    const LIMIT: usize;

    fn read(head: &Parts, body: Body) -> impl Future<Output = Result<Self, ApiError>> + Send;
    fn contents(generator: &mut SchemaGenerator) -> Vec<RouteContent>;
}

pub trait RouteReply: IntoResponse {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm>;
}

impl ReadBody for Nothing {
    const LIMIT: usize = 0;

    async fn read(_: &Parts, _: Body) -> Result<Self, ApiError> {
        Ok(Self {})
    }

    fn contents(_: &mut SchemaGenerator) -> Vec<RouteContent> {
        Vec::new()
    }
}

/// The body of a request with definitions, in the syntax of a definition file: one or more YAML or JSON documents.
#[derive(Debug)]
pub(crate) struct DefinitionText(pub(crate) String);

impl ReadBody for DefinitionText {
    const LIMIT: usize = LARGE_BODY_LIMIT;

    async fn read(head: &Parts, body: Body) -> Result<Self, ApiError> {
        check_media_type(&head.headers, &TEXT_TYPES)?;
        String::from_utf8(collect_body(head, body, Self::LIMIT).await?.into())
            .map(Self)
            .map_err(|_| ApiError::Malformed("the body is not valid UTF-8".to_owned()))
    }

    fn contents(generator: &mut SchemaGenerator) -> Vec<RouteContent> {
        let [yaml, json, ..] = TEXT_TYPES;
        let of = |media_type, schema| RouteContent { media_type, schema };
        vec![of(yaml, generator.subschema_for::<String>()), of(json, true.into())]
    }
}

/// JSON in the signature of a handler. As an argument, it is the body of the request, which may have at most `LIMIT`
/// bytes. As a result, it is the body of the reply.
#[derive(Debug)]
pub struct Json<T, const LIMIT: usize = SMALL_BODY_LIMIT>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send, const LIMIT: usize> ReadBody for Json<T, LIMIT> {
    const LIMIT: usize = LIMIT;

    async fn read(head: &Parts, body: Body) -> Result<Self, ApiError> {
        check_media_type(&head.headers, &["application/json"])?;
        serde_json::from_slice(&collect_body(head, body, LIMIT).await?)
            .map(Self)
            .map_err(|error| ApiError::Malformed(format!("the body is invalid: {error}")))
    }

    fn contents(generator: &mut SchemaGenerator) -> Vec<RouteContent> {
        vec![RouteContent {
            media_type: "application/json",
            schema: generator.subschema_for::<T>(),
        }]
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: Serialize + JsonSchema> RouteReply for Json<T> {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        vec![ReplyForm::ok("application/json", generator.subschema_for::<T>())]
    }
}

#[derive(Debug)]
pub(crate) struct RouteText(pub(crate) &'static str, pub(crate) String);

impl IntoResponse for RouteText {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, self.0)], self.1).into_response()
    }
}

impl RouteReply for RouteText {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        vec![ReplyForm::ok("text/plain", generator.subschema_for::<String>())]
    }
}

impl Route {
    /// Returns a route that calls this handler, and that clients with `role` may request.
    pub fn new<P, Q, B, R, F>(
        method: Method,
        role: Option<AdminRole>,
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: fn(Call<P, Q, B>) -> F,
    ) -> Self
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: ReadBody + 'static,
        R: RouteReply + 'static,
        F: Future<Output = Result<R, ApiError>> + Send + 'static,
    {
        let endpoint =
            async move |State(api): State<Api>, request: Request<Body>| match Call::read(api, role, request).await {
                Ok(call) => handler(call).await.into_response(),
                Err(error) => error.into_response(),
            };
        Self {
            method,
            role,
            path,
            name,
            summary,
            description: "",
            refusals: &[],
            handler: on(method.filter(), endpoint),
            path_schema: |generator| P::json_schema(generator),
            query_schema: |generator| Q::json_schema(generator),
            body_schemas: B::contents,
            replies: R::forms,
        }
    }

    /// Sets the sentences that follow the route's summary in the OpenAPI document.
    pub fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Sets the error statuses of this route, besides those that all routes share.
    pub fn refusals(self, refusals: &'static [u16]) -> Self {
        Self { refusals, ..self }
    }
}

impl<P, Q, B> Call<P, Q, B> {
    /// Returns the `T` that front ends put in [`AdminSources::extensions`](crate::AdminSources::extensions).
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<&T> {
        self.api.sources.extensions.get()
    }

    /// Returns the name of the client that the audit log contains.
    pub fn client_name(&self) -> String {
        changes::client_name(self.caller.clone())
    }
}

impl<P: DeserializeOwned + Send, Q: DeserializeOwned, B: ReadBody> Call<P, Q, B> {
    /// Authenticates the client before parsing the request, so that unauthorized clients do not learn if it is valid.
    async fn read(api: Api, role: Option<AdminRole>, request: Request<Body>) -> Result<Self, ApiError> {
        let (mut head, body) = request.into_parts();
        let admitted = role.map(|role| admit(&api, &head, role)).transpose()?;
        let (caller, role) = admitted.unzip();
        let Path(path) = Path::<P>::from_request_parts(&mut head, &())
            .await
            .map_err(|rejection| ApiError::Malformed(rejection.body_text()))?;
        let query = parse_parameters("query", head.uri.query().unwrap_or_default())?;
        let permit = match &caller {
            Some(caller) => large_body_permit(&api, caller, B::LIMIT)?,
            None => None,
        };
        let body = B::read(&head, body).await?;
        Ok(Self {
            api,
            caller,
            role,
            head,
            path,
            query,
            body,
            _permit: permit,
        })
    }
}

fn admit(api: &Api, head: &Parts, role: AdminRole) -> Result<(Caller, AdminRole), AccessDenied> {
    let admitted = api.access.admit(head, role);
    if let Err(denied) = &admitted
        && denied.is_notable()
    {
        log_refusal(head, denied);
    }
    admitted
}

/// Checks that the content type of a body is in `accepted_types`. A body without a content type is accepted.
pub(crate) fn check_media_type(head: &HeaderMap, accepted_types: &[&str]) -> Result<(), ApiError> {
    let Some(value) = head.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let essence = text.split(';').next().unwrap_or_default().trim();
    if accepted_types
        .iter()
        .any(|accepted_type| essence.eq_ignore_ascii_case(accepted_type))
    {
        return Ok(());
    }
    Err(ApiError::UnsupportedMediaType(essence.to_owned()))
}

pub(crate) async fn collect_body(head: &Parts, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let collected = BodyLimits::new(limit, BODY_TIMEOUT).collect(head, body).await;
    collected.map_err(|error| match error {
        BodyError::TooLarge(limit) => ApiError::TooLarge(limit),
        BodyError::TooSlow(_) | BodyError::Stalled(_) => ApiError::BodyTimeout,
        BodyError::NoMemory(error) => ApiError::Unavailable(error.to_string()),
        error => ApiError::Malformed(error.end_reason().to_string()),
    })
}

/// Returns a permit to read a body of up to `limit` bytes; `None` if such a body is so small that it needs no permit.
pub(crate) fn large_body_permit(api: &Api, caller: &Caller, limit: usize) -> Result<Option<Permit<Caller>>, ApiError> {
    if limit <= SMALL_BODY_LIMIT {
        return Ok(None);
    }
    api.large_bodies.try_acquire(caller.clone()).map(Some).ok_or_else(|| {
        ApiError::Unavailable(format!(
            "too many requests with large bodies at a time: {MAX_LARGE_BODIES} in all, and fewer for each client; wait for \
             some of them"
        ))
    })
}

/// Parameters are counted first, because parsing too many would take long.
pub(crate) fn parse_parameters<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, ApiError> {
    if text.bytes().filter(|byte| *byte == b'&').count() >= MAX_PARAMETERS {
        let message = format!("the {name} is invalid: it has more than {MAX_PARAMETERS} fields");
        return Err(ApiError::Malformed(message));
    }
    serde_html_form::from_str(text).map_err(|error| ApiError::Malformed(format!("the {name} is invalid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_before_they_are_parsed() {
        let parse = |count| parse_parameters::<Vec<(String, String)>>("form", &vec!["a=1"; count].join("&"));
        assert_eq!(parse(MAX_PARAMETERS).unwrap().len(), MAX_PARAMETERS);
        let error = parse(MAX_PARAMETERS + 1).unwrap_err().to_string();
        assert!(error.contains("more than 128 fields"), "{error}");
    }
}
