//! Tests the graceful shutdown: reviews in flight are answered, and clients are told to close their connections.

use std::sync::Arc;

use admittance_tests::Reply;
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    hooks::{HookAnswer, Hooks, configuration},
    server::{POD, Server, review_request},
};

/// A server whose webhook answers no call before `open` becomes true.
struct HeldServer {
    server: Server,
    hooks: Hooks,
    open: watch::Sender<bool>,
}

impl HeldServer {
    async fn start(delay: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (open, gate) = watch::channel(false);
        let hooks = Hooks::start(directory.path(), move |call, _| {
            let mut gate = gate.clone();
            async move {
                if call.path == "/held" {
                    gate.wait_for(|open| *open).await.unwrap();
                }
                HookAnswer::allow()
            }
        })
        .await;
        let with = json!({"timeoutSeconds": 30});
        let chains = configuration("Validating", "held", &[hooks.webhook("held", "/held", &with)])
            + &*configuration("Validating", "quick", &[hooks.webhook("quick", "/quick", &with)]);
        let additions = format!(
            "limits: {{ requestTimeout: 60s, shutdownDelay: {delay} }}\n{}",
            hooks.resolve_config()
        );
        let server = Server::start(&additions, &chains).await;
        Self { server, hooks, open }
    }

    async fn start_held_review(&self) -> JoinHandle<Reply> {
        let (client, url) = (
            self.server.client.clone(),
            self.server.program.tls_url("/validate/held"),
        );
        let review_task =
            tokio::spawn(async move { client.send(review_request(&url, &POD.review("held"))).await.unwrap() });
        self.hooks.arrivals().wait_for("/held", 1).await;
        review_task
    }

    async fn terminate_and_wait(&mut self, words: &'static str) {
        self.server.program.terminate().unwrap();
        let logged = self
            .server
            .program
            .wait_for_log(words, |line| line.message().contains(words));
        logged.await.unwrap();
    }

    async fn readiness(&self) -> u16 {
        let url = self.server.program.admin_url("/readyz");
        self.server.client.get(&url).await.unwrap().status.as_u16()
    }
}

#[tokio::test]
async fn a_review_in_flight_is_answered_and_its_connection_closed() {
    let mut held_server = HeldServer::start("10ms").await;
    assert_eq!(held_server.readiness().await, 200);
    let review_task = held_server.start_held_review().await;
    held_server
        .terminate_and_wait("requests in flight are finished first")
        .await;
    assert_eq!(held_server.readiness().await, 503);
    assert!(!review_task.is_finished());
    held_server.open.send_replace(true);
    let reply = review_task.await.unwrap();
    assert_eq!(reply.json().unwrap()["response"]["allowed"], true);
    assert_eq!(reply.headers["connection"], "close");
    assert_eq!(held_server.server.program.wait_for_end().await.unwrap().code(), Some(0));
}

/// When a Pod begins to stop, Kubernetes removes the Pod's endpoint from the Service. kube-apiserver notices that
/// later, and until then, it still sends reviews to the Pod.
#[tokio::test]
async fn new_connections_are_served_until_the_shutdown_delay_is_over() {
    let mut held_server = HeldServer::start("1h").await;
    let quick_url = held_server.server.program.tls_url("/validate/quick");
    let early_request = held_server
        .server
        .client
        .send(review_request(&quick_url, &POD.review("before")));
    assert_eq!(early_request.await.unwrap().headers.get("connection"), None);
    held_server
        .terminate_and_wait("connections are still accepted for a while")
        .await;
    assert_eq!(held_server.readiness().await, 503);
    let newcomer = Arc::new(held_server.server.http2_client());
    for (client, is_http1) in [(&held_server.server.client, true), (&*newcomer, false)] {
        let reply = client
            .send(review_request(&quick_url, &POD.review("late")))
            .await
            .unwrap();
        assert_eq!(reply.json().unwrap()["response"]["allowed"], true);
        // An HTTP/1.1 client learns from the header `connection: close` that the server will close its connection.
        // HTTP/2 has no such header. An HTTP/2 client is told later, when the server closes its port.
        let close = reply.headers.get("connection").map(|value| value.to_str().unwrap());
        assert_eq!(close, is_http1.then_some("close"));
    }
}
