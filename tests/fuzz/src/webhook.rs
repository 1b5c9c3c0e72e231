use std::sync::{Arc, Mutex};

use admittance::admission::{
    Chain, GroupVersionKind, GroupVersionResource, Object, Operation, Protocol, Request, ReviewVersion, Uid,
    WebhookTarget,
};
use admittance_webhook::{AddressOverrides, Webhook, WebhookClients, WebhookConfig};
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::{
    block_on,
    http1::{ParsedReply, serve},
    parts,
    verdict::{chain, judge},
};

/// Reads a webhook's response: protocol and status (`v1 200`, `v1beta1 200`, `resource 200`), header lines, an empty
/// line, the body.
pub fn webhook(input: &[u8]) {
    thread_local! {
        static SCENE: WebhookScene = block_on(WebhookScene::new());
    }
    let [head, body] = parts(input);
    let head = String::from_utf8_lossy(head);
    let (line, headers) = head.split_once('\n').unwrap_or((&head, ""));
    let (kind, status) = line.split_once(' ').unwrap_or((line, "200"));
    let Ok(status @ 200..=599) = status.parse::<u16>() else {
        return;
    };
    // If the response has a `Retry-After`, the stage waits before it calls the webhook again. A fuzz target has no time
    // for that, so such an input is skipped.
    if matches!(status, 429 | 500..) && headers.to_ascii_lowercase().contains("retry-after") {
        return;
    }
    SCENE.with(|scene| {
        *scene.answer.lock().expect("nothing panics with it") = ParsedReply {
            status,
            headers: headers.to_owned(),
            body: body.to_vec(),
        };
        let chain = match kind {
            "v1beta1" => &scene.old_review,
            "resource" => &scene.resource,
            _ => &scene.review,
        };
        judge(chain, &scene.request);
    });
}

struct WebhookScene {
    answer: Arc<Mutex<ParsedReply>>,
    review: Chain,
    old_review: Chain,
    resource: Chain,
    request: Request,
}

impl WebhookScene {
    async fn new() -> Self {
        let answer = Arc::new(Mutex::new(ParsedReply::ok("")));
        let answers = || {
            let answer = answer.clone();
            move |_: &str| answer.lock().expect("nothing panics with it").clone()
        };
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = rustls_pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let certificate = certified.cert.der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("the key is that of the certificate");
        let secure = serve(Some(TlsAcceptor::from(Arc::new(server))), answers()).await;
        let plain = serve(None, answers()).await;
        let clients = WebhookClients::new(AddressOverrides::default());
        let hook = |protocol, url: String| {
            let mut config = WebhookConfig::new(protocol, WebhookTarget::Url(Url::parse(&url).expect("a URL")));
            config.ca_bundle = Some(vec![certificate.clone()]);
            chain(Webhook::new(config, &clients).expect("the configuration is right"))
        };
        let review = |version| {
            let versions = vec![version];
            hook(
                Protocol::AdmissionReview { versions },
                format!("https://localhost:{}/", secure.port()),
            )
        };
        let kind = GroupVersionKind::from_api_version("v1", "Pod");
        let resource = GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
        };
        let object = Object::parse(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"prod","uid":"a"},"spec":{"containers":[{"name":"a"}]}}"#,
        );
        let mut request = Request::new(Operation::Create, kind, resource).with_object(object.expect("it is an object"));
        request.uid = Uid::from("u1".to_owned());
        Self {
            review: review(ReviewVersion::V1),
            old_review: review(ReviewVersion::V1Beta1),
            resource: hook(Protocol::BcsResource, format!("http://127.0.0.1:{}/", plain.port())),
            answer,
            request,
        }
    }
}
