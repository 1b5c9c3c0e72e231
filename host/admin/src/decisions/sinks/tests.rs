use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use admittance::{
    DecisionsConfig, Host,
    admission::{
        Chain, Deadline, Denial, Failure, GroupVersionKind, Hook, Object, Operation, Request, Response, Rule, Stage,
        Uid, async_trait,
    },
};
use axum::{Router, http::StatusCode, routing::post};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::decisions::config::{HttpConfig, NdjsonTarget};

struct OwnerRequired;

#[async_trait]
impl Hook for OwnerRequired {
    async fn admit(&self, request: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        let labels = request.object.as_ref().map(Object::labels);
        Ok(match labels.and_then(|labels| labels.get("owner")) {
            Some(_) => Response::allow(),
            None => Response::deny(Denial::forbidden("no owner")),
        })
    }
}

async fn host_with_owner_rule() -> Host {
    let rules = vec![Rule::for_operations([Operation::Create])];
    let chain = Chain::new("owners", rules, vec![Stage::new("owner", OwnerRequired)]);
    let builder = Host::builder().decisions(DecisionsConfig::default()).chain(chain);
    builder.build().await.unwrap()
}

async fn admit(host: &Host, uid: &str, has_owner: bool) {
    let owner = if has_owner { r#"{"owner":"a"}"# } else { "{}" };
    let text = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web","labels":{owner}}}}}"#);
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let mut request =
        Request::new(Operation::Create, kind.clone(), kind.guess_resource()).with_object(Object::parse(text).unwrap());
    request.uid = Uid::from(uid.to_owned());
    host.admit(request).await;
}

fn uids(lines: &str) -> Vec<String> {
    let uid = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["uid"].as_str().unwrap().to_owned()
    };
    lines.lines().map(uid).collect()
}

fn file_config(path: PathBuf) -> SinksConfig {
    SinksConfig {
        ndjson: Some(NdjsonTarget::File(path)),
        ..SinksConfig::default()
    }
}

#[tokio::test]
async fn queued_decisions_are_written_at_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.ndjson");
    let host = host_with_owner_rule().await;
    let sinks = DecisionSinks::open(file_config(path.clone()), None).await.unwrap();
    let running = sinks.start(host.decisions());
    let expected: Vec<_> = (0..1200).map(|number| number.to_string()).collect();
    for uid in &expected {
        admit(&host, uid, true).await;
    }
    running.finish().await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(uids(&text), expected);
    assert!(
        !text.contains("review"),
        "objects are not written unless that is configured"
    );
}

#[tokio::test]
async fn all_refusals_and_a_share_of_unchanged_requests_are_written() {
    for (share, objects, expected) in [
        (None, false, vec!["b", "d"]),
        ("50%".parse().ok(), true, vec!["a", "b", "d", "e"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.ndjson");
        let host = host_with_owner_rule().await;
        let config = SinksConfig {
            share,
            objects,
            ..file_config(path.clone())
        };
        let running = DecisionSinks::open(config, None).await.unwrap().start(host.decisions());
        for (uid, has_owner) in [("a", true), ("b", false), ("c", true), ("d", false), ("e", true)] {
            admit(&host, uid, has_owner).await;
        }
        running.finish().await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(uids(&text), expected);
        assert_eq!(text.contains("\"review\""), objects);
    }
}

/// Starts a server whose first responses have these statuses.
async fn start_server(statuses: &[u16]) -> (SocketAddr, Arc<Mutex<String>>, Arc<Mutex<Vec<u16>>>) {
    let received_lines = Arc::new(Mutex::new(String::new()));
    let statuses = Arc::new(Mutex::new(statuses.to_vec()));
    let (lines, first) = (received_lines.clone(), statuses.clone());
    let router = Router::new().route(
        "/decisions",
        post(async move |body: String| {
            let mut first = first.lock().unwrap();
            if !first.is_empty() {
                return StatusCode::from_u16(first.remove(0)).unwrap();
            }
            lines.lock().unwrap().push_str(&body);
            StatusCode::NO_CONTENT
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, received_lines, statuses)
}

fn http_sink(address: SocketAddr) -> HttpSink {
    let config = HttpConfig {
        url: format!("http://{address}/decisions").parse().unwrap(),
        token_file: None,
        ca: None,
    };
    HttpSink::new(config).unwrap()
}

async fn denied_batch() -> Vec<DecisionDetail> {
    let host = host_with_owner_rule().await;
    for uid in ["a", "b", "c"] {
        admit(&host, uid, false).await;
    }
    let log = host.decisions();
    let decisions = ["a", "b", "c"].map(|uid| log.get(uid, None).0);
    decisions
        .iter()
        .flatten()
        .map(|decision| decision.record().into())
        .collect()
}

#[tokio::test]
async fn decisions_are_sent_again_to_a_busy_server() {
    let (address, kept, _) = start_server(&[503, 429]).await;
    let mut sink = http_sink(address);
    let failures = Arc::new(AtomicU64::new(0));
    write_with_retries(&mut sink, &denied_batch().await, &Counter::from_arc(failures.clone()))
        .await
        .unwrap();
    assert_eq!(uids(&kept.lock().unwrap()), ["a", "b", "c"]);
    assert_eq!(failures.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn decisions_that_a_server_refuses_do_not_block_the_next_ones() {
    let (address, kept, _) = start_server(&[413]).await;
    let mut sink = http_sink(address);
    let batch = denied_batch().await;
    let refused = write_with_retries(&mut sink, &batch, &Counter::noop())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("answered with 413"), "{refused}");
    write_with_retries(&mut sink, &batch, &Counter::noop()).await.unwrap();
    assert_eq!(uids(&kept.lock().unwrap()), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_server_that_sends_only_informational_responses_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut sink = http_sink(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n";
        while stream.write_all(hints).await.is_ok() {}
    });
    let error = sink.write(&denied_batch().await).await.unwrap_err();
    assert!(error.to_string().contains("informational responses"), "{error}");
}

#[tokio::test]
async fn decisions_are_dropped_and_counted_while_the_queue_is_full() {
    let host = host_with_owner_rule().await;
    let decisions = host.decisions().follow(DecisionFilter::default(), None);
    for _ in 0..100 {
        admit(&host, "a", false).await;
    }
    let size = host.decisions().get("a", None).0[0].size();
    let (sender, mut queue) = mpsc::unbounded_channel();
    let dropped = Arc::new(AtomicU64::new(0));
    let stop = CancellationToken::new();
    stop.cancel();
    let selection = SinkSelection {
        share: Some(Share::WHOLE),
        has_objects: false,
    };
    let counter = Counter::from_arc(dropped.clone());
    // The queue has room for ten decisions. Some decisions are a little larger than `size`, so half a decision is
    // added. Nothing is taken out of the queue while the decisions are put into it.
    let room = 10 * size + size / 2;
    let reading = queue_decisions(decisions, sender, room, selection, counter, stop);
    let counting = async {
        let mut queued_decisions = Vec::new();
        reading.await;
        while let Some(waiting) = queue.recv().await {
            queued_decisions.push(waiting);
        }
        queued_decisions.len()
    };
    let queued_count = counting.await;
    assert_eq!((queued_count, dropped.load(Ordering::Relaxed)), (10, 90));
}
