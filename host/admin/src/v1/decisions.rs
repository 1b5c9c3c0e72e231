//! Serves the routes that list, show, follow and replay decisions.

use std::{convert::Infallible, time::Duration};

use admittance::{DecisionList, DecisionRecord, DecisionStream, StreamItem};
use admittance_net::limits::Permit;
use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, StreamExt, stream};
use http::request::Parts;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::json;

use crate::{
    Api,
    access::Caller,
    api::{DecisionDetails, DecisionReplays, RateList, ReplayRequest},
    config::AdminRole,
    decisions::{self, DecisionQuery, hide_values},
    error::ApiError,
    route::{
        Call, Json,
        Method::{Get, Post},
        Nothing, ReplyForm, Route, RouteContent, RouteReply,
    },
};

/// The interval at which an idle stream sends a comment, so that clients and proxies do not close the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The interval at which a stream checks whether the driver stops and whether the client may still follow.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The header in which browsers send the id of the last event when they connect again.
const LAST_EVENT_ID: &str = "last-event-id";

const EVENT_STREAM: &str = "text/event-stream";

const DEFAULT_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 3600;

pub(super) fn routes() -> Vec<Route> {
    let role = Some(AdminRole::Read);
    vec![
        Route::new(
            Get,
            role,
            "/v1/decisions",
            "listDecisions",
            "The decisions on the last requests",
            list,
        )
        .description(
            "The newest decisions come first. Clients with the role Read get the operations and paths of patches, \
                 but not the values.",
        ),
        Route::new(
            Get,
            role,
            "/v1/decisions/events",
            "followDecisions",
            "Follow decisions as they are made",
            follow,
        )
        .description(
            "The reply sends server-sent events: `decision` with a decision, `missed` with the number of decisions \
             that were not read in time, and `end` with the reason if the driver ends the stream. The id of an event \
             is the id of its decision. A client that sends the last id in `Last-Event-ID` gets the decisions since \
             then that are still in memory.",
        )
        .refusals(&[503]),
        Route::new(
            Get,
            role,
            "/v1/decisions/rates",
            "getDecisionRates",
            "How many requests passed each chain in the last time",
            rates,
        ),
        Route::new(
            Get,
            role,
            "/v1/decisions/{uid}",
            "getDecision",
            "The newest decisions on the request with a uid",
            decision,
        )
        .description("Clients with the role Admin get the objects of the request too, except those of Secrets.")
        .refusals(&[404]),
        Route::new(
            Post,
            Some(AdminRole::Admin),
            "/v1/decisions/{uid}/replay",
            "replayDecision",
            "What the live chains say of the request with a uid",
            replay,
        )
        .description(
            "The live chains are called again for the request. Nothing is forwarded or counted, and webhooks are only \
             called if the body allows it.",
        )
        .refusals(&[404, 409]),
    ]
}

async fn list(call: Call<Nothing, DecisionQuery>) -> Result<Json<DecisionList>, ApiError> {
    let role = call.role.unwrap_or(AdminRole::Read);
    decisions::list(&call.api, role, &call.query).await.map(Json)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DecisionPath {
    /// The uid of the request.
    uid: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DecisionsByUidQuery {
    /// Shows only decisions with an id smaller than this one. To continue a list, use `next` from the previous reply.
    pub(crate) before: Option<u64>,
}

async fn decision(call: Call<DecisionPath, DecisionsByUidQuery>) -> Result<Json<DecisionDetails>, ApiError> {
    let role = call.role.unwrap_or(AdminRole::Read);
    let details = decisions::get(&call.api, role, &call.path.uid, call.query.before).await;
    details.map(Json)
}

async fn replay(call: Call<DecisionPath, Nothing, Json<ReplayRequest>>) -> Result<Json<DecisionReplays>, ApiError> {
    let (uid, Json(options)) = (&call.path.uid, call.body);
    decisions::replay(&call.api, call.caller.as_ref(), uid, options)
        .await
        .map(Json)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RatesQuery {
    /// The length of the period in seconds, up to now, in which requests are counted: 1 to 3600. Default: 60.
    #[serde(default)]
    seconds: Option<u64>,
}

async fn rates(call: Call<Nothing, RatesQuery>) -> Result<Json<RateList>, ApiError> {
    let seconds = call.query.seconds.unwrap_or(DEFAULT_SECONDS);
    if !(1..=MAX_SECONDS).contains(&seconds) {
        return Err(ApiError::Malformed(format!("seconds: write 1 to {MAX_SECONDS}")));
    }
    let log = call.api.sources.host.decisions();
    let chains = log.rates(Duration::from_secs(seconds));
    Ok(Json(RateList { chains }))
}

async fn follow(call: Call<Nothing, DecisionQuery>) -> Result<DecisionEvents, ApiError> {
    let DecisionQuery {
        before, limit, after, ..
    } = call.query;
    let filter = call.query.filter()?;
    if before.is_some() || limit.is_some() {
        let message = "before and limit: only lists have them; a stream begins after a decision, `after`";
        return Err(ApiError::Malformed(message.to_owned()));
    }
    let last = match call.head.headers.get(LAST_EVENT_ID) {
        Some(value) => {
            let id = value.to_str().ok().and_then(|text| text.parse().ok());
            Some(id.ok_or_else(|| ApiError::Malformed("Last-Event-ID: it is not the id of a decision".to_owned()))?)
        }
        None => after,
    };
    let permit = decisions::follower_permit(&call.api, call.caller.unwrap_or(Caller::Loopback))?;
    Ok(DecisionEvents {
        decisions: call.api.sources.host.decisions().follow(filter, last),
        client: FollowingClient {
            role: call.role.unwrap_or(AdminRole::Read),
            head: call.head,
            api: call.api,
            _permit: permit,
        },
    })
}

struct DecisionEvents {
    decisions: DecisionStream,
    client: FollowingClient,
}

struct FollowingClient {
    api: Api,
    role: AdminRole,
    head: Parts,
    _permit: Permit<Caller>,
}

impl FollowingClient {
    /// Returns the reason if the stream must end now: the driver stops, or the client may no longer follow.
    fn end_reason(&self) -> Option<String> {
        if self.api.is_stopping() {
            return Some("the driver stops".to_owned());
        }
        let admitted = self.api.access.admit(&self.head, self.role);
        admitted.err().map(|denied| denied.to_string())
    }

    fn event(&self, followed: StreamItem) -> Event {
        let event = match followed {
            StreamItem::Decision(decision) => {
                let mut record = decision.record();
                hide_values(self.role, &mut record);
                let event = Event::default().event("decision").id(decision.id().to_string());
                event.json_data(record)
            }
            StreamItem::Missed(missed) => Event::default().event("missed").json_data(json!({ "missed": missed })),
            _ => return Event::default(),
        };
        // Serializing strings, numbers and lists does not fail.
        event.unwrap_or_default()
    }
}

impl DecisionEvents {
    /// Returns the stream of events. A decision is read when the client takes it, so a slow client delays nobody else.
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let state = Some((self.decisions, self.client, checks));
        let events = stream::unfold(state, async |state| {
            let (mut decisions, client, mut checks) = state?;
            loop {
                tokio::select! {
                    biased;
                    _ = checks.tick() => {
                        if let Some(reason) = client.end_reason() {
                            let end = Event::default().event("end").data(reason);
                            return Some((end, None));
                        }
                    }
                    followed = decisions.next() => {
                        let event = client.event(followed?);
                        return Some((event, Some((decisions, client, checks))));
                    }
                }
            }
        });
        events.map(Ok)
    }
}

impl IntoResponse for DecisionEvents {
    fn into_response(self) -> Response {
        let heartbeat = KeepAlive::new().interval(HEARTBEAT).text("heartbeat");
        Sse::new(self.into_stream()).keep_alive(heartbeat).into_response()
    }
}

impl RouteReply for DecisionEvents {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        vec![ReplyForm {
            status: 200,
            description: "The data of each event `decision` is one of these.",
            content: RouteContent {
                media_type: EVENT_STREAM,
                schema: generator.subschema_for::<DecisionRecord>(),
            },
        }]
    }
}
