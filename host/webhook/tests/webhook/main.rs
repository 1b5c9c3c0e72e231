//! Tests of webhooks that are called over real sockets and with real TLS.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only the functions marked #[test] for tests, not what helps them"
)]

mod admission_review;
mod bcs_resource;
mod certificates;
mod connection;
mod server;
mod tls;

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Deadline, Failure, GroupVersionKind, GroupVersionResource, Hook, Object, Operation, Protocol, Request, Response,
    ReviewVersion, ServiceNaming, Verdict, WebhookTarget,
};
use admittance_webhook::{AddressOverrides, Webhook, WebhookClients, WebhookConfig};
use certificates::WebhookAuthority;
use server::TestWebhook;

/// The host name that a BCS service has, if it is called `hook` and is in the namespace `ns`.
const BCS_HOST: &str = "hook.ns";

/// The host name that a Kubernetes service has, if it is called `hook` and is in the namespace `ns`.
const KUBERNETES_HOST: &str = "hook.ns.svc";

fn service_target(naming: ServiceNaming, path: &str) -> WebhookTarget {
    WebhookTarget::Service {
        namespace: "ns".into(),
        name: "hook".into(),
        port: WebhookTarget::DEFAULT_PORT,
        path: path.into(),
        naming,
    }
}

fn review(version: ReviewVersion) -> Protocol {
    Protocol::AdmissionReview {
        versions: vec![version],
    }
}

fn clients_of(server: &TestWebhook) -> WebhookClients {
    let address = server.address.to_string();
    WebhookClients::new(AddressOverrides::parse([(BCS_HOST, &address), (KUBERNETES_HOST, &address)]).unwrap())
}

fn config(protocol: Protocol, authority: &WebhookAuthority) -> WebhookConfig {
    let naming = match protocol {
        Protocol::BcsResource => ServiceNaming::Bcs,
        Protocol::AdmissionReview { .. } => ServiceNaming::Kubernetes,
    };
    WebhookConfig {
        ca_bundle: Some(vec![authority.certificate()]),
        ..WebhookConfig::new(protocol, service_target(naming, "/admit"))
    }
}

fn serve(protocol: Protocol, handler: server::AnswerHandler) -> (TestWebhook, Webhook) {
    let authority = WebhookAuthority::new();
    let server = TestWebhook::start(authority.server(&[BCS_HOST, KUBERNETES_HOST]), handler);
    let webhook = Webhook::new(config(protocol, &authority), &clients_of(&server)).unwrap();
    (server, webhook)
}

fn application() -> Request {
    let kind = GroupVersionKind::from_api_version("v4", "application");
    let resource = GroupVersionResource {
        version: "v4".into(),
        resource: "applications".into(),
        ..GroupVersionResource::default()
    };
    Request::new(Operation::Create, kind, resource)
        .with_object(Object::parse(r#"{"kind":"application","metadata":{"name":"a","namespace":"ns"}}"#).unwrap())
}

async fn call(webhook: &Webhook, request: &Request) -> Result<Response, Failure> {
    webhook
        .admit(&Arc::new(request.clone()), Deadline::after(Duration::from_secs(30)))
        .await
}

/// Returns whether the call has succeeded, and its verdict replaces the whole object.
fn is_replacement(answer: &Result<Response, Failure>) -> bool {
    matches!(answer, Ok(response) if matches!(response.verdict, Verdict::Replace(_)))
}
