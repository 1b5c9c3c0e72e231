//! The capability `http`: plugins send requests to origins that their stage grants.

use admittance_admission::{Deadline, HttpAnswer, HttpError, HttpGrant, HttpOrigin, HttpRequest, leave_for};
use url::Url;

use super::{PREPARING, denied};
use crate::{
    contract::bindings::admittance::plugin::http,
    store::{CallState, Violation},
};

const NO_HTTP: &str = "outgoing requests of plugins are not enabled on this host";

const URL_MAX: usize = 16 << 10;

/// The share of a call's remaining time that one HTTP request may take.
const TIME_FOR_REQUESTS: f64 = 0.9;

/// Converts an error to the error that the plugin gets instead of a response. The outer error ends its call.
fn no_response(error: HttpError) -> wasmtime::Result<http::Error> {
    Ok(match error {
        HttpError::Unavailable(why) => http::Error::Unavailable(why),
        HttpError::Invalid(why) => http::Error::Invalid(why),
        HttpError::Unreachable(why) => http::Error::Unreachable(why),
        HttpError::Timeout => http::Error::Timeout,
        HttpError::TooLarge(limit) => http::Error::TooLarge(limit),
        HttpError::Denied(message) => return Err(denied(message)),
        HttpError::Exhausted(failure) => return Err(Violation::error(failure.kind, failure.message)),
    })
}

fn address(text: &str) -> Result<(Url, HttpOrigin), http::Error> {
    if text.len() > URL_MAX {
        return Err(http::Error::Invalid(format!(
            "the URL has {} bytes; the limit is {URL_MAX}",
            text.len()
        )));
    }
    let invalid = |why: &str| http::Error::Invalid(format!("`{text}` {why}"));
    let url = Url::parse(text).map_err(|error| invalid(&format!("is not a valid URL: {error}")))?;
    let origin = HttpOrigin::of(&url)
        .ok_or_else(|| invalid("is neither an https URL, nor an http URL of a loopback address"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(http::Error::Invalid(
            "the URL has a user name or a password".to_owned(),
        ));
    }
    if url.fragment().is_some() {
        return Err(invalid("has a fragment"));
    }
    Ok((url, origin))
}

impl http::Host for CallState {
    async fn send(
        &mut self,
        request: http::Request,
    ) -> wasmtime::Result<Result<http::Response, http::Error>> {
        if self.preparing {
            return Ok(Err(http::Error::Unavailable(PREPARING.to_owned())));
        }
        let (url, origin) = match address(&request.url) {
            Ok(address) => address,
            Err(error) => return Ok(Err(error)),
        };
        let http::Request {
            method,
            headers,
            body,
            ..
        } = request;
        let mut request = HttpRequest::new(method, url);
        request.headers = headers;
        request.body = body;
        let grant = HttpGrant::of(&self.grants.http, &origin, &request).map_err(denied)?;
        let Some(sender) = self.sandbox.config.http.clone() else {
            return Ok(Err(http::Error::Unavailable(NO_HTTP.to_owned())));
        };
        let sent = format!("{} {origin}{}", request.method, request.url.path());
        let taped = self
            .tape
            .clone()
            .map(|tape| (tape, request.method.clone(), request.url.clone()));
        // The rest of the time is for the plugin's own answer to an error.
        let deadline = Deadline::after(self.deadline.remaining().mul_f64(TIME_FOR_REQUESTS));
        let answer = sender.send(grant, request, deadline);
        let answer = tokio::time::timeout_at(deadline.instant(), answer)
            .await
            .unwrap_or(Err(HttpError::Timeout));
        if let Some((tape, method, url)) = taped {
            tape.http(HttpAnswer::recorded(&method, &url, &answer));
        }
        self.log.sent(&sent, answer.as_ref().map(|answer| answer.status));
        leave_for(answer.as_ref().map_or(0, |answer| answer.body.len())).await;
        match answer {
            Ok(answer) => Ok(Ok(http::Response {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            })),
            Err(error) => no_response(error).map(Err),
        }
    }
}
