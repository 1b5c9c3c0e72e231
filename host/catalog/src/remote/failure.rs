use std::time::Duration;

use admittance_admission::Moment;
use admittance_net::{
    causes::{find, root_cause},
    client::{ClientError, ClientResponse, ProxyRefusal},
    tls::TlsAdvice,
};
use http::{StatusCode, header};
use rustls::InvalidMessage;

use super::client::{CONNECT_TIMEOUT, is_absent};
use crate::{Error, NetworkConfig};

impl Error {
    pub(super) fn bad_answer(location: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::BadAnswer {
            location: location.into(),
            problem: problem.into(),
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { again_after, .. } => *again_after,
            _ => None,
        }
    }
}

const MESSAGE_LIMIT: usize = 16 << 10;

/// Returns the response if its status is a success, and otherwise an error that describes the status. The advice in the
/// error is for URLs: if a registry refuses access, the callers return another error before they call this function.
pub(super) async fn check_success(response: ClientResponse, location: &str) -> Result<ClientResponse, Error> {
    let status = response.status;
    if status.is_success() {
        return Ok(response);
    }
    let again_after = parse_retry_after(&response);
    let message = error_message(response).await;
    let location = location.to_owned();
    Err(match status {
        status if is_absent(status) => Error::NotFound { location, message },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::Unauthorized {
            location,
            credentials: "without credentials".to_owned(),
            message,
            advice:
                "modules are fetched from `https:` without credentials; keep a module that needs them in a registry"
                    .to_owned(),
        },
        _ => Error::Status {
            location,
            status: status.as_u16(),
            message,
            again_after,
        },
    })
}

/// Returns the error message in a registry's response, or the name of the status if there is no message.
pub(super) async fn error_message(mut response: ClientResponse) -> String {
    #[derive(serde::Deserialize)]
    struct Envelope {
        errors: Vec<FailureEntry>,
    }
    #[derive(serde::Deserialize)]
    struct FailureEntry {
        code: String,
        #[serde(default)]
        message: String,
    }
    let status_name = response
        .status
        .canonical_reason()
        .map_or_else(|| response.status.to_string(), str::to_owned);
    let mut body = Vec::new();
    while body.len() < MESSAGE_LIMIT {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            _ => break,
        }
    }
    let error_text = serde_json::from_slice::<Envelope>(&body)
        .ok()
        .and_then(|envelope| envelope.errors.into_iter().next())
        .map(|entry| match entry.message.as_str() {
            "" => entry.code,
            message => format!("{message} ({})", entry.code),
        });
    error_text.map_or(status_name, |text| printable(&text))
}

/// Removes control characters from a server's text and cuts it to 200 characters, for a log line.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn parse_retry_after(response: &ClientResponse) -> Option<Duration> {
    let text = response.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    text.parse().map(Duration::from_secs).ok().or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(Moment::now().0).unwrap_or_default())
    })
}

pub(super) fn transport_error(
    error: &ClientError,
    host: Option<&str>,
    location: &str,
    config: &NetworkConfig,
) -> Error {
    let location = location.to_owned();
    if let Some(tls_error) = find::<rustls::Error>(error) {
        return Error::Tls {
            location,
            problem: tls_problem(tls_error, host.unwrap_or_default(), config),
        };
    }
    if let Some(ProxyRefusal(problem)) = find(error) {
        let problem = problem.clone();
        return Error::Proxy { location, problem };
    }
    match error {
        ClientError::ConnectTimeout => Error::TooSlow {
            location,
            waited: CONNECT_TIMEOUT,
        },
        ClientError::Silent => Error::TooSlow {
            location,
            waited: config.read_timeout,
        },
        error => Error::Unreachable {
            location,
            problem: root_cause(error),
        },
    }
}

fn tls_problem(error: &rustls::Error, host: &str, config: &NetworkConfig) -> String {
    let trust = match &config.ca {
        None => "name the CA's file with `ca`".into(),
        Some(path) => format!("its CA is neither among this system's CAs nor in {}", path.display()).into(),
    };
    let advice = TlsAdvice {
        trust,
        identity: "modules are fetched without a client certificate",
        ..TlsAdvice::default()
    };
    advice.explain(error, host)
}

pub(super) fn is_without_tls(error: &ClientError) -> bool {
    match find::<rustls::Error>(error) {
        Some(error) => matches!(error, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)),
        None => false,
    }
}
