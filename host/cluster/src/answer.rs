//! Requests to a path of the API server, whose answer is returned as bytes without being parsed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyDataStream, BodyExt, LengthLimitError, Limited};
use serde_json::Value as Json;
use tokio_util::{
    codec::{FramedRead, LinesCodec},
    io::StreamReader,
};

use crate::{Cluster, ForwardError};

const BODY_LIMIT: usize = 32 << 20;

const MAX_ATTEMPTS: u32 = 6;

/// The pause before a request is sent again, unless the API server names one.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServerAnswer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// The reason why a request got no usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    #[error(transparent)]
    NotSent(#[from] ForwardError),
    #[error("{0:?} is no path of the API server")]
    Path(String),
    #[error("{path}: the answer is larger than {} MiB", BODY_LIMIT >> 20)]
    TooLarge { path: String },
    #[error("{path}: the answer broke off: {reason}")]
    Incomplete { path: String, reason: String },
    #[error("{path}: the API server answered {status}: {message}")]
    Status {
        path: String,
        status: StatusCode,
        message: String,
    },
    #[error("{path}: the API server answered something else: {reason}")]
    Content { path: String, reason: String },
}

impl Cluster {
    /// Sends a GET, and repeats it while the API server is overloaded. An answer with an error status is returned too.
    pub async fn read(&self, path: &str) -> Result<ApiServerAnswer, AnswerError> {
        self.send(Method::GET, path, None).await
    }

    /// Sends a request; `body` consists of a content type and the bytes. The request must be safe to repeat, because it
    /// is sent again while the API server is overloaded. An answer with an error status is returned like any other.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<ApiServerAnswer, AnswerError> {
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| AnswerError::Path(path.to_owned()))?;
        if let Some((content_type, body)) = body {
            let content_type_header = HeaderValue::from_static(content_type);
            request.headers_mut().insert(CONTENT_TYPE, content_type_header);
            *request.body_mut() = body;
        }
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let mut attempt = 1;
        loop {
            let response = self.forward(request.clone()).await?;
            let status = response.status();
            let is_overloaded = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            if is_overloaded && attempt < MAX_ATTEMPTS {
                tokio::time::sleep(retry_pause(response.headers())).await;
                attempt += 1;
                continue;
            }
            let collected_body = Limited::new(response.into_body(), BODY_LIMIT).collect().await;
            let body = collected_body.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    AnswerError::TooLarge { path: path.to_owned() }
                } else {
                    AnswerError::Incomplete {
                        path: path.to_owned(),
                        reason: error.to_string(),
                    }
                }
            })?;
            return Ok(ApiServerAnswer {
                status,
                body: body.to_bytes(),
            });
        }
    }

    /// Sends a GET, and returns the lines of the answer as they arrive.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not answer, or answers with an error status. If the answer breaks off
    /// later, the returned lines end with an error.
    pub async fn lines(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<String, AnswerError>> + Send + Unpin + use<>, AnswerError> {
        let request = Request::get(path)
            .body(Bytes::new())
            .map_err(|_| AnswerError::Path(path.to_owned()))?;
        let response = self.forward(request).await?;
        let path = path.to_owned();
        if !response.status().is_success() {
            let status = response.status();
            let collected_body = Limited::new(response.into_body(), BODY_LIMIT).collect().await;
            let body = collected_body.map(|body| body.to_bytes()).unwrap_or_default();
            return Err(ApiServerAnswer { status, body }.error(&path));
        }
        let body = BodyDataStream::new(response.into_body()).map_err(std::io::Error::other);
        let lines = FramedRead::new(
            StreamReader::new(Box::pin(body)),
            LinesCodec::new_with_max_length(BODY_LIMIT),
        );
        Ok(lines.map(move |line| {
            line.map_err(|error| AnswerError::Incomplete {
                path: path.clone(),
                reason: error.to_string(),
            })
        }))
    }
}

fn retry_pause(headers: &HeaderMap) -> Duration {
    let value = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = value.and_then(|text| text.trim().parse().ok());
    seconds.map_or(DEFAULT_PAUSE, Duration::from_secs).min(MAX_PAUSE)
}

impl ApiServerAnswer {
    /// Returns the body of a successful answer; `None` if the status is 404.
    pub fn body_unless_missing(self, path: &str) -> Result<Option<Bytes>, AnswerError> {
        match self.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.body)),
            _ => Err(self.error(path)),
        }
    }

    pub fn error(&self, path: &str) -> AnswerError {
        let answer: Json = serde_json::from_slice(&self.body).unwrap_or_default();
        let message = answer.get("message").and_then(Json::as_str).unwrap_or_default();
        AnswerError::Status {
            path: path.to_owned(),
            status: self.status,
            message: message.to_owned(),
        }
    }
}
