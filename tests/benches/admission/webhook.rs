//! A webhook that does the work of the plugin: a TLS server that calls the plugin's native code.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc};

use admittance::Host;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{native::NativePlugin, write_chain};

pub(crate) struct BenchWebhook {
    address: SocketAddr,
    ca: String,
}

#[derive(Deserialize)]
struct BenchReview<'a> {
    #[serde(borrow)]
    request: BenchReviewRequest<'a>,
}

#[derive(Deserialize)]
struct BenchReviewRequest<'a> {
    uid: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl BenchWebhook {
    pub(crate) async fn start(settings: &str) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["sidecar.hooks.svc".to_owned()])
            .unwrap()
            .signed_by(&key, &Issuer::new(ca, ca_key))
            .unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
            .unwrap();
        // The server offers only HTTP/1.1, because kube-apiserver calls webhooks of a Service with HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let native = Arc::new(NativePlugin::new(settings));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (acceptor, native) = (acceptor.clone(), native.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| answer(native.clone(), request));
                    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            ca: BASE64_STANDARD.encode(ca_certificate.pem()),
        }
    }

    pub(crate) async fn host(&self, directory: &Path) -> Host {
        let stages = json!([{
            "name": "sidecar",
            "webhook": {
                "protocol": "AdmissionReview",
                "service": {"namespace": "hooks", "name": "sidecar"},
                "caBundle": self.ca,
            },
        }]);
        Host::builder()
            .definitions(write_chain(directory, "webhook", "Pod", &stages))
            .resolve("sidecar.hooks.svc", self.address.to_string())
            .build()
            .await
            .unwrap()
    }
}

async fn answer(native: Arc<NativePlugin>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: BenchReview<'_> = serde_json::from_slice(&body).unwrap();
    let patch = native.admit(review.request.object.get());
    let reply = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": review.request.uid,
            "allowed": true,
            "patchType": "JSONPatch",
            "patch": BASE64_STANDARD.encode(patch),
        },
    });
    Ok(Response::new(Full::from(reply.to_string())))
}
