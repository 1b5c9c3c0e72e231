//! Translates clients' requests into requests to the scheduler.

mod container;
mod fault;
mod go;
mod message;
mod quantity;
pub(crate) mod types;
mod version;
mod view;
mod workload;

use std::{borrow::Cow, net::IpAddr, sync::LazyLock};

use admittance_admission::{EnforcedSpelling, SpellingError};
use admittance_dialect::json_reply;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_TYPE},
    request::Parts,
    uri::PathAndQuery,
};
use percent_encoding::utf8_percent_encode;
use serde_json::{Value, json, value::RawValue};

pub(crate) use self::fault::{PARAMETERS, TranslationFault};
use self::{
    go::GoType,
    message::message_for_scheduler,
    types::{DAEMONSET, DEPLOYMENT, MESSAGE, REPLICA_CONTROLLER, TYPE_META},
    view::CheckedView,
    workload::{scheduler_body, target_values_of},
};
use crate::{
    reply::Code,
    routes::{
        ForwardedBody, MatchedTarget, RequiredKind, RouteAction, RouteCall, RouteLookup, SEGMENT, TargetValues, lookup,
        query_value,
    },
    scheduler::{NextBody, OtherServer, RewrittenRequest, SchedulerForwarding, relay::DEFINITIONS_VERSION},
};

struct Schema {
    kind: GoType,
    spelling: EnforcedSpelling,
}

impl Schema {
    fn new(kind: GoType) -> Self {
        let spelling = EnforcedSpelling::new([], kind.patterns());
        Self { kind, spelling }
    }

    fn canonical_text<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, SpellingError> {
        Ok(match self.spelling.canonical_text(text)? {
            Some(respelled) => respelled.into(),
            None => text.trim().into(),
        })
    }

    fn parse_value(&self, text: &str) -> Result<Value, TranslationFault> {
        let value = serde_json::from_str(text).map_err(|error| TranslationFault::Json(error.to_string()))?;
        self.accept_value(value)
    }

    fn accept_value(&self, value: Value) -> Result<Value, TranslationFault> {
        self.kind.check_value(&value).map_err(TranslationFault::Json)?;
        Ok(value)
    }
}

static HEAD_SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(TYPE_META));
static APPLICATION_SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(REPLICA_CONTROLLER));
static DEPLOYMENT_SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(DEPLOYMENT));
static DAEMONSET_SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(DAEMONSET));
static MESSAGE_SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(MESSAGE));

/// Decides how a request that passed the chains is forwarded. Some routes need the body for this decision. If `body` is
/// `None` for such a route, the result is `None` too: the caller must collect the body and call this function again.
pub fn forwarding(head: &Parts, body: Option<&Bytes>) -> Option<SchedulerForwarding> {
    let matched = match lookup(head) {
        RouteLookup::Found(matched) => matched,
        RouteLookup::OtherMethod(methods) => {
            return Some(SchedulerForwarding::Reply(no_route_reply(
                StatusCode::METHOD_NOT_ALLOWED,
                &methods,
            )));
        }
        RouteLookup::NotFound => {
            return Some(SchedulerForwarding::Reply(no_route_reply(StatusCode::NOT_FOUND, &[])));
        }
    };
    let query = head.uri.query().unwrap_or_default();
    let forwarding = match matched.route.action {
        RouteAction::Scheduler(call) | RouteAction::Definitions(call) => {
            let translated = match call.body {
                ForwardedBody::Nothing => Ok((TargetValues::default(), NextBody::Nothing)),
                ForwardedBody::AsIs => Ok((TargetValues::default(), NextBody::AsIs)),
                ForwardedBody::Checked(kind) => {
                    check_kind(body?, kind).map(|_| (TargetValues::default(), NextBody::AsIs))
                }
                ForwardedBody::Message => translate_message(body?),
                ForwardedBody::Version(kind) => translate_workload(body?, kind, &APPLICATION_SCHEMA),
                ForwardedBody::DeploymentDef => translate_workload(body?, RequiredKind::Deployment, &DEPLOYMENT_SCHEMA),
                ForwardedBody::DaemonsetDef => translate_workload(body?, RequiredKind::Daemonset, &DAEMONSET_SCHEMA),
            };
            translated.and_then(|(address, body)| rewritten_request(&matched, call, query, &address, body))
        }
        RouteAction::Console => console_request(&matched, query),
        RouteAction::CustomResourceDefinitions if matched.route.verb.creates_or_changes() => {
            definitions_request(&matched, query, with_definitions_version(body?))
        }
        RouteAction::CustomResourceDefinitions => definitions_request(&matched, query, NextBody::AsIs),
        // A watch of custom resources is refused, as its reply never ends. bcs-mesos-driver supports no watch either.
        RouteAction::CustomResources if matched.parameter("uri").contains("watch") => Err(TranslationFault::Watch),
        RouteAction::CustomResources => join_path("/apis", matched.parameter("uri"), query)
            .map(|path_and_query| SchedulerForwarding::OtherServer(OtherServer::CustomResources { path_and_query })),
    };
    Some(forwarding.unwrap_or_else(|fault| SchedulerForwarding::Reply(fault.reply())))
}

fn translate_message(body: &Bytes) -> Result<(TargetValues, NextBody), TranslationFault> {
    let text = MESSAGE_SCHEMA.canonical_text(parse_utf8(body, TranslationFault::Json)?);
    let value = MESSAGE_SCHEMA.parse_value(&text.map_err(|error| TranslationFault::Json(describe(&error)))?)?;
    let scheduler_message = message_for_scheduler(CheckedView::new(&value))?.to_string();
    Ok((TargetValues::default(), NextBody::New(scheduler_message.into())))
}

fn translate_workload(
    body: &Bytes,
    kind: RequiredKind,
    schema: &Schema,
) -> Result<(TargetValues, NextBody), TranslationFault> {
    let (checked, value) = check_kind(body, kind)?;
    let text = schema
        .canonical_text(parse_utf8(body, TranslationFault::Json)?)
        .map_err(|error| TranslationFault::Json(describe(&error)))?;
    let value = if text == checked {
        schema.accept_value(value)?
    } else {
        schema.parse_value(&text)?
    };
    let object = CheckedView::new(&value);
    let original: &RawValue = serde_json::from_str(&text).map_err(|error| TranslationFault::Json(error.to_string()))?;
    let scheduler_object = scheduler_body(kind, object, original)?;
    Ok((target_values_of(kind, object), NextBody::New(scheduler_object.into())))
}

/// Checks that the object in a body has this kind. Returns the text of the body, with the key `kind` in the documented
/// spelling, and the JSON value of this text.
fn check_kind(body: &[u8], kind: RequiredKind) -> Result<(Cow<'_, str>, Value), TranslationFault> {
    let text = HEAD_SCHEMA
        .canonical_text(parse_utf8(body, TranslationFault::TypeMeta)?)
        .map_err(|error| TranslationFault::TypeMeta(describe(&error)))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| TranslationFault::TypeMeta(error.to_string()))?;
    HEAD_SCHEMA
        .kind
        .check_value(&value)
        .map_err(TranslationFault::TypeMeta)?;
    let actual_kind = CheckedView::new(&value).at("kind").text();
    if actual_kind != kind.as_str() {
        return Err(TranslationFault::Kind(actual_kind.to_owned()));
    }
    Ok((text, value))
}

fn parse_utf8(body: &[u8], fault: fn(String) -> TranslationFault) -> Result<&str, TranslationFault> {
    std::str::from_utf8(body).map_err(|error| fault(error.to_string()))
}

fn describe(error: &SpellingError) -> String {
    match error {
        // For an incomplete document, Go's decoder has this message.
        SpellingError::Json(error) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        SpellingError::Json(error) | SpellingError::Ambiguous(error) => error.to_string(),
    }
}

fn rewritten_request(
    matched_target: &MatchedTarget,
    call: RouteCall,
    query: &str,
    target_values: &TargetValues,
    body: NextBody,
) -> Result<SchedulerForwarding, TranslationFault> {
    let target = matched_target.target.ok_or(TranslationFault::NoTarget(call.target))?;
    let path_and_query = target.fill(matched_target, query, target_values)?;
    let mut headers = HeaderMap::new();
    for name in [CONTENT_TYPE, ACCEPT] {
        headers.insert(name, HeaderValue::from_static("application/json"));
    }
    // The scheduler must not compress the reply, because its beginning is inspected.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(SchedulerForwarding::Rewritten(RewrittenRequest {
        method: call.verb.method(),
        path_and_query,
        headers,
        body,
    }))
}

fn console_request(matched: &MatchedTarget, query: &str) -> Result<SchedulerForwarding, TranslationFault> {
    let host = query_value(query, "host_ip");
    if host.is_empty() {
        return Err(TranslationFault::NoHost);
    }
    let host: IpAddr = host.parse().map_err(|_| TranslationFault::NoHostAddress(host))?;
    Ok(SchedulerForwarding::OtherServer(OtherServer::Console {
        host,
        path_and_query: join_path("/bcsapi/v1/consoleproxy", matched.parameter("uri"), query)?,
    }))
}

fn definitions_request(
    matched: &MatchedTarget,
    query: &str,
    body: NextBody,
) -> Result<SchedulerForwarding, TranslationFault> {
    let path = format!("/apis/{DEFINITIONS_VERSION}/customresourcedefinitions");
    Ok(SchedulerForwarding::OtherServer(
        OtherServer::CustomResourceDefinitions {
            path_and_query: join_path(&path, matched.parameter("name"), query)?,
            body,
        },
    ))
}

/// Sets the `apiVersion` of a definition of custom resources. If the body is not a JSON object, it is forwarded as it
/// is, because the kube-apiserver refuses it.
fn with_definitions_version(body: &Bytes) -> NextBody {
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut definition)) => {
            definition.insert("apiVersion".to_owned(), DEFINITIONS_VERSION.into());
            NextBody::New(Value::Object(definition).to_string().into())
        }
        _ => NextBody::AsIs,
    }
}

fn join_path(path: &str, below: &str, query: &str) -> Result<PathAndQuery, TranslationFault> {
    let mut text = path.to_owned();
    for segment in below.split('/').filter(|segment| !segment.is_empty()) {
        text.push('/');
        text.extend(utf8_percent_encode(segment, &SEGMENT));
    }
    if !query.is_empty() {
        text.push('?');
        text.push_str(query);
    }
    PathAndQuery::try_from(text).map_err(|error| TranslationFault::TooLong(error.to_string()))
}

pub(crate) fn no_route_reply(status: StatusCode, methods: &[Method]) -> Response<Bytes> {
    // bcs-mesos-driver sends these two messages as plain text. This program sends them in an envelope of result, code,
    // message and data.
    let message = match status {
        StatusCode::NOT_FOUND => "404: Page Not Found",
        _ => "405: Method Not Allowed",
    };
    let mut response: Response<Bytes> = json_reply(
        status,
        json!({"result": false, "code": Code::Driver.number(), "message": message, "data": null}).to_string(),
    );
    let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if !methods.is_empty()
        && let Ok(methods) = HeaderValue::from_str(&methods.join(", "))
    {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}
