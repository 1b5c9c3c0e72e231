//! A token server as Docker's registries use it. It accepts one user's password and another user's identity token.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpListener};
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::{
    authority::HttpsAuthority,
    registry::USER,
    site::{read_request_head, send_response},
};

/// The identity token that `docker login` stores instead of a password.
pub(crate) const IDENTITY_TOKEN: &str = "of-a-login";

pub(crate) struct TokenServer {
    pub(crate) address: SocketAddr,
    signer: Arc<TokenSigner>,
    /// The validity of the tokens that the server issues, in seconds. If it is negative, they are expired.
    pub(crate) life: Arc<Mutex<i64>>,
    pub(crate) scopes: Arc<Mutex<Vec<String>>>,
}

struct TokenSigner {
    key: EcdsaKeyPair,
    certificate: Vec<u8>,
}

impl TokenServer {
    pub(crate) async fn start(authority: &HttpsAuthority) -> Self {
        let (certificate, key) = authority.issue_certificate();
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &key.serialize_der(),
            &SystemRandom::new(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tokens = Self {
            address: listener.local_addr().unwrap(),
            signer: Arc::new(TokenSigner {
                key: key.unwrap(),
                certificate: certificate.to_vec(),
            }),
            life: Arc::new(Mutex::new(300)),
            scopes: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config()));
        let (signer, life, scopes) = (tokens.signer.clone(), tokens.life.clone(), tokens.scopes.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let Ok(Some(head)) = read_request_head(&mut stream).await else {
                    continue;
                };
                let length = head.headers.get("content-length");
                let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
                stream.read_exact(&mut body).await.unwrap();
                let form = String::from_utf8(body).unwrap();
                let (query, is_allowed) = match head.path.split_once('?') {
                    Some((_, query)) => (query.to_owned(), is_user(head.headers.get("authorization"))),
                    None => (form.clone(), form.contains(&format!("refresh_token={IDENTITY_TOKEN}"))),
                };
                let scope = query_parameter(&query, "scope");
                scopes.lock().unwrap().push(scope.clone());
                let life = *life.lock().unwrap();
                let (status, answer) = if is_allowed {
                    ("200 OK", json!({"token": signer.issue_token(&scope, life)}))
                } else {
                    (
                        "401 Unauthorized",
                        json!({"errors": [{"code": "UNAUTHORIZED", "message": "who are you"}]}),
                    )
                };
                let body = answer.to_string();
                let length = Some(body.len() as u64);
                let _ = send_response(&mut stream, status, &[], length, body.as_bytes()).await;
            }
        });
        tokens
    }

    pub(crate) fn realm(&self) -> String {
        format!("https://localhost:{}/token", self.address.port())
    }
}

fn is_user(authorization: Option<&String>) -> bool {
    let (user, password) = USER;
    let expected = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    authorization == Some(&expected)
}

fn query_parameter(query: &str, name: &str) -> String {
    let url = Url::parse(&format!("https://localhost/?{query}")).unwrap();
    let mut pairs = url.query_pairs();
    pairs
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

impl TokenSigner {
    fn issue_token(&self, scope: &str, life: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let now = i64::try_from(now).unwrap();
        let parts: Vec<&str> = scope.split(':').collect();
        let access = match parts.as_slice() {
            [kind, name, actions] => json!([{
                "type": kind, "name": name, "actions": actions.split(',').collect::<Vec<_>>(),
            }]),
            _ => json!([]),
        };
        let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(&self.certificate)]});
        // The registry accepts a token for up to a minute after its end, in case clocks differ. So a token that must be
        // refused has to end earlier than that.
        let claims = json!({
            "iss": "test", "sub": "ada", "aud": "test", "jti": "1", "access": access,
            "iat": now - 600, "nbf": now - 600, "exp": now + life,
        });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
