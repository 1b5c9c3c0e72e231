//! Records requests while they are answered, and sends the records to the client.

use std::{convert::Infallible, time::Duration};

use admittance::{RecordedRequest, RecordingConfig, Redaction, RequestRecording};
use admittance_definitions::Share;
use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use http::{HeaderValue, header::CONTENT_TYPE};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::{
    config::AdminRole,
    error::ApiError,
    route::{Call, Method::Get, Nothing, ReplyForm, Route, RouteContent, RouteReply},
};

/// The maximum number of simultaneous recordings. Each recording copies requests.
pub(crate) const MAX_RECORDINGS: usize = 8;

const DEFAULT_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 3600;
const DEFAULT_COUNT: usize = 1000;
const MAX_COUNT: usize = 1_000_000;

const NDJSON: &str = "application/x-ndjson";

/// The maximum number of recorded lines that wait until the client reads them.
const QUEUE_LENGTH: usize = 16;

pub(super) fn route() -> Route {
    let (role, summary) = (Some(AdminRole::Admin), "Record requests that pass chains");
    Route::new(Get, role, "/v1/requests", "recordRequests", summary, record)
        .description(
            "Streams requests as they are answered, one AdmissionReview with request and response on each line, until \
             the requested count or time is reached. Requests are skipped if the client reads too slowly. The contents \
             of Secrets are always left out.",
        )
        .refusals(&[503])
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecordQuery {
    /// The number of requests after which the recording ends: 1 to 1,000,000. Default: 1000.
    #[serde(default)]
    count: Option<usize>,
    /// The number of seconds after which the recording ends: 1 to 3600. Default: 60.
    #[serde(default)]
    seconds: Option<u64>,
    /// The share of the requests that is recorded, such as `10%`. Default: all.
    #[serde(default)]
    share: Option<String>,
    /// JSON Pointers to values that are left out of the records, with `*` for every key or index, such as
    /// `/spec/containers/*/env/*/value`. May be given more than once.
    #[serde(default)]
    redact: Vec<String>,
}

async fn record(call: Call<Nothing, RecordQuery>) -> Result<Records, ApiError> {
    let RecordQuery {
        count,
        seconds,
        share,
        redact,
    } = call.query;
    let count = check_range("count", count.unwrap_or(DEFAULT_COUNT), MAX_COUNT)?;
    let seconds = check_range("seconds", seconds.unwrap_or(DEFAULT_SECONDS), MAX_SECONDS)?;
    let share = match share {
        Some(text) => text
            .parse::<Share>()
            .map_err(|error| ApiError::Malformed(format!("share: {error}")))?,
        None => Share::default(),
    };
    let parsed: Result<Vec<Redaction>, _> = redact.iter().map(|text| text.parse()).collect();
    let redact = parsed.map_err(|error| ApiError::Malformed(format!("redact: {error}")))?;
    let permit = call.api.recordings.clone().try_acquire_owned().map_err(|_| {
        ApiError::Unavailable(format!(
            "{MAX_RECORDINGS} recordings are already running; wait until one ends"
        ))
    })?;
    if let Some(by) = call.caller {
        tracing::info!(
            target: "admittance::audit",
            %by, action = "record", count, seconds, %share,
            "{by}: record requests"
        );
    }
    let mut config = RecordingConfig::default();
    config.share = share;
    config.redact = redact;
    let recording = call.api.sources.host.record(config);
    let (lines, waiting) = mpsc::channel(QUEUE_LENGTH);
    // The recording runs in a task of its own. It thus ends after `seconds` even if the client reads no records.
    tokio::spawn(async move {
        let _permit = permit;
        let _ = tokio::time::timeout(Duration::from_secs(seconds), send_lines(recording, count, lines)).await;
    });
    Ok(Records(waiting))
}

fn check_range<T: PartialOrd + From<u8> + std::fmt::Display>(
    name: &str,
    value: T,
    max_value: T,
) -> Result<T, ApiError> {
    if value < T::from(1) || value > max_value {
        return Err(ApiError::Malformed(format!("{name}: write 1 to {max_value}")));
    }
    Ok(value)
}

async fn send_lines(recording: RequestRecording, count: usize, lines: mpsc::Sender<Bytes>) {
    let mut requests = recording.take(count);
    loop {
        let request = tokio::select! {
            request = requests.next() => request,
            () = lines.closed() => None,
        };
        let Some(line) = request.as_ref().and_then(json_line) else {
            return;
        };
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

fn json_line(request: &RecordedRequest) -> Option<Bytes> {
    let mut line = serde_json::to_vec(request).ok()?;
    line.push(b'\n');
    Some(line.into())
}

struct Records(mpsc::Receiver<Bytes>);

impl IntoResponse for Records {
    fn into_response(self) -> Response {
        let lines = stream::unfold(self.0, async |mut lines| {
            let line = lines.recv().await?;
            Some((Ok::<_, Infallible>(line), lines))
        });
        let content_type = HeaderValue::from_static(NDJSON);
        ([(CONTENT_TYPE, content_type)], Body::from_stream(lines)).into_response()
    }
}

impl RouteReply for Records {
    fn forms(generator: &mut SchemaGenerator) -> Vec<ReplyForm> {
        vec![ReplyForm {
            status: 200,
            description: "Each line is one of these.",
            content: RouteContent {
                media_type: NDJSON,
                schema: generator.subschema_for::<RecordedRequest>(),
            },
        }]
    }
}
