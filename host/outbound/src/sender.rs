use std::{borrow::Cow, error::Error, time::Instant};

use admittance_admission::{
    Deadline, Failure, HttpError, HttpGrant, HttpOrigin, HttpRequest, HttpResponse, HttpSender,
};
use admittance_net::{
    bearer::read_header,
    causes::{chain, find},
    tls::{TlsAdvice, TlsError},
    trace::SPANS,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header, request, response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Body as _;
use tracing::{Instrument, debug_span, field::Empty};

use crate::{
    Credential, OutboundConfig,
    address::{self, NotPublic},
    cache::{CacheLookup, ResponseCache, ResponseCacheKey},
    client::{Pool, Pools},
    metrics,
    request::parse_request,
};

const ADVICE: TlsAdvice<'static> = TlsAdvice {
    trust: Cow::Borrowed("add the PEM of the CA that signed it to `pluginHttp.ca`"),
    name: "",
    identity: "requests of plugins have no client certificate",
    plain: "check that it is not an http port",
};

/// The maximum size of a file with a credential, in bytes.
const CREDENTIAL_LIMIT: usize = 8 << 10;

/// Sends the requests of plugins. Lives as long as the program.
#[derive(Debug)]
pub struct Outbound {
    config: OutboundConfig,
    pools: Pools,
    cache: Option<ResponseCache>,
}

#[derive(Debug)]
pub(crate) struct OutboundAnswer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    pub(crate) is_cached: bool,
}

impl OutboundAnswer {
    pub(crate) fn new(head: &response::Parts, body: Bytes, is_cached: bool) -> Self {
        Self {
            status: head.status,
            headers: head.headers.clone(),
            body,
            is_cached,
        }
    }
}

impl Outbound {
    /// Creates a sender. No connection is opened before the first request.
    ///
    /// # Errors
    ///
    /// Fails if the file of CAs cannot be used.
    pub fn new(config: OutboundConfig) -> Result<Self, TlsError> {
        Ok(Self {
            pools: Pools::new(&config)?,
            cache: ResponseCache::new(config.cache_size),
            config,
        })
    }

    async fn answer(&self, grant: &HttpGrant, request: HttpRequest) -> Result<OutboundAnswer, HttpError> {
        let credential = self.credential(grant)?;
        let (parts, body) = parse_request(request, credential.map(Credential::header_name).as_ref())?;
        let networks = address::allowed_networks(grant);
        let key = ResponseCacheKey::new(networks.clone(), grant.credential.clone(), &parts);
        let cache = self.cache.as_ref().filter(|_| ResponseCache::may_answer(&parts));
        let mut outgoing_parts = parts.clone();
        let mut stored = None;
        match cache.map_or(CacheLookup::Send, |cache| cache.look_up(&key, &parts)) {
            CacheLookup::Answer(answer) => return Ok(answer),
            CacheLookup::Revalidate(cached_response, headers) => {
                outgoing_parts.headers = headers;
                stored = Some(cached_response);
            }
            CacheLookup::Send => {}
        }
        if let Some(credential) = credential {
            let value = read_credential(credential, grant).await?;
            outgoing_parts.headers.insert(credential.header_name(), value);
        }
        let pool = self.pools.pool_for(networks);
        let changes = self.cache.as_ref().filter(|_| !parts.method.is_safe());
        // A request such as a POST may change what the server returns for this URI, so the cached responses for the URI
        // are removed before the request is sent. While the server handles the POST, a concurrent GET may put an old
        // response into the cache. So the cached responses are removed again after the server has answered the POST.
        if let Some(cache) = changes {
            cache.invalidate(&parts.uri);
        }
        let (head, body) = self.exchange(&pool, grant, outgoing_parts, body).await?;
        if let Some(cache) = changes {
            cache.invalidate(&parts.uri);
        }
        let Some(cache) = cache else {
            return Ok(OutboundAnswer::new(&head, body, false));
        };
        match stored {
            Some(stored) if head.status == StatusCode::NOT_MODIFIED => cache
                .answer_after_validation(key, &stored, &parts, &head)
                .ok_or_else(|| {
                    let origin = &grant.origin;
                    HttpError::Unreachable(format!("{origin} answered {} about another version", head.status))
                }),
            _ => {
                cache.store(key, &parts, &head, &body);
                Ok(OutboundAnswer::new(&head, body, false))
            }
        }
    }

    async fn exchange(
        &self,
        pool: &Pool,
        grant: &HttpGrant,
        parts: request::Parts,
        body: Bytes,
    ) -> Result<(response::Parts, Bytes), HttpError> {
        let host = parts.uri.host().unwrap_or_default().to_owned();
        let broken = |error: &(dyn Error + 'static)| no_answer(error, &grant.origin, &host);
        let request = Request::from_parts(parts, Full::new(body));
        let response = pool.request(request).await.map_err(|error| broken(&error))?;
        let (head, body) = response.into_parts();
        let limit = self.config.response_limit;
        let too_large = || HttpError::TooLarge(limit as u64);
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large());
        }
        match Limited::new(body, limit).collect().await {
            Ok(body) => Ok((head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(broken(&*error)),
        }
    }

    /// Returns the credential that the grant names. Fails if the grant's origin must not get this credential.
    fn credential(&self, grant: &HttpGrant) -> Result<Option<&Credential>, HttpError> {
        let Some(name) = &grant.credential else {
            return Ok(None);
        };
        let origin = &grant.origin;
        let configured_credential = self.config.credentials.get(name);
        match configured_credential {
            Some(credential) if credential.origins.contains(origin) => Ok(configured_credential),
            Some(_) => Err(HttpError::Denied(format!(
                "the credential `{name}` of `allow.http` is not for `{origin}`; add `{origin}` to \
                 `pluginHttp.credentials.{name}.origins` of the configuration"
            ))),
            None => Err(HttpError::Denied(format!(
                "the configuration has no credential `{name}`, which `allow.http` names for `{origin}`; add \
                 `pluginHttp.credentials.{name}`"
            ))),
        }
    }
}

impl Credential {
    fn header_name(&self) -> HeaderName {
        self.header.clone().unwrap_or(header::AUTHORIZATION)
    }
}

/// Reads the secret from the credential's file, and returns the value of the header that contains the secret. If that
/// fails, the log says why, but the plugin only gets a general error.
async fn read_credential(credential: &Credential, grant: &HttpGrant) -> Result<HeaderValue, HttpError> {
    let unusable = |reason: &dyn std::fmt::Display| {
        let (file, origin) = (credential.file.display(), &grant.origin);
        tracing::warn!(%file, %origin, "a credential for requests of plugins cannot be used: {reason}");
        HttpError::Unavailable(format!(
            "the host's credential for {origin} cannot be used; its log says why"
        ))
    };
    let file = credential.file.clone();
    let scheme = if credential.header.is_some() { "" } else { "Bearer " };
    let reading = tokio::task::spawn_blocking(move || read_header(&file, CREDENTIAL_LIMIT, scheme));
    let value = reading.await.map_err(|error| unusable(&error))?;
    value.map_err(|reason| unusable(&reason))
}

fn no_answer(error: &(dyn Error + 'static), origin: &HttpOrigin, host: &str) -> HttpError {
    if let Some(refused) = find::<NotPublic>(error) {
        return HttpError::Denied(format!("the plugin sends a request to `{origin}`: {refused}"));
    }
    if let Some(exhausted) = find(error).and_then(Failure::of_exhaustion) {
        return HttpError::Exhausted(exhausted);
    }
    let reason = match find::<rustls::Error>(error) {
        Some(error) => format!("no TLS connection: {}", ADVICE.explain(error, host)),
        None => chain(error),
    };
    HttpError::Unreachable(format!("{origin}: {reason}"))
}

#[async_trait]
impl HttpSender for Outbound {
    async fn send(
        &self,
        grant: &HttpGrant,
        request: HttpRequest,
        deadline: Deadline,
    ) -> Result<HttpResponse, HttpError> {
        let started = Instant::now();
        let span = debug_span!(
            target: SPANS,
            "http",
            otel.name = "plugin http",
            otel.kind = "client",
            otel.status_code = Empty,
            server.address = %grant.origin,
            http.response.status_code = Empty,
            admittance.cached = Empty,
        );
        let answer = self.answer(grant, request).instrument(span.clone());
        let answer = tokio::time::timeout_at(deadline.instant(), answer)
            .await
            .unwrap_or(Err(HttpError::Timeout));
        match &answer {
            Ok(answer) => {
                span.record("http.response.status_code", answer.status.as_u16());
                span.record("admittance.cached", answer.is_cached);
            }
            Err(_) => {
                span.record("otel.status_code", "ERROR");
            }
        }
        metrics::record_request(&grant.origin, &answer, started.elapsed());
        let answer = answer?;
        let mut response = HttpResponse::new(answer.status.as_u16(), answer.body.into());
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = answer.headers.iter();
        response.headers = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(response)
    }
}
