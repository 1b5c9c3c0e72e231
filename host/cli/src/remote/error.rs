//! Explains errors from requests to the admin API.

use std::{borrow::Cow, fmt};

use admittance_admin::api::ErrorReply;
use admittance_net::{
    causes::{find, root_cause},
    client::ClientError,
    tls::{TlsAdvice, TlsError},
};
use http::StatusCode;

use super::connection::ServerUrl;
use crate::output::sanitize_line;

const ADVICE: TlsAdvice<'static> = TlsAdvice {
    trust: Cow::Borrowed("give the CA that signed it with --ca"),
    name: "or give a name that is in it with --server",
    identity: "give one with --certificate and --key",
    plain: "write http:// in place of https://",
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error(
        "the driver cannot be reached at {server}: {problem}; is the driver running, with `admin: {{ address: ... }}` in its \
         configuration? Give its address with --server or ADMITTANCE_SERVER"
    )]
    Unreachable { server: String, problem: String },
    #[error("no TLS connection to {server}: {problem}")]
    Tls { server: String, problem: String },
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("the connection to {server} was lost: {problem}")]
    Broken { server: String, problem: String },
    #[error("{server} did not reply in time; is it the admin port?")]
    Timeout { server: String },
    #[error(
        "{server}: {message}; give a token with --token-file or ADMITTANCE_TOKEN, or a certificate with --certificate \
         and --key"
    )]
    Unauthenticated { server: String, message: String },
    #[error("{server} does not permit it: {message}")]
    Forbidden { server: String, message: String },
    #[error("{message}{}", mistake_lines(.mistakes))]
    Refused { message: String, mistakes: Vec<String> },
    #[error(
        "{server} is not an admin port of this version: {problem}; give its address with --server or ADMITTANCE_SERVER"
    )]
    NotAdminPort { server: String, problem: String },
    #[error("{0} does not contain a valid token: write one on one line, without spaces")]
    NoToken(String),
    #[error("the token would be sent to {0} unencrypted; write https:// in place of http://")]
    TokenInTheClear(String),
    #[error("{0}")]
    File(String),
}

impl RemoteError {
    pub(super) fn from_transport_error(error: &ClientError, to: &ServerUrl) -> Self {
        let server = to.to_string();
        if let Some(tls_error) = find(error) {
            let problem = sanitize_line(&ADVICE.explain(tls_error, to.host()));
            return Self::Tls { server, problem };
        }
        let problem = sanitize_line(&root_cause(error));
        match error {
            ClientError::Silent => Self::Timeout { server },
            ClientError::Connect(_) | ClientError::ConnectTimeout => Self::Unreachable { server, problem },
            _ if !to.is_tls() && problem.contains("invalid HTTP") => Self::tls_missing(server, &problem),
            _ => Self::Broken { server, problem },
        }
    }

    fn tls_missing(server: String, problem: &str) -> Self {
        let problem = format!("{problem}; it may require TLS: write https:// in place of http://");
        Self::Tls { server, problem }
    }

    pub(super) fn from_reply(server: &str, status: StatusCode, body: &[u8]) -> Self {
        let server = server.to_owned();
        let Ok(reply) = serde_json::from_slice::<ErrorReply>(body) else {
            let problem = format!("it replied {status}");
            // A server that requires TLS answers a request without TLS with status 400.
            return if status == StatusCode::BAD_REQUEST && server.starts_with("http://") {
                Self::tls_missing(server, &problem)
            } else {
                Self::NotAdminPort { server, problem }
            };
        };
        let message = sanitize_line(&reply.error.message);
        match status {
            StatusCode::UNAUTHORIZED => Self::Unauthenticated { server, message },
            StatusCode::FORBIDDEN => Self::Forbidden { server, message },
            _ => Self::Refused {
                message,
                mistakes: reply.error.mistakes.iter().map(|text| sanitize_line(text)).collect(),
            },
        }
    }
}

fn mistake_lines(mistakes: &[String]) -> impl fmt::Display + '_ {
    fmt::from_fn(|f| mistakes.iter().try_for_each(|mistake| write!(f, "\n  {mistake}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reply_of_the_driver_is_explained_with_a_fix() {
        let refusal = r#"{"error":{"message":"no\u001b","mistakes":["a.yaml:1: x","b"]}}"#;
        for (status, body, expected) in [
            (
                401,
                refusal,
                "http://a: no ; give a token with --token-file or ADMITTANCE_TOKEN, or a certificate with \
                 --certificate and --key",
            ),
            (403, refusal, "http://a does not permit it: no "),
            (422, refusal, "no \n  a.yaml:1: x\n  b"),
            (
                400,
                "this port speaks TLS",
                "no TLS connection to http://a: it replied 400 Bad Request; it may require TLS: write https:// in \
                 place of http://",
            ),
            (404, r#"{"error":{"message":"gone"}}"#, "gone"),
            (
                404,
                "<html>",
                "http://a is not an admin port of this version: it replied 404 Not Found; give its address with \
                 --server or ADMITTANCE_SERVER",
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = RemoteError::from_reply("http://a", status, body.as_bytes());
            assert_eq!(error.to_string(), expected);
        }
    }
}
