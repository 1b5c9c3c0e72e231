use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Chain, Deadline, Decision, Evaluation, EvaluationSources, FailureKind, NoAuthorizer, Protocol, RefusalCause,
    RequestRefusal, ServiceNaming, Stage, StaticNamespaces,
};
use admittance_webhook::{AddressOverrides, Webhook, WebhookClients, WebhookConfig};
use http::Version;
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::{
    BCS_HOST, application, call,
    certificates::WebhookAuthority,
    clients_of, config, is_replacement, serve,
    server::{TestWebhook, always, answer, echo, endless, silent_at_first},
    service_target,
};

const HTTP_VERSIONS: [Version; 2] = [Version::HTTP_2, Version::HTTP_11];

fn start(version: Version, authority: &WebhookAuthority, handler: crate::server::AnswerHandler) -> TestWebhook {
    let tls = authority.server(&[BCS_HOST]);
    match version {
        Version::HTTP_2 => TestWebhook::start(tls, handler),
        _ => TestWebhook::start_http1(tls, handler),
    }
}

#[tokio::test]
async fn connections_to_a_webhook_server_are_reused() {
    for version in HTTP_VERSIONS {
        let authority = WebhookAuthority::new();
        let mut server = start(version, &authority, echo());
        let clients = clients_of(&server);
        let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients).unwrap();
        for _ in 0..5 {
            assert!(is_replacement(&call(&webhook, &application()).await));
            assert_eq!(server.received_requests.recv().await.unwrap().version, version);
        }
        assert_eq!(server.connections(), 1, "{version:?}");

        let other = WebhookConfig {
            target: service_target(ServiceNaming::Bcs, "/other"),
            ..config(Protocol::BcsResource, &authority)
        };
        let other = Webhook::new(other, &clients).unwrap();
        assert!(is_replacement(&call(&other, &application()).await));
        assert_eq!(server.connections(), 1, "{version:?}");

        // Webhooks share connections only if they trust the same CAs. The webhook `wider` trusts one more CA than the
        // webhooks above, so it opens its own connection.
        let wider = WebhookConfig {
            ca_bundle: Some(vec![authority.certificate(), WebhookAuthority::new().certificate()]),
            ..config(Protocol::BcsResource, &authority)
        };
        let wider = Webhook::new(wider, &clients).unwrap();
        assert!(is_replacement(&call(&wider, &application()).await));
        assert_eq!(server.connections(), 2, "{version:?}");
    }
}

#[tokio::test]
async fn a_closed_connection_is_replaced() {
    let authority = WebhookAuthority::new();
    let handler = always(|| {
        let mut answer = answer(200, "{}");
        answer.headers_mut().insert("connection", "close".parse().unwrap());
        answer
    });
    let server = start(Version::HTTP_11, &authority, handler);
    let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients_of(&server)).unwrap();
    for _ in 0..3 {
        assert!(is_replacement(&call(&webhook, &application()).await));
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_and_does_not_disturb_the_next() {
    for (version, connections) in [(Version::HTTP_2, 1), (Version::HTTP_11, 2)] {
        let authority = WebhookAuthority::new();
        let mut server = start(version, &authority, silent_at_first(1));
        let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients_of(&server)).unwrap();
        let request = application();
        tokio::select! {
            answer = call(&webhook, &request) => panic!("{answer:?}"),
            _ = server.received_requests.recv() => {}
        }
        server.cancellations.recv().await.unwrap();
        assert!(is_replacement(&call(&webhook, &request).await));
        assert_eq!(server.connections(), connections, "{version:?}");
    }
}

/// Opens a port whose server never sends anything. Returns the listener of the port, and clients that connect to this
/// port when they call the host `BCS_HOST`.
async fn start_mute_server() -> (TcpListener, WebhookClients) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let clients = WebhookClients::new(AddressOverrides::parse([(BCS_HOST, address)]).unwrap());
    (listener, clients)
}

#[tokio::test]
async fn a_dropped_call_ends_its_connection_attempt() {
    let (listener, clients) = start_mute_server().await;
    let webhook = Webhook::new(config(Protocol::BcsResource, &WebhookAuthority::new()), &clients).unwrap();
    let request = application();
    let mut stream = tokio::select! {
        answer = call(&webhook, &request) => panic!("{answer:?}"),
        accepted = listener.accept() => accepted.unwrap().0,
    };
    // The client has closed the connection because the call was dropped, so the server reads to the end of the stream.
    // The stream contains at most a ClientHello, the message with which a client begins TLS.
    let mut hello = Vec::new();
    stream.read_to_end(&mut hello).await.unwrap();
}

#[tokio::test]
async fn connecting_to_a_webhook_times_out() {
    let (_listener, clients) = start_mute_server().await;
    let config = WebhookConfig {
        connect_timeout: Duration::from_millis(50),
        ..config(Protocol::BcsResource, &WebhookAuthority::new())
    };
    let webhook = Webhook::new(config, &clients).unwrap();
    let failure = call(&webhook, &application()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable);
    assert!(failure.message.contains("hook.ns within 50ms"), "{failure}");
}

#[tokio::test]
async fn a_stage_that_gets_no_answer_times_out() {
    let (mut server, webhook) = serve(Protocol::BcsResource, silent_at_first(1));
    let mut stage = Stage::new("silent", webhook);
    stage.spec.timeout = Duration::from_millis(200);
    let chain = Chain::new("chain", Vec::new(), vec![stage]);
    let mut evaluation = Evaluation::new(application(), Deadline::after(Duration::from_secs(30)));
    evaluation
        .run(
            &[&chain],
            EvaluationSources {
                namespaces: &StaticNamespaces::default(),
                authorizer: &NoAuthorizer,
            },
        )
        .await;
    match evaluation.outcome().decision {
        Decision::Refused(RequestRefusal {
            cause: RefusalCause::Failed(failure),
            ..
        }) => assert_eq!(failure.kind, FailureKind::Timeout),
        decision => panic!("{decision:?}"),
    }
    server.cancellations.recv().await.unwrap();
}

#[tokio::test]
async fn an_answer_over_the_size_limit_is_a_failure() {
    for version in HTTP_VERSIONS {
        for (case, handler, ok) in [
            (
                "at the limit",
                always(|| answer(200, format!("{{}}{}", " ".repeat(98)))),
                true,
            ),
            (
                "one byte over",
                always(|| answer(200, format!("{{}}{}", " ".repeat(99)))),
                false,
            ),
            ("without end", always(endless), false),
        ] {
            let authority = WebhookAuthority::new();
            let server = start(version, &authority, handler);
            let config = WebhookConfig {
                response_limit: 100,
                ..config(Protocol::BcsResource, &authority)
            };
            let webhook = Webhook::new(config, &clients_of(&server)).unwrap();
            let answer = call(&webhook, &application()).await;
            if ok {
                assert!(is_replacement(&answer), "{version:?} {case}: {answer:?}");
            } else {
                let failure = answer.unwrap_err();
                assert_eq!(
                    failure.kind,
                    FailureKind::OutputTooLarge,
                    "{version:?} {case}: {failure}"
                );
                assert!(failure.message.contains("100 bytes"), "{failure}");
            }
        }
    }
}

#[tokio::test]
async fn reading_an_endless_error_body_stops() {
    for version in HTTP_VERSIONS {
        let authority = WebhookAuthority::new();
        let handler = always(|| {
            let mut answer = endless();
            *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
            answer
        });
        let server = start(version, &authority, handler);
        let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients_of(&server)).unwrap();
        let failure = call(&webhook, &application()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadStatus);
    }
}

#[tokio::test]
async fn an_unreachable_webhook_is_a_failure() {
    // The listener is only used to find a free port. After it is dropped, a connection to this port is refused.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let authority = WebhookAuthority::new();
    for (case, clients, parts) in [
        (
            "refused",
            WebhookClients::new(AddressOverrides::parse([(BCS_HOST, &address)]).unwrap()),
            ["hook.ns", &address, "refused"],
        ),
        (
            "no such name",
            WebhookClients::new(AddressOverrides::parse([(BCS_HOST, "no-such-host.invalid:1")]).unwrap()),
            ["hook.ns", "no-such-host.invalid:1", "dns error"],
        ),
    ] {
        let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients).unwrap();
        let failure = call(&webhook, &application()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unreachable, "{case}: {failure}");
        for part in parts {
            assert!(failure.message.contains(part), "{case}: {failure}");
        }
    }
}

/// The server ends the connection before the answer is complete, or sends something that is not HTTP.
#[tokio::test]
async fn truncated_answers_of_webhooks_are_failures() {
    use tokio::io::AsyncWriteExt;
    let informational = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(65);
    for (case, bytes, kind) in [
        ("nothing", &b""[..], FailureKind::Unreachable),
        ("half a head", b"HTTP/1.1 200 O", FailureKind::Unreachable),
        (
            "half a body",
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}",
            FailureKind::Unreachable,
        ),
        ("no HTTP", b"SSH-2.0-OpenSSH\r\n\r\n", FailureKind::InvalidResponse),
        (
            "informational responses without end",
            &informational,
            FailureKind::InvalidResponse,
        ),
    ] {
        for says_goodbye in [true, false] {
            let authority = WebhookAuthority::new();
            let (listener, clients) = start_mute_server().await;
            let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients).unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(authority.server(&[BCS_HOST])));
            let bytes = bytes.to_vec();
            let server = tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut request = [0; 4096];
                // One read is enough, even if it returns only a part of the request: it shows that the connection is
                // established.
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
                if says_goodbye {
                    stream.shutdown().await.unwrap();
                } else {
                    stream.get_mut().0.shutdown().await.unwrap();
                    // The rest of the request is read, because the kernel would reset a connection with unread bytes.
                    while let Ok(1..) = stream.read(&mut request).await {}
                }
            });
            let failure = call(&webhook, &application()).await.unwrap_err();
            assert_eq!(failure.kind, kind, "{case}: {failure}");
            assert!(failure.message.contains("hook.ns"), "{case}: {failure}");
            assert!(!failure.message.contains("docs.rs"), "{case}: {failure}");
            server.await.unwrap();
        }
    }
}
