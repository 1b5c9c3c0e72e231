//! Lets a server check tokens and permissions: bcs-user-manager, or a compatible server.

use std::{path::Path, time::Duration};

use admittance_bcs::routes::Permission;
use admittance_net::{
    causes,
    upstream::{UpstreamConnector, new_connector},
};
use admittance_watch::file;
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::Deserialize;
use serde_json::json;

use super::{
    AccessRequest,
    cache::{AnswerCache, CacheKey},
    count_check,
};
use crate::{config::EndpointConfig, error::GatewayError};

/// The largest response of the server, in bytes. Usual responses have about 200 bytes.
const MAX_RESPONSE: usize = 64 * 1024;

#[derive(Debug)]
pub(in super::super) struct TokenEndpoint {
    config: EndpointConfig,
    client: Client<UpstreamConnector, Full<Bytes>>,
    cache: AnswerCache,
}

#[derive(Debug, Deserialize)]
struct TokenCheckAnswer {
    data: Option<TokenVerdict>,
}

/// The decision of the server. Its field `message` is not read, because it may contain the token.
#[derive(Debug, Deserialize)]
struct TokenVerdict {
    allowed: bool,
}

#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error("the gateway's own token cannot be read from {file}: {reason}")]
    OwnToken { file: String, reason: String },
    #[error("the request failed: {0}")]
    Unreachable(String),
    #[error("it did not respond within {0:?}")]
    Timeout(Duration),
    #[error("it responded with status {0}")]
    Status(http::StatusCode),
    #[error("its response is not valid: {0}")]
    InvalidResponse(String),
}

impl TokenEndpoint {
    pub(super) fn new(config: EndpointConfig) -> Self {
        let connector = new_connector(config.tls.clone(), config.timeout);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            cache: AnswerCache::new(config.cache),
            config,
        }
    }

    /// Checks at the server that the holder of this token may send this request. The server's answers are cached.
    pub(super) async fn admit(&self, token: &[u8], access: AccessRequest<'_>) -> Result<(), GatewayError> {
        let text =
            std::str::from_utf8(token).map_err(|_| GatewayError::Unauthorized("the token is not valid UTF-8"))?;
        let action = self.action_for(access);
        let body = verification_body(text, action, access);
        let key = CacheKey::new(&body);
        let (allowed, source) = match self.cache.get(&key) {
            Some(allowed) => (allowed, "cache"),
            None => match self.verify(body).await {
                Ok(allowed) => {
                    self.cache.put(key, allowed);
                    (allowed, "endpoint")
                }
                Err(reason) => {
                    count_check("endpoint", "unanswered");
                    let endpoint = &self.config.url;
                    tracing::error!(%endpoint, %reason, "a token could not be checked, so the request is refused");
                    return Err(GatewayError::AuthUnavailable(
                        "the token could not be checked: the endpoint failed; try again later",
                    ));
                }
            },
        };
        let result = if allowed { "allowed" } else { "refused" };
        count_check(source, result);
        if allowed {
            Ok(())
        } else {
            Err(GatewayError::Forbidden(format!(
                "the token is not valid, or not allowed the action `{action}` on the cluster {}",
                access.cluster
            )))
        }
    }

    fn action_for<'a>(&'a self, access: AccessRequest<'a>) -> &'a str {
        match access.required_permission {
            Permission::Hooks => &self.config.hooks_action,
            // A GET request needs `Write` only if it opens a console. This is more than reading, so the server is asked
            // whether the user may send a POST.
            Permission::Write if access.method == Method::GET => "POST",
            Permission::Read | Permission::Write => access.method.as_str(),
        }
    }

    async fn verify(&self, body: Bytes) -> Result<bool, VerifyError> {
        let mut request = Request::new(Full::from(body));
        *request.uri_mut() = self.config.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(file) = &self.config.token_file {
            headers.insert(AUTHORIZATION, own_token(file).await?);
        }
        match tokio::time::timeout(self.config.timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(VerifyError::Timeout(self.config.timeout)),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<bool, VerifyError> {
        let outcome = self.client.request(request).await;
        let response = outcome.map_err(|error| VerifyError::Unreachable(causes::chain(&error)))?;
        if !response.status().is_success() {
            return Err(VerifyError::Status(response.status()));
        }
        let body_outcome = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        let body = body_outcome
            .map_err(|error| VerifyError::InvalidResponse(error.to_string()))?
            .to_bytes();
        let answer: TokenCheckAnswer =
            serde_json::from_slice(&body).map_err(|error| VerifyError::InvalidResponse(error.to_string()))?;
        let verdict = answer
            .data
            .ok_or_else(|| VerifyError::InvalidResponse("there is no `data`".to_owned()))?;
        Ok(verdict.allowed)
    }

    pub(in super::super) fn url(&self) -> &Uri {
        &self.config.url
    }

    pub(super) async fn keep_tls_fresh(&self) {
        self.config.tls.keep_fresh().await;
    }
}

/// Returns the body of a check. Servers with version 1 of `permissions/verify` read only the first four fields of the
/// body, and servers with version 2 read all fields.
fn verification_body(token: &str, action: &str, access: AccessRequest<'_>) -> Bytes {
    let body = json!({
        "user_token": token,
        // Some servers also decide about resources that are not clusters. This member tells such a server that
        // `resource` is a cluster.
        "resource_type": "cluster",
        "resource": access.cluster,
        "action": action,
        "cluster_type": "mesos",
        "cluster_id": access.cluster,
        "request_url": access.path,
    });
    body.to_string().into()
}

const MAX_TOKEN_FILE: u64 = 64 << 10;

/// Returns the gateway's own token as a header. The file is read each time, so that a new token is used at once.
async fn own_token(path: &Path) -> Result<HeaderValue, VerifyError> {
    let unreadable = |reason: String| VerifyError::OwnToken {
        file: path.display().to_string(),
        reason,
    };
    let path = path.to_owned();
    let text = tokio::task::spawn_blocking(move || file::read_to_string(&path, MAX_TOKEN_FILE))
        .await
        .map_err(|error| unreadable(error.to_string()))?
        .map_err(|error| unreadable(error.to_string()))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|_| unreadable("the file does not hold a valid token".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
