//! Tokens checked by a server: bcs-user-manager, or a compatible one.

use std::{path::Path, time::Duration};

use admittance_net::{
    causes,
    upstream::{Connector, connector},
};
use admittance_watch::file;
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use metrics::counter;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    AccessRequest,
    answers::{Answers, Question},
};
use crate::{
    Permission,
    gateway::{config::EndpointConfig, reply::Ended},
    metric_names,
};

/// The largest response, in bytes. About 200 are usual.
const LONGEST_ANSWER: usize = 64 * 1024;
/// The resource type of the check. Servers for other resources use other types.
const CLUSTER: &str = "cluster";
const MESOS: &str = "mesos";
/// The action of a GET that writes.
const POST: &str = "POST";

/// A server that checks tokens. Lives as long as the gateway.
#[derive(Debug)]
pub(in super::super) struct Endpoint {
    config: EndpointConfig,
    client: Client<Connector, Full<Bytes>>,
    answers: Answers,
}

/// The request body. Version 1 of `permissions/verify` reads the first four fields, version 2 also the others.
#[derive(Debug, Serialize)]
struct Verify<'a> {
    user_token: &'a str,
    resource_type: &'static str,
    resource: &'a str,
    action: &'a str,
    cluster_type: &'static str,
    cluster_id: &'a str,
    request_url: &'a str,
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: Option<Verdict>,
}

/// Its message is not read: it may hold the token.
#[derive(Debug, Deserialize)]
struct Verdict {
    allowed: bool,
}

/// Why the check failed; for the log.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("the gateway's own token cannot be read from {file}: {reason}")]
    OwnToken { file: String, reason: String },
    #[error("the request failed: {0}")]
    Unreachable(String),
    #[error("it did not respond within {0:?}")]
    Late(Duration),
    #[error("it responded with status {0}")]
    Status(http::StatusCode),
    #[error("its response is not valid: {0}")]
    NoAnswer(String),
}

impl Endpoint {
    pub(super) fn new(config: EndpointConfig) -> Self {
        let connector = connector(config.tls.clone(), config.timeout);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            answers: Answers::new(config.cache),
            config,
        }
    }

    /// Check whether the holder of this token may do that. Answers are cached.
    pub(super) async fn admit(&self, token: &[u8], asked: AccessRequest<'_>) -> Result<(), Ended> {
        let text =
            std::str::from_utf8(token).map_err(|_| Ended::Unauthorized("the token is not valid UTF-8"))?;
        let action = self.action(asked);
        let body = verify(text, action, asked);
        let question = Question::new(&body);
        let (allowed, source) = match self.answers.get(&question) {
            Some(allowed) => (allowed, "cache"),
            None => match self.ask(body).await {
                Ok(allowed) => {
                    self.answers.put(question, allowed);
                    (allowed, "endpoint")
                }
                Err(reason) => {
                    counter!(metric_names::TOKEN_CHECKS, "source" => "endpoint", "result" => "unanswered")
                        .increment(1);
                    let endpoint = &self.config.url;
                    tracing::error!(%endpoint, %reason, "a token could not be checked, so the request is refused");
                    return Err(Ended::Undecided(
                        "the token could not be checked: the endpoint failed; try again later",
                    ));
                }
            },
        };
        let result = if allowed { "allowed" } else { "refused" };
        counter!(metric_names::TOKEN_CHECKS, "source" => source, "result" => result).increment(1);
        match allowed {
            true => Ok(()),
            false => Err(Ended::Forbidden(format!(
                "the token is not valid, or not allowed the action `{action}` on the cluster {}",
                asked.cluster
            ))),
        }
    }

    /// The action to check: usually the method.
    fn action<'a>(&'a self, asked: AccessRequest<'a>) -> &'a str {
        match asked.needed {
            Permission::Hooks => &self.config.hooks_action,
            // A console is opened with GET.
            Permission::Write if asked.method == Method::GET => POST,
            Permission::Read | Permission::Write => asked.method.as_str(),
        }
    }

    async fn ask(&self, body: Bytes) -> Result<bool, Unanswered> {
        let mut request = Request::new(Full::from(body));
        *request.uri_mut() = self.config.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(file) = &self.config.token_file {
            headers.insert(AUTHORIZATION, own_token(file).await?);
        }
        let answering = self.exchange(request);
        match tokio::time::timeout(self.config.timeout, answering).await {
            Ok(answer) => answer,
            Err(_) => Err(Unanswered::Late(self.config.timeout)),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<bool, Unanswered> {
        let response = self.client.request(request).await;
        let response = response.map_err(|error| Unanswered::Unreachable(causes::chain(&error)))?;
        if !response.status().is_success() {
            return Err(Unanswered::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body
            .map_err(|error| Unanswered::NoAnswer(error.to_string()))?
            .to_bytes();
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|error| Unanswered::NoAnswer(error.to_string()))?;
        let verdict = answer
            .data
            .ok_or_else(|| Unanswered::NoAnswer("there is no `data`".to_owned()))?;
        Ok(verdict.allowed)
    }

    pub(in super::super) fn url(&self) -> &Uri {
        &self.config.url
    }

    /// Reload its TLS files when they change. Never returns.
    pub(super) async fn keep_tls_fresh(&self) {
        self.config.tls.keep_fresh().await;
    }
}

fn verify(token: &str, action: &str, asked: AccessRequest<'_>) -> Bytes {
    let verify = Verify {
        user_token: token,
        resource_type: CLUSTER,
        resource: asked.cluster,
        action,
        cluster_type: MESOS,
        cluster_id: asked.cluster,
        request_url: asked.path,
    };
    json!(verify).to_string().into()
}

/// The largest token file, in bytes.
const LARGEST_TOKEN: u64 = 64 << 10;

/// The gateway's own token as a header. The file is read each time, so that a new token is used at once.
async fn own_token(path: &Path) -> Result<HeaderValue, Unanswered> {
    let unreadable = |reason: String| Unanswered::OwnToken {
        file: path.display().to_string(),
        reason,
    };
    let path = path.to_owned();
    let text = tokio::task::spawn_blocking(move || file::read_to_string(&path, LARGEST_TOKEN))
        .await
        .map_err(|error| unreadable(error.to_string()))?
        .map_err(|error| unreadable(error.to_string()))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|_| unreadable("the file does not hold a valid token".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
