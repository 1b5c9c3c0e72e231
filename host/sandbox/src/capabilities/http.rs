//! The capability `http`: plugins send requests to origins that the stage grants.

use admittance_admission::{HttpError, HttpGrant, HttpRequest, move_if_long};

use super::{PREPARING_MESSAGE, denied_error};
use crate::{
    contract::bindings::admittance::plugin::http,
    store::{CallState, Violation},
};

/// Two parts of the error message for a refused request: the sender of the request, and the setting that can allow it.
const REFUSAL_TEXTS: (&str, &str) = ("the plugin", "`allow.http` of the stage");
const NO_HTTP: &str = "outgoing requests of plugins are not enabled on this host";

/// Converts an error of an HTTP request. Most errors become the result of the plugin's call, and the plugin can go on.
/// A few errors, such as a missing grant, become an `Err`, which ends the call of the plugin.
fn to_plugin_error(error: HttpError) -> wasmtime::Result<http::Error> {
    Ok(match error {
        HttpError::Unavailable(why) => http::Error::Unavailable(why),
        HttpError::Invalid(why) => http::Error::Invalid(why),
        HttpError::Unreachable(why) => http::Error::Unreachable(why),
        HttpError::Timeout => http::Error::Timeout,
        HttpError::TooLarge(limit) => http::Error::TooLarge(limit),
        HttpError::Denied(message) => return Err(denied_error(message)),
        HttpError::Exhausted(failure) => return Err(Violation::error(failure.kind, failure.message)),
    })
}

impl http::Host for CallState {
    async fn send(&mut self, request: http::Request) -> wasmtime::Result<Result<http::Response, http::Error>> {
        if self.preparing {
            return Ok(Err(http::Error::Unavailable(PREPARING_MESSAGE.to_owned())));
        }
        let http::Request {
            method,
            url,
            headers,
            body,
        } = request;
        let (mut request, origin) = match HttpRequest::parse(method, &url) {
            Ok(parsed) => parsed,
            Err(error) => return to_plugin_error(error).map(Err),
        };
        request.headers = headers;
        request.body = body;
        let grant = HttpGrant::find_grant(&self.grants.http, &origin, &request, REFUSAL_TEXTS).map_err(denied_error)?;
        let Some(sender) = self.sandbox.config.http.clone() else {
            return Ok(Err(http::Error::Unavailable(NO_HTTP.to_owned())));
        };
        let request_line = format!("{} {origin}{}", request.method, request.url.path());
        let answer = request
            .send(grant, &*sender, self.recorder.as_ref(), self.deadline)
            .await;
        self.log
            .log_request(&request_line, answer.as_ref().map(|answer| answer.status));
        move_if_long(answer.as_ref().map_or(0, |answer| answer.body.len())).await;
        match answer {
            Ok(answer) => Ok(Ok(http::Response {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            })),
            Err(error) => to_plugin_error(error).map(Err),
        }
    }
}
