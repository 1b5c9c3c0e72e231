//! Tests requests that belong to a distributed trace, and the export of spans.

pub(crate) mod collector;

use std::sync::{Arc, Mutex};

use admittance_tests::{POLL_INTERVAL, ProgramLogLine, Reply, TEST_TIMEOUT};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use self::collector::{Manner, TestCollector, attribute, spans};
use crate::{
    scene::{BCS, ProgramScene, application},
    webhooks,
};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN_ID: &str = "00f067aa0ba902b7";

/// A driver whose chain calls two webhooks: first one that gets the object alone (`BcsResource`), and then one that
/// gets an AdmissionReview. `calls` has the headers of all webhook calls.
struct TracedDriver {
    scene: ProgramScene,
    calls: Arc<Mutex<Vec<HeaderMap>>>,
}

impl TracedDriver {
    async fn start(additions: &str) -> Self {
        Self::start_with_variables(additions, &[]).await
    }

    async fn start_with_variables(additions: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bundle = webhooks::issue_certificate(directory.path(), "--service", "hook.hooks").await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = calls.clone();
        let hook = webhooks::start_tls_server(directory.path(), "hook.hooks", &[], move |_, request| {
            noted.lock().unwrap().push(request.headers().clone());
            answer_call(request)
        })
        .await;
        let config =
            format!("{BCS}{additions}webhooks:\n  resolve: {{ hook.hooks: \"{hook}\", hook.hooks.svc: \"{hook}\" }}\n");
        let chains = format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: traced }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: resource
      webhook:
        protocol: BcsResource
        service: {{ namespace: hooks, name: hook, path: /resource }}
        caBundle: {bundle}
    - name: review
      webhook:
        protocol: AdmissionReview
        service: {{ namespace: hooks, name: hook, path: /review }}
        caBundle: {bundle}
"
        );
        Self {
            scene: ProgramScene::start_with_variables(&config, &chains, variables).await,
            calls,
        }
    }

    async fn create(&self, name: &str, headers: &[(&str, &str)]) -> Reply {
        let url = self.scene.program.url("/mesosdriver/v4/namespaces/shop/applications");
        let mut request = Request::post(url)
            .header("bcs-clusterid", "BCS-MESOS-10001")
            .header("x-request-id", name);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = application("shop", name, "nginx:1.29").to_string();
        self.scene.client.send(request.body(body).unwrap()).await.unwrap()
    }

    /// Returns the values of this header in all requests that the driver has sent: first those to webhooks, and then
    /// those to the upstream server.
    fn header_values(&self, name: &str) -> Vec<Option<String>> {
        let mut header_maps = self.calls.lock().unwrap().clone();
        header_maps.extend(
            self.scene
                .upstream
                .requests()
                .into_iter()
                .map(|request| request.headers),
        );
        let text = |headers: HeaderMap| Some(headers.get(name)?.to_str().unwrap().to_owned());
        header_maps.into_iter().map(text).collect()
    }

    /// Waits for the access log's line about a request, which comes last. Returns all log lines about the request.
    async fn log_lines_of(&mut self, uid: &str) -> Vec<ProgramLogLine> {
        let is_access =
            |line: &ProgramLogLine| line.field("target") == "admittance::access" && line.field("uid") == uid;
        self.scene
            .program
            .wait_for_log("the request's line", is_access)
            .await
            .unwrap();
        let mut lines = self.scene.program.log();
        lines.retain(|line| uid == field_or_span_field(line, "uid"));
        lines
    }
}

/// Returns a field of a log line. If the line lacks the field, returns the field of the line's span.
fn field_or_span_field(line: &ProgramLogLine, name: &str) -> String {
    let fields = line.fields();
    let value = fields.get(name).unwrap_or(&fields["span"][name]);
    value.as_str().unwrap_or_default().to_owned()
}

async fn answer_call(request: Request<Incoming>) -> std::io::Result<Response<Full<Bytes>>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if path == "/resource" {
        return Ok(Response::new(Full::new(body)));
    }
    let review: Value = serde_json::from_slice(&body).unwrap();
    let is_bad = review["request"]["name"] == "bad";
    let response = json!({"uid": review["request"]["uid"], "allowed": !is_bad});
    let reply = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::new(Bytes::from(reply.to_string()))))
}

#[tokio::test]
async fn a_trace_id_is_passed_on_and_is_in_every_log_line() {
    let mut traced = TracedDriver::start("").await;
    let parent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "a=1,b=2")];
    assert_eq!(traced.create("good", &headers).await.status, 200);
    assert_eq!(traced.create("bad", &headers).await.status, 400);
    // Two requests were sent, and each was sent on to two webhooks. The first request was allowed, so it was also sent
    // to the upstream server. That makes five headers.
    assert_eq!(traced.header_values("traceparent"), vec![Some(parent); 5]);
    assert_eq!(traced.header_values("tracestate"), vec![Some("a=1,b=2".to_owned()); 5]);
    for (uid, least) in [("good", 1), ("bad", 2)] {
        let lines = traced.log_lines_of(uid).await;
        assert!(lines.len() >= least, "{lines:?}");
        for line in lines {
            assert_eq!(field_or_span_field(&line, "trace_id"), TRACE_ID, "{}", line.text);
        }
    }
}

#[tokio::test]
async fn no_trace_is_passed_on_without_a_valid_parent() {
    let mut traced = TracedDriver::start("").await;
    let zero = "0".repeat(32);
    for (name, parent) in [
        ("zero", Some(format!("00-{zero}-{SPAN_ID}-01"))),
        ("short", Some("00-1-2-01".to_owned())),
        ("none", None),
    ] {
        let mut headers = vec![("tracestate", "a=1")];
        headers.extend(parent.as_ref().map(|parent| ("traceparent", parent.as_str())));
        assert_eq!(traced.create(name, &headers).await.status, 200, "{name}");
        for line in traced.log_lines_of(name).await {
            assert_eq!(field_or_span_field(&line, "trace_id"), "", "{}", line.text);
        }
    }
    assert_eq!(traced.header_values("traceparent"), vec![None; 9]);
    assert_eq!(traced.header_values("tracestate"), vec![None; 9]);
}

fn tracing_config(collector: &TestCollector, additions: &str) -> String {
    format!("tracing: {{ endpoint: \"http://{}\"{additions} }}\n", collector.address)
}

/// Returns the ID of the trace and the ID of the span in the value of a header `traceparent`.
fn trace_and_span_ids(parent: &str) -> [&str; 2] {
    let parts: Vec<_> = parent.split('-').collect();
    [parts[1], parts[2]]
}

#[tokio::test]
async fn spans_reach_a_collector_with_their_parents() {
    let collector = TestCollector::start(Manner::Accepts).await;
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "Bearer secret\n").unwrap();
    let headers = format!(", headers: {{ authorization: \"{}\" }}", token.path().display());
    let mut traced = TracedDriver::start(&tracing_config(&collector, &headers)).await;
    let parent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "a=1")];
    assert_eq!(traced.create("good", &headers).await.status, 200);
    let exports = collector.until_received(|spans| spans.len() >= 7).await;
    let spans = spans(&exports);
    let spans_named = |name: &str| {
        let matching_spans: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        matching_spans
    };
    let [request] = spans_named("POST")[..] else {
        panic!("{spans:#?}")
    };
    let [chain] = spans_named("chain traced")[..] else {
        panic!("{spans:#?}")
    };
    let [upstream] = spans_named("upstream")[..] else {
        panic!("{spans:#?}")
    };
    assert_eq!(hex::encode(&request.parent_span_id), SPAN_ID);
    assert_eq!(attribute(&request.attributes, "admittance.uid"), "good");
    assert_eq!(attribute(&request.attributes, "admittance.passage"), "allowed");
    assert_eq!(attribute(&request.attributes, "http.response.status_code"), "200");
    assert_eq!(chain.parent_span_id, request.span_id);
    assert_eq!(upstream.parent_span_id, request.span_id);
    // In each call to a webhook or to the upstream server, the header `traceparent` has the ID of the driver's span for
    // this call.
    let mut callers = Vec::new();
    for name in ["stage resource", "stage review"] {
        let [stage] = spans_named(name)[..] else {
            panic!("{spans:#?}")
        };
        assert_eq!(stage.parent_span_id, chain.span_id);
        assert_eq!(attribute(&stage.attributes, "admittance.verdict"), "allow");
        let call = spans_named("webhook")
            .into_iter()
            .find(|call| call.parent_span_id == stage.span_id);
        callers.push(hex::encode(&call.unwrap().span_id));
    }
    callers.push(hex::encode(&upstream.span_id));
    for (traceparent, caller) in traced.header_values("traceparent").into_iter().zip(callers) {
        assert_eq!(trace_and_span_ids(&traceparent.unwrap()), [TRACE_ID, caller.as_str()]);
    }
    assert_eq!(traced.header_values("tracestate"), vec![Some("a=1".to_owned()); 3]);
    for span in &spans {
        assert_eq!(hex::encode(&span.trace_id), TRACE_ID, "{}", span.name);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    assert_eq!(exports[0].headers["authorization"], "Bearer secret");
    assert_eq!(attribute(&exports[0].resource.attributes, "service.name"), "admittance");
    for line in traced.log_lines_of("good").await {
        assert_eq!(field_or_span_field(&line, "trace_id"), TRACE_ID, "{}", line.text);
    }

    assert_eq!(traced.create("bad", &headers).await.status, 400);
    let denied_exports = collector
        .until_received(|spans| {
            spans
                .iter()
                .any(|span| attribute(&span.attributes, "admittance.uid") == "bad")
        })
        .await;
    let denied = collector::spans(&denied_exports)
        .iter()
        .any(|span| attribute(&span.attributes, "admittance.verdict") == "deny");
    assert!(denied);
}

#[tokio::test]
async fn the_driver_can_start_a_trace_for_a_request_without_a_parent() {
    let collector = TestCollector::start(Manner::Accepts).await;
    let mut traced = TracedDriver::start(&tracing_config(&collector, ", protocol: http/json")).await;
    assert_eq!(traced.create("good", &[]).await.status, 200);
    let exports = collector.until_received(|spans| spans.len() >= 7).await;
    let spans = spans(&exports);
    let root = spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert_eq!(root.name, "POST");
    let trace = hex::encode(&root.trace_id);
    for traceparent in traced.header_values("traceparent") {
        assert_eq!(trace_and_span_ids(&traceparent.unwrap())[0], trace);
    }
    for line in traced.log_lines_of("good").await {
        assert_eq!(field_or_span_field(&line, "trace_id"), trace, "{}", line.text);
    }
}

/// If a caller decides that a trace is not sampled, the driver exports no spans of it, and passes the decision on.
#[tokio::test]
async fn a_trace_that_is_not_sampled_is_not_exported() {
    let collector = TestCollector::start(Manner::Accepts).await;
    let mut traced = TracedDriver::start(&tracing_config(&collector, "")).await;
    let parent = format!("00-{TRACE_ID}-{SPAN_ID}-00");
    let headers = [("traceparent", parent.as_str())];
    assert_eq!(traced.create("quiet", &headers).await.status, 200);
    for header in traced.header_values("traceparent") {
        let traceparent = header.unwrap();
        assert!(
            traceparent.starts_with(&format!("00-{TRACE_ID}-")) && traceparent.ends_with("-00"),
            "{traceparent}"
        );
    }
    for line in traced.log_lines_of("quiet").await {
        assert_eq!(field_or_span_field(&line, "trace_id"), TRACE_ID, "{}", line.text);
    }
    // The next request has no `traceparent`, so the driver begins a new trace for it, and exports the spans.
    assert_eq!(traced.create("good", &[]).await.status, 200);
    let exports = collector.until_received(|spans| spans.len() >= 7).await;
    let spans = spans(&exports);
    assert!(
        spans.iter().all(|span| hex::encode(&span.trace_id) != TRACE_ID),
        "{spans:#?}"
    );
}

async fn span_count(traced: &TracedDriver, result: &str) -> f64 {
    let metrics = traced.scene.program.metrics().await.unwrap();
    metrics.sum("admittance_spans_total", &[("result", result)]).unwrap()
}

/// Waits until at least one span is counted with this result. The count follows shortly after the log line.
async fn until_counted(traced: &TracedDriver, result: &str) {
    let counting = async {
        while span_count(traced, result).await == 0.0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let counted = tokio::time::timeout(TEST_TIMEOUT, counting).await;
    counted.unwrap_or_else(|_| panic!("no span is counted as {result}"));
}

#[tokio::test]
async fn a_failing_collector_delays_no_request() {
    let collector = TestCollector::start(Manner::Hangs).await;
    let mut traced = TracedDriver::start_with_variables(
        &tracing_config(&collector, ", timeout: 500ms"),
        &[("OTEL_BSP_MAX_QUEUE_SIZE", "20"), ("OTEL_BSP_SCHEDULE_DELAY", "100")],
    )
    .await;
    // As the collector hangs, spans fill the queue, until the program has to drop one.
    for number in 0.. {
        assert_eq!(traced.create(&format!("good-{number}"), &[]).await.status, 200);
        if span_count(&traced, "dropped").await > 0.0 {
            break;
        }
    }
    let log = &mut traced.scene.program;
    let is_failure = |line: &ProgramLogLine| line.message().contains("does not accept spans");
    log.wait_for_log("the failure", is_failure).await.unwrap();
    until_counted(&traced, "failed").await;

    collector.set_manner(Manner::Refuses);
    assert_eq!(traced.create("refused", &[]).await.status, 200);
    collector.set_manner(Manner::Accepts);
    let is_end = |line: &ProgramLogLine| line.message().contains("accepts spans again");
    assert_eq!(traced.create("accepted", &[]).await.status, 200);
    traced.scene.program.wait_for_log("the end", is_end).await.unwrap();
    until_counted(&traced, "exported").await;
}

/// The program exports its last spans before it exits.
#[tokio::test]
async fn environment_variables_can_enable_the_export_of_spans() {
    let collector = TestCollector::start(Manner::Accepts).await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_SERVICE_NAME", "hooks"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
    ];
    let mut traced = TracedDriver::start_with_variables("", &variables).await;
    assert_eq!(traced.create("good", &[]).await.status, 200);
    traced.scene.program.terminate().unwrap();
    let exports = collector.until_received(|spans| spans.len() >= 7).await;
    assert_eq!(attribute(&exports[0].resource.attributes, "service.name"), "hooks");
    traced.scene.program.wait_without_timeout().await.unwrap();
}
