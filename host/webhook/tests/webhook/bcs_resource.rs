use std::sync::Arc;

use admittance_admission::Protocol;
use admittance_admission::{FailureKind, Hook, Object, Verdict};
use http::{Method, header};

use crate::{
    application, call, serve,
    server::{always, answer, echo},
};

/// The body of the request is the object itself, without an AdmissionReview around it. The BCS driver sends the same.
#[tokio::test]
async fn a_resource_is_sent_as_bcs_sends_it() {
    let (mut server, webhook) = serve(Protocol::BcsResource, echo());
    let mut request = application();
    // The text must be sent as it is. Serialising it again would change its spaces, key order and numbers.
    let text = "{ \"kind\":\"application\",\n \"a\": 1.0, \"metadata\": {\"name\":\"a\"} }";
    request.object = Some(Object::parse(text).unwrap());
    let response = call(&webhook, &request).await.unwrap();

    let sent_request = server.received_requests.recv().await.unwrap();
    assert_eq!(sent_request.method, Method::POST);
    assert_eq!(sent_request.path, "/admit");
    assert_eq!(sent_request.authority, "hook.ns");
    assert_eq!(sent_request.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(
        sent_request.headers[header::USER_AGENT],
        concat!("admittance/", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(sent_request.headers[header::CONTENT_LENGTH], text.len().to_string());
    assert!(!sent_request.headers.contains_key(header::ACCEPT_ENCODING));
    assert_eq!(sent_request.body, text);
    match response.verdict {
        Verdict::Replace(object) => assert_eq!(object.text(), text),
        verdict => panic!("{verdict:?}"),
    }
}

/// Each row expects the outcome of the BCS driver, unless its name begins with "safe". In the "safe" rows, the BCS
/// driver would store the response as the object, but here the call must fail.
#[tokio::test]
async fn an_answer_has_the_same_effect_as_in_the_bcs_driver() {
    use FailureKind::{BadStatus, InvalidResponse};
    const CHANGED: &str = r#"{"kind":"application","metadata":{"name":"a"},"x":1.0}"#;
    for (case, status, body, expected) in [
        ("changed object", 200, CHANGED, Ok(CHANGED)),
        ("safe: empty", 200, "", Err((InvalidResponse, "empty body"))),
        ("safe: white space", 200, " \n", Err((InvalidResponse, "empty body"))),
        ("safe: null", 200, "null", Err((InvalidResponse, "not a JSON object"))),
        ("safe: array", 200, "[]", Err((InvalidResponse, "not a JSON object"))),
        ("safe: text", 200, "OK", Err((InvalidResponse, "not a JSON object"))),
        (
            "safe: cut off",
            200,
            r#"{"kind":"#,
            Err((InvalidResponse, "not a JSON object")),
        ),
        ("201", 201, CHANGED, Err((BadStatus, "201"))),
        ("204", 204, "", Err((BadStatus, "204 No Content: empty body"))),
        (
            "the text of a 500",
            500,
            "no image\r\n100% sure",
            Err((BadStatus, "500 Internal Server Error: no image 100% sure")),
        ),
        (
            "404",
            404,
            "404 page not found\n",
            Err((BadStatus, "404 page not found")),
        ),
    ] {
        let (_server, webhook) = serve(Protocol::BcsResource, always(move || answer(status, body)));
        match (call(&webhook, &application()).await, expected) {
            (Ok(response), Ok(text)) => match response.verdict {
                Verdict::Replace(object) => assert_eq!(object.text(), text, "{case}"),
                verdict => panic!("{case}: {verdict:?}"),
            },
            (Err(failure), Err((kind, part))) => {
                assert_eq!(failure.kind, kind, "{case}: {failure}");
                assert!(failure.message.contains(part), "{case}: {failure}");
                assert!(failure.message.contains("https://hook.ns/admit"), "{case}: {failure}");
            }
            (answer, _) => panic!("{case}: {answer:?}"),
        }
    }
}

/// In the BCS protocol, the object is the body of the request to the webhook. Therefore a call for a request without an
/// object fails.
#[tokio::test]
async fn a_request_without_object_is_a_failure() {
    let (server, webhook) = serve(Protocol::BcsResource, echo());
    let mut request = application();
    request.object = None;
    let deadline = admittance_admission::Deadline::after(std::time::Duration::from_secs(30));
    let failure = webhook.admit(&Arc::new(request), deadline).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Error);
    assert!(failure.message.contains("CREATE"), "{failure}");
    assert_eq!(server.connections(), 0);
}

/// The BCS driver follows redirects. Admittance does not, because it sends the object only to the configured URL.
#[tokio::test]
async fn redirects_of_webhooks_are_not_followed() {
    for status in [301, 302, 307, 308] {
        let (mut server, webhook) = serve(
            Protocol::BcsResource,
            always(move || {
                let mut answer = answer(status, "");
                answer
                    .headers_mut()
                    .insert(header::LOCATION, "https://hook.ns/other".parse().unwrap());
                answer
            }),
        );
        let failure = call(&webhook, &application()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadStatus);
        for part in [&status.to_string(), "https://hook.ns/other", "not followed"] {
            assert!(failure.message.contains(part), "{failure}");
        }
        server.received_requests.recv().await.unwrap();
        assert!(server.received_requests.try_recv().is_err());
    }
}

#[tokio::test]
async fn an_answer_with_a_content_encoding_is_invalid() {
    let (_server, webhook) = serve(
        Protocol::BcsResource,
        always(|| {
            let mut answer = answer(200, "{}");
            answer
                .headers_mut()
                .insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
            answer
        }),
    );
    let failure = call(&webhook, &application()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidResponse);
    assert!(failure.message.contains("gzip"), "{failure}");
}
