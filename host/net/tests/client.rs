//! Tests the HTTP client against servers that send prepared bytes.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only the functions marked #[test] for tests, not what helps them"
)]

use std::time::Duration;

use admittance_net::{
    causes::root_cause,
    client::{ClientError, ClientOptions, ClientRequest, HttpClient, ProxyChoice},
    tls::{self, Trust},
};
use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use url::Url;

fn client_with(proxy: ProxyChoice) -> HttpClient {
    let options = ClientOptions {
        connect_timeout: Duration::from_secs(10),
        silence_timeout: Duration::from_secs(30),
        proxy,
    };
    HttpClient::new(tls::client_config(Trust::SystemAnd(None), None).unwrap(), options)
}

/// Starts a server that answers one request with `answer`. If the answer is an informational response, it is repeated
/// until the client closes the connection. The task returns the request that the server has received.
async fn server(answer: &'static [u8]) -> (Url, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a?b=c", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request_bytes = vec![0; 4096];
        let length = stream.read(&mut request_bytes).await.unwrap();
        request_bytes.truncate(length);
        while stream.write_all(answer).await.is_ok() && answer.starts_with(b"HTTP/1.1 1") {}
        String::from_utf8(request_bytes).unwrap()
    });
    (url.parse().unwrap(), serving)
}

#[tokio::test]
async fn a_request_with_endless_informational_responses_fails() {
    let (url, _serving) = server(b"HTTP/1.1 103 Early Hints\r\n\r\n").await;
    let client = client_with(ProxyChoice::None);
    let error = client.send(ClientRequest::new(Method::GET, url)).await.unwrap_err();
    assert!(root_cause(&error).contains("informational responses"), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_returned_instead_of_followed() {
    let (url, serving) =
        server(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n").await;
    let request = ClientRequest::new(Method::POST, url.clone()).body("text");
    let response = client_with(ProxyChoice::None).send(request).await.unwrap();
    assert_eq!((response.status, &response.url), (StatusCode::FOUND, &url));
    let request_text = serving.await.unwrap();
    assert!(request_text.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{request_text}");
    assert!(request_text.contains("content-length: 4\r\n"), "{request_text}");
}

#[tokio::test]
async fn a_request_through_a_proxy_contains_the_url_of_its_target() {
    let (mut proxy, serving) = server(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    proxy.set_username("user").unwrap();
    proxy.set_password(Some("word")).unwrap();
    let url: Url = "http://modules.example.com/a.wasm".parse().unwrap();
    let client = client_with(ProxyChoice::All(proxy));
    let response = client.send(ClientRequest::new(Method::GET, url)).await.unwrap();
    assert_eq!(response.status, StatusCode::NO_CONTENT);
    let request_text = serving.await.unwrap();
    assert!(
        request_text.starts_with("GET http://modules.example.com/a.wasm HTTP/1.1\r\n"),
        "{request_text}"
    );
    // `dXNlcjp3b3Jk` is `user:word` in base64, the credentials of the proxy.
    assert!(
        request_text.contains("proxy-authorization: Basic dXNlcjp3b3Jk\r\n"),
        "{request_text}"
    );
}

#[tokio::test]
async fn a_refused_connection_is_a_connect_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let request = ClientRequest::new(Method::GET, url.parse().unwrap());
    let error = client_with(ProxyChoice::None).send(request).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect(_)), "{error:?}");
}
