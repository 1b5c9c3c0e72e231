use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::Value;

use crate::Error;

/// An HTTP client of a test. It has its own connection pool.
#[derive(Clone, Debug)]
pub struct Client(Pool<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// The size of the send buffer of attacking clients, in bytes. The kernel copies a whole buffer in one system call, so
/// a larger one would delay a program on the same machine.
pub const ATTACKING_SEND_BUFFER: u32 = 64 << 10;

/// The certificate authorities that a TLS client trusts, and the client's own certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTrust<'a> {
    /// The certificates of the authorities that the client trusts, as PEM.
    pub authorities: &'a str,
    /// The certificate and private key of the client, as PEM.
    pub identity: Option<(&'a str, &'a str)>,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub version: Version,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Result<Value, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::Invalid(format!("the reply {} `{}`: {error}", self.status, self.text())))
    }
}

impl Client {
    /// Returns a client for plain HTTP.
    pub fn new() -> Result<Self, Error> {
        Self::with_trust(ClientTrust::default())
    }

    /// Returns a client for plain HTTP whose send buffer is [`ATTACKING_SEND_BUFFER`].
    pub fn for_attacks() -> Result<Self, Error> {
        Self::build(Version::HTTP_11, ClientTrust::default(), Some(ATTACKING_SEND_BUFFER))
    }

    /// Returns a client for HTTP and HTTPS.
    pub fn with_trust(trust: ClientTrust<'_>) -> Result<Self, Error> {
        Self::build(Version::HTTP_11, trust, None)
    }

    /// Returns a client for HTTP and HTTPS that also offers HTTP/2.
    pub fn with_http2(trust: ClientTrust<'_>) -> Result<Self, Error> {
        Self::build(Version::HTTP_2, trust, None)
    }

    fn build(best: Version, trust: ClientTrust<'_>, send_buffer: Option<u32>) -> Result<Self, Error> {
        let invalid = |error: &dyn std::fmt::Display| Error::Invalid(format!("the client's certificates: {error}"));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trust.authorities.as_bytes()) {
            let certificate = certificate.map_err(|error| invalid(&error))?;
            roots.add(certificate).map_err(|error| invalid(&error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?
            .with_root_certificates(roots);
        let config = match trust.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| invalid(&error))?;
                builder
                    .with_client_auth_cert(chain.map_err(|error| invalid(&error))?, key)
                    .map_err(|error| invalid(&error))?
            }
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_send_buffer_size(send_buffer.map(|bytes| bytes as usize));
        let connector = match best {
            Version::HTTP_2 => connector.enable_http2().wrap_connector(http),
            _ => connector.wrap_connector(http),
        };
        Ok(Self(Pool::builder(TokioExecutor::new()).build(connector)))
    }

    pub async fn send(&self, request: Request<impl Into<Bytes>>) -> Result<Reply, Error> {
        let (method, url) = (request.method().clone(), request.uri().to_string());
        let response = self
            .0
            .request(request.map(|body| Full::new(body.into())))
            .await
            .map_err(|error| Error::NoReply {
                method: method.clone(),
                url: url.clone(),
                reason: error_with_causes(&error),
            })?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| Error::BrokenReply {
            method,
            url,
            reason: error_with_causes(&error),
        })?;
        Ok(Reply {
            version: head.version,
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    pub async fn get(&self, url: &str) -> Result<Reply, Error> {
        let request = Request::get(url)
            .body(Bytes::new())
            .map_err(|error| Error::Invalid(format!("{url}: {error}")))?;
        self.send(request).await
    }

    /// Sends a JSON body with the header that the BCS driver requires.
    pub async fn send_bcs(&self, method: Method, url: &str, body: impl Into<Bytes>) -> Result<Reply, Error> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .header("BCS-ClusterID", "BCS-MESOS-10001")
            .body(body)
            .map_err(|error| Error::Invalid(format!("{url}: {error}")))?;
        self.send(request).await
    }
}

fn error_with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
