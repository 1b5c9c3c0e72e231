//! Opens the WebSockets of tunnels for agents and gateways, with pauses between attempts.

use std::time::Duration;

use admittance_admission::shortened;
use admittance_net::{Backoff, causes, upstream::UpstreamConnector};
use http::{
    HeaderMap, HeaderValue, StatusCode, Uri,
    header::{HOST, SEC_WEBSOCKET_KEY},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as WsError, client::IntoClientRequest},
};
use tower::ServiceExt;

use super::websocket_config;

/// The timeout for connecting to a gateway, and for its reply.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between the first and the second attempt. Later pauses grow up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(3);

/// The reason why the WebSocket of a tunnel could not be opened, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    #[error("the server replied {0}: {1}")]
    Refused(StatusCode, String),
    #[error("the server did not reply within {TIMEOUT:?}")]
    Timeout,
    #[error("the register token, the ID of the cluster or the credentials cannot be sent in a header")]
    Header,
}

/// Opens a WebSocket whose messages have at most `largest_message` bytes. Returns it with the headers of the server's
/// reply.
pub(crate) async fn open_websocket(
    connector: &UpstreamConnector,
    uri: Uri,
    key: &str,
    headers: Vec<(&'static str, String)>,
    largest: usize,
) -> Result<
    (
        WebSocketStream<impl AsyncRead + AsyncWrite + Send + Unpin + use<>>,
        HeaderMap,
    ),
    ConnectError,
> {
    let websocket = uri.to_string().replacen("http", "ws", 1);
    let mut request = websocket.into_client_request().map_err(|_| ConnectError::Header)?;
    request.headers_mut().insert(SEC_WEBSOCKET_KEY, header_value(key)?);
    for (name, value) in headers {
        request.headers_mut().insert(name, header_value(&value)?);
    }
    if let Some(authority) = uri.authority() {
        request.headers_mut().insert(HOST, header_value(authority.as_str())?);
    }
    let connected = connector.clone().oneshot(uri).await;
    let stream = connected.map_err(|error| ConnectError::Unreachable(causes::chain(&*error)))?;
    let config = Some(websocket_config(largest));
    let opening = client_async_with_config(request, TokioIo::new(stream), config);
    let opened = tokio::time::timeout(TIMEOUT, opening)
        .await
        .map_err(|_| ConnectError::Timeout)?;
    let (socket, reply) = opened.map_err(|error| match error {
        WsError::Http(reply) => {
            let text = reply.body().clone().unwrap_or_default();
            ConnectError::Refused(reply.status(), excerpt(&text))
        }
        error => ConnectError::Unreachable(causes::chain(&error)),
    })?;
    Ok((socket, reply.into_parts().0.headers))
}

pub(crate) fn uri_at_path(server: &Uri, path: &str) -> Result<Uri, ConnectError> {
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|_| ConnectError::Header)?);
    Uri::from_parts(parts).map_err(|_| ConnectError::Header)
}

fn header_value(text: &str) -> Result<HeaderValue, ConnectError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| ConnectError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) fn excerpt(text: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(text), 300).into_owned()
}

/// Returns the pauses between attempts to connect. Half of each is random, so that not all agents reconnect at once.
pub(crate) fn reconnect_backoff() -> Backoff {
    Backoff::new(FIRST_PAUSE / 2, MAX_PAUSE / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_connection_attempts_grow_to_a_limit() {
        let mut pauses = reconnect_backoff();
        let all: Vec<_> = (0..40).map(|_| pauses.pause_after_failure()).collect();
        assert!(all.iter().all(|pause| *pause <= MAX_PAUSE && *pause >= FIRST_PAUSE / 2));
        assert!(all[0] <= FIRST_PAUSE && all[39] >= MAX_PAUSE / 2);
    }
}
