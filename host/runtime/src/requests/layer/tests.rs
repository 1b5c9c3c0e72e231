use std::{convert::Infallible, sync::Mutex};

use admittance_admission::{
    Chain, Deadline, Denial, EnforcedSpelling, Failure, GroupVersionKind, Hook, Matcher, Object, Operation, Patch,
    Request as Admission, Response as Answer, Rule, Stage, Verdict, async_trait,
};
use admittance_dialect::{Inspection, Rejection, RejectionKind};
use http::{Method, StatusCode, header::CONTENT_ENCODING};
use http_body_util::{BodyExt, Full};
use serde_json::json;

use super::*;

/// A hook that denies objects named `bad`, labels objects named `plain`, and warns about all objects.
struct LayerHook;

#[async_trait]
impl Hook for LayerHook {
    async fn admit(&self, request: &Arc<Admission>, _: Deadline) -> Result<Answer, Failure> {
        let mut answer = match request.name.as_str() {
            "bad" => Answer::deny(Denial::forbidden(format!("uid {}", request.uid))),
            "plain" => {
                let patch = json!([{"op": "add", "path": "/seen", "value": true}]);
                Answer::new(Verdict::Patch(Patch::parse(patch.to_string()).unwrap()))
            }
            _ => Answer::allow(),
        };
        answer.warnings.push("careful".to_owned());
        Ok(answer)
    }
}

/// A dialect in which POST creates the object in the body, and PUT updates it. GET passes no chain.
#[derive(Debug)]
struct ObjectsDialect(EnforcedSpelling);

impl ObjectsDialect {
    fn new() -> Self {
        let keys = ["/kind", "/metadata", "/metadata/name"];
        Self(EnforcedSpelling::new([], keys.map(|key| key.parse().unwrap())))
    }
}

fn malformed(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(RejectionKind::Malformed, error.to_string())
}

impl Dialect for ObjectsDialect {
    fn name(&self) -> &str {
        "objects"
    }

    fn classify(&self, head: &Parts) -> Class {
        match head.method {
            Method::POST => Class::Inspect(Inspection::new(Operation::Create)),
            Method::PUT => Class::Inspect(Inspection::new(Operation::Update)),
            _ => Class::Pass,
        }
    }

    fn read_body(&self, _: &Parts, inspection: &Inspection, body: &Bytes) -> Result<BodyReading, Rejection> {
        let text = std::str::from_utf8(body).map_err(malformed)?;
        let canonical = self
            .0
            .canonical_text(text)
            .map_err(|error| malformed(format!("{error:?}")))?;
        let text = canonical.as_deref().unwrap_or(text);
        if text.starts_with('[') {
            return Ok(BodyReading::Nothing);
        }
        let object = Object::parse(text).map_err(malformed)?;
        let kind = object.value()["kind"].as_str().unwrap().to_owned();
        let kind = GroupVersionKind::from_api_version("", kind);
        let resource = kind.guess_resource();
        let mut request = Admission::new(inspection.operation, kind, resource).with_object(object);
        request.spelling = self.0.clone();
        Ok(BodyReading::Admit {
            request: Box::new(request),
            canonical: canonical.map(Bytes::from),
        })
    }

    fn reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(end.to_string()));
        *response.status_mut() = match end {
            EndReason::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            EndReason::BodyEncoded { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            _ => StatusCode::BAD_REQUEST,
        };
        response
    }
}

type RequestLog = Arc<Mutex<Vec<(HeaderMap, String)>>>;

#[derive(Clone, Default)]
struct InnerService(RequestLog);

impl Service<Request<Full<Bytes>>> for InnerService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let requests = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
            requests.lock().unwrap().push((head.headers, body));
            Ok(Response::new(Full::default()))
        })
    }
}

async fn new_layer() -> AdmissionLayer {
    let rule = Rule {
        kinds: Matcher::Only(vec!["application".into()]),
        ..Rule::for_operations([Operation::Create])
    };
    let chain = Chain::new("c", vec![rule], vec![Stage::new("s", LayerHook)]);
    let host = Host::builder().chain(chain).decisions(Default::default());
    host.build().await.unwrap().layer(ObjectsDialect::new())
}

fn request(method: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri("/objects")
        .header(CONTENT_LENGTH, body.len())
        .header(EXPECT, "100-continue")
        .header("content-md5", "x")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

fn application(name: &str) -> String {
    json!({"kind": "application", "metadata": {"name": name}}).to_string()
}

async fn send(layer: &AdmissionLayer, request: Request<Full<Bytes>>) -> (Response<Full<Bytes>>, RequestLog) {
    let inner = InnerService::default();
    let response = layer.layer(inner.clone()).call(request).await.unwrap();
    (response, inner.0)
}

#[tokio::test]
async fn a_decision_names_the_dialect_of_its_request() {
    let layer = new_layer().await;
    send(&layer, request("POST", &application("good"))).await;
    let list = layer.0.host.decisions().list(&Default::default(), None, 10);
    let dialects: Vec<_> = list
        .decisions
        .iter()
        .map(|decision| decision.dialect.as_deref())
        .collect();
    assert_eq!(dialects, [Some("objects")]);
}

#[tokio::test]
async fn the_passage_of_a_response_says_how_its_request_was_handled() {
    let layer = new_layer().await;
    let changed = r#"{"kind":"application","metadata":{"name":"plain"},"seen":true}"#;
    let configmap = r#"{"Kind":"configmap","metadata":{"name":"bad"}}"#.to_owned();
    let respelled = r#"{"KIND":"application","metadata":{"name":"good"}}"#.to_owned();
    // (case, method of the request, body of the request, expected `Passage` of the response, body that the inner
    // service should get)
    for (case, method, body, passage, reaches) in [
        (
            "allowed",
            "POST",
            application("good"),
            Passage::Allowed,
            Some(application("good")),
        ),
        (
            "changed",
            "POST",
            application("plain"),
            Passage::Changed,
            Some(changed.to_owned()),
        ),
        ("denied", "POST", application("bad"), Passage::Ended("refused"), None),
        (
            "no chain for the operation",
            "PUT",
            "{".to_owned(),
            Passage::Untouched,
            Some("{".to_owned()),
        ),
        (
            "no chain for the kind",
            "POST",
            configmap.clone(),
            Passage::Untouched,
            Some(configmap),
        ),
        (
            "in one spelling",
            "POST",
            respelled,
            Passage::Allowed,
            Some(application("good")),
        ),
        (
            "nothing to admit",
            "POST",
            "[]".to_owned(),
            Passage::Untouched,
            Some("[]".to_owned()),
        ),
        ("not readable", "POST", "{".to_owned(), Passage::Ended("rejected"), None),
    ] {
        let (response, requests) = send(&layer, request(method, &body)).await;
        assert_eq!(response.extensions().get::<Passage>(), Some(&passage), "{case}");
        let locked_requests = requests.lock().unwrap();
        assert_eq!(
            locked_requests.first().map(|(_, body)| body),
            reaches.as_ref(),
            "{case}"
        );
        if let Some((headers, body)) = locked_requests.first() {
            assert_eq!(headers[CONTENT_LENGTH], body.len().to_string(), "{case}");
            assert_eq!(
                headers.contains_key("content-md5"),
                passage != Passage::Changed,
                "{case}"
            );
        }
        let has_warning = response.headers().get("warning").is_some();
        let is_judged = matches!(passage, Passage::Allowed | Passage::Changed | Passage::Ended("refused"));
        assert_eq!(has_warning, is_judged, "{case}");
    }
}

#[tokio::test]
async fn large_and_compressed_bodies_are_refused() {
    let layer = new_layer()
        .await
        .body_limits(BodyLimits::new(60, Duration::from_secs(30)));
    let large = application(&"x".repeat(60));
    let (response, requests) = send(&layer, request("POST", &large)).await;
    assert_eq!(response.status(), 413);
    assert!(requests.lock().unwrap().is_empty());
    let (response, _) = send(&layer, request("PUT", &large)).await;
    assert_eq!(response.status(), 200, "a request that no chain can match has no limit");

    let mut encoded = request("POST", &application("a"));
    encoded
        .headers_mut()
        .insert(CONTENT_ENCODING, HeaderValue::from_static("identity, gzip"));
    assert_eq!(send(&layer, encoded).await.0.status(), 415);
    let mut plain = request("POST", &application("a"));
    plain
        .headers_mut()
        .insert(CONTENT_ENCODING, HeaderValue::from_static("Identity"));
    assert_eq!(send(&layer, plain).await.0.status(), 200);
}

#[tokio::test]
async fn valid_request_ids_become_the_uid() {
    let layer = new_layer().await;
    let long = "x".repeat(129);
    for (given, is_kept) in [
        (Some("abc-1.2_3:4"), true),
        (Some(""), false),
        (Some("a b"), false),
        (Some("a\"b"), false),
        (Some(long.as_str()), false),
        (None, false),
    ] {
        for name in ["good", "bad"] {
            let mut request = request("POST", &application(name));
            if let Some(sent_id) = given {
                request.headers_mut().insert(REQUEST_ID, sent_id.parse().unwrap());
            }
            let (response, requests) = send(&layer, request).await;
            let id = response.headers()[REQUEST_ID].to_str().unwrap().to_owned();
            assert_eq!(Some(id.as_str()) == given, is_kept, "{given:?}");
            for (headers, _) in requests.lock().unwrap().iter() {
                assert_eq!(headers[REQUEST_ID], id);
            }
            if name == "bad" {
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let body = String::from_utf8(body.to_vec()).unwrap();
                assert!(body.contains(&format!("uid {id}")), "{body}");
            }
        }
    }
}
