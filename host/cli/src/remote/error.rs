//! Why a driver does not do what it is asked.

use std::{borrow::Cow, fmt, path::Path};

use admittance_admin::api::ErrorReply;
use admittance_net::{
    causes::{find, root_cause},
    tls::{TlsAdvice, TlsError},
};
use reqwest::StatusCode;
use url::Url;

use crate::output::harmless;

const ADVICE: TlsAdvice<'static> = TlsAdvice {
    trust: Cow::Borrowed("name the authority that signed it with --ca"),
    name: "or give a name that is in it with --server",
    identity: "show one with --certificate and --key",
    plain: "write http:// in place of https://",
};

/// Why a request to the admin API failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error(
        "the driver cannot be reached at {server}: {problem}; is the driver running, with `admin: {{ address: ... }}` in its \
         configuration? Give its address with --server or ADMITTANCE_SERVER"
    )]
    Unreachable { server: String, problem: String },
    #[error("no TLS connection with {server}: {problem}")]
    Tls { server: String, problem: String },
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("the connection with {server} broke off: {problem}")]
    Broken { server: String, problem: String },
    #[error("{server} gave no answer in time; is it the admin port?")]
    Slow { server: String },
    #[error(
        "{server} does not know who you are: {message}; give a token with --token-file or ADMITTANCE_TOKEN, or a \
         certificate with --certificate and --key"
    )]
    Unknown { server: String, message: String },
    #[error("{server} does not let you: {message}")]
    Forbidden { server: String, message: String },
    #[error("{message}{}", lines(.mistakes))]
    Refused { message: String, mistakes: Vec<String> },
    #[error(
        "what answers at {server} is no admin port of this version: {problem}; give its address with --server or \
         ADMITTANCE_SERVER"
    )]
    Stranger { server: String, problem: String },
    #[error("{0} holds no token: write one on one line, without spaces")]
    NoToken(String),
    #[error("the token would be sent to {0} for everybody to read; write https:// in place of http://")]
    TokenInTheClear(String),
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
    #[error("no connection can be made: {0}")]
    Client(String),
}

impl RemoteError {
    pub(super) fn wrong(path: &Path, problem: &dyn fmt::Display) -> Self {
        Self::File {
            path: path.display().to_string(),
            problem: problem.to_string(),
        }
    }

    /// A request that was not answered.
    pub(super) fn of_transport(error: &reqwest::Error, server: &str, is_tls: bool) -> Self {
        let server = server.to_owned();
        if let Some(found) = find(error) {
            let host = error.url().and_then(Url::host_str).unwrap_or_default();
            let problem = harmless(&ADVICE.explain(found, host));
            return Self::Tls { server, problem };
        }
        let problem = harmless(&root_cause(error));
        if error.is_timeout() && !error.is_connect() {
            return Self::Slow { server };
        }
        if error.is_connect() {
            return Self::Unreachable { server, problem };
        }
        if !is_tls && problem.contains("invalid HTTP") {
            return Self::Tls {
                server,
                problem: format!("{problem}; it may want TLS: write https:// in place of http://"),
            };
        }
        Self::Broken { server, problem }
    }

    /// An answer that is not the one that was wanted.
    pub(super) fn of_answer(server: &str, status: StatusCode, body: &[u8]) -> Self {
        let server = server.to_owned();
        let Ok(reply) = serde_json::from_slice::<ErrorReply>(body) else {
            return Self::Stranger {
                server,
                problem: format!("it answers {status}"),
            };
        };
        let message = harmless(&reply.error.message);
        match status {
            StatusCode::UNAUTHORIZED => Self::Unknown { server, message },
            StatusCode::FORBIDDEN => Self::Forbidden { server, message },
            _ => Self::Refused {
                message,
                mistakes: reply
                    .error
                    .mistakes
                    .iter()
                    .map(|mistake| harmless(mistake))
                    .collect(),
            },
        }
    }
}

fn lines(mistakes: &[String]) -> impl fmt::Display + '_ {
    fmt::from_fn(|f| mistakes.iter().try_for_each(|mistake| write!(f, "\n  {mistake}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_were_not_wanted() {
        let refusal = r#"{"error":{"message":"no\u001b","mistakes":["a.yaml:1: x","b"]}}"#;
        for (status, body, expected) in [
            (
                401,
                refusal,
                "http://a does not know who you are: no ; give a token with --token-file or ADMITTANCE_TOKEN, or \
                 a certificate with --certificate and --key",
            ),
            (403, refusal, "http://a does not let you: no "),
            (422, refusal, "no \n  a.yaml:1: x\n  b"),
            (404, r#"{"error":{"message":"gone"}}"#, "gone"),
            (
                404,
                "<html>",
                "what answers at http://a is no admin port of this version: it answers 404 Not Found; give its \
                 address with --server or ADMITTANCE_SERVER",
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = RemoteError::of_answer("http://a", status, body.as_bytes());
            assert_eq!(error.to_string(), expected);
        }
    }
}
