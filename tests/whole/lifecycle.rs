//! Tests the program from startup to exit: configuration, ports, store, metrics and shutdown.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance::admission::FailureKind;
use admittance_tests::{Admittance, Client, FakeUpstream, ModuleServer, ScrapedMetrics, Serve, Versions};
use http::Method;
use serde_json::json;

use crate::scene::{BCS, ProgramScene, application, source, write};

fn chain() -> String {
    format!(
        "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: good }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: good
      plugin: {{ source: \"{}\", settings: {{ behaviour: well-behaved }} }}
      failurePolicy: Fail
",
        source("guest-misbehaves")
    )
}

/// Sends SIGTERM to the program, and waits until it has begun to shut down.
async fn begin_shutdown(program: &mut Admittance) {
    program.terminate().unwrap();
    program
        .wait_for_log("the beginning of the shutdown", |line| {
            line.message().starts_with("stopping")
        })
        .await
        .unwrap();
}

/// Sends a request, and waits until the program has forwarded it to the upstream server, which does not answer yet.
async fn start_pending_request(
    upstream: &FakeUpstream,
    program: &Admittance,
) -> tokio::task::JoinHandle<Result<admittance_tests::Reply, admittance_tests::Error>> {
    let before = upstream.requests().len();
    let url = program.url("/mesosdriver/v4/namespaces/shop/applications");
    let body = application("shop", "web", "nginx:1.29").to_string();
    let client = Client::new().unwrap();
    let pending_reply = tokio::spawn(async move { client.send_bcs(Method::POST, &url, body).await });
    upstream.wait_until_received(before + 1).await;
    pending_reply
}

#[tokio::test]
async fn the_first_signal_lets_requests_in_flight_finish() {
    let ProgramScene {
        upstream,
        mut program,
        client,
        ..
    } = ProgramScene::start_bcs(&chain()).await;
    let ready = client.get(&program.admin_url("/readyz")).await.unwrap();
    let (answer, status) = (ready.json().unwrap(), program.status().await.unwrap());
    let hash = status["hash"].as_str().unwrap();
    let short_hash = hash.strip_prefix("sha256:").unwrap().get(..12).unwrap();
    assert_eq!(ready.status.as_u16(), 200);
    assert_eq!(answer, json!({"ready": true, "table": short_hash}));
    let hash_number = u64::from_str_radix(short_hash, 16).unwrap() as f64;
    let metrics = program.metrics().await.unwrap();
    assert_eq!(metrics.sum("admittance_table_hash", &[]), Some(hash_number));

    let gate = upstream.close_gate();
    let pending_reply = start_pending_request(&upstream, &program).await;
    begin_shutdown(&mut program).await;
    assert_eq!(client.get(&program.admin_url("/readyz")).await.unwrap().status, 503);
    assert_eq!(client.get(&program.admin_url("/healthz")).await.unwrap().status, 200);
    assert!(!pending_reply.is_finished());

    drop(gate);
    let reply = pending_reply.await.unwrap().unwrap();
    assert_eq!(
        reply.json().unwrap()["data"]["metadata"]["annotations"]["well-behaved"],
        "true"
    );
    assert_eq!(program.wait_for_end().await.unwrap().code(), Some(0));
    let late_reply = client
        .get(&program.url("/mesosdriver/v4/namespaces/shop/applications"))
        .await;
    assert!(late_reply.is_err(), "nobody listens");
}

#[tokio::test]
async fn the_second_signal_aborts_requests_in_flight() {
    let ProgramScene {
        upstream, mut program, ..
    } = ProgramScene::start_bcs(&chain()).await;
    let _gate = upstream.close_gate();
    let pending_reply = start_pending_request(&upstream, &program).await;
    begin_shutdown(&mut program).await;
    program.terminate().unwrap();
    assert_eq!(program.wait_for_end().await.unwrap().code(), Some(1));
    assert!(pending_reply.await.unwrap().is_err(), "there was no reply to give");
}

#[tokio::test]
async fn the_shutdown_timeout_aborts_requests_in_flight() {
    let config = format!("{BCS}limits: {{ shutdownTimeout: 50ms }}\n");
    let ProgramScene {
        upstream, mut program, ..
    } = ProgramScene::start_with_config(&config, &chain()).await;
    let _gate = upstream.close_gate();
    let pending_reply = start_pending_request(&upstream, &program).await;
    program.terminate().unwrap();
    assert_eq!(program.wait_for_end().await.unwrap().code(), Some(1));
    assert!(pending_reply.await.unwrap().is_err());
}

#[tokio::test]
async fn a_request_beyond_the_concurrency_limit_is_refused_at_once() {
    let config = format!("{BCS}limits: {{ concurrency: 1 }}\n");
    let scene = ProgramScene::start_with_config(&config, &chain()).await;
    let gate = scene.upstream.close_gate();
    let pending_reply = start_pending_request(&scene.upstream, &scene.program).await;
    let reply = scene.create(&application("shop", "second", "nginx:1.29")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.headers["retry-after"], "1");
    assert_eq!(reply.json().unwrap()["code"], 1_405_230);
    drop(gate);
    assert_eq!(pending_reply.await.unwrap().unwrap().status, 200);
    assert_eq!(scene.stored_object("shop", "second"), None);
    // The program may count a request as finished a moment after the client has the whole reply.
    while scene
        .program
        .metrics()
        .await
        .unwrap()
        .sum("admittance_http_requests_in_flight", &[])
        != Some(0.0)
    {}
    assert_eq!(
        scene.create(&application("shop", "third", "nginx:1.29")).await.status,
        200
    );
}

#[tokio::test]
async fn metrics_count_the_results_of_each_stage() {
    let (misbehaves, images) = (source("guest-misbehaves"), source("image-policy"));
    let scene = ProgramScene::start_bcs(&format!(
        "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: mixed }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: changes
      plugin: {{ source: \"{misbehaves}\", settings: {{ behaviour: well-behaved }} }}
    - name: images
      plugin: {{ source: \"{images}\", settings: {{ refuseLatest: true }} }}
    - name: fails
      plugin: {{ source: \"{misbehaves}\", settings: {{ behaviour: returns-error }} }}
      failurePolicy: Ignore
    - name: audited
      plugin: {{ source: \"{misbehaves}\", settings: {{ behaviour: returns-error }} }}
      failurePolicy: Fail
      mode: Audit
"
    ))
    .await;
    let initial_metrics = scene.program.metrics().await.unwrap();
    for (name, image, status) in [("a", "nginx:1", 200), ("b", "nginx:1", 200), ("c", "nginx:latest", 400)] {
        assert_eq!(scene.create(&application("shop", name, image)).await.status, status);
    }
    check_counters_begin_at_zero(&initial_metrics);
    let metrics = scene.program.metrics().await.unwrap();
    let stages = "admittance_stage_duration_seconds_count";
    let failures = "admittance_stage_failures_total";
    let table: [(&str, &[(&str, &str)], Option<f64>); 12] = [
        ("admittance_requests_total", &[("decision", "changed")], Some(2.0)),
        ("admittance_requests_total", &[("decision", "denied")], Some(1.0)),
        ("admittance_request_duration_seconds_count", &[], Some(3.0)),
        (
            stages,
            &[("chain", "mixed"), ("stage", "changes"), ("verdict", "patch")],
            Some(3.0),
        ),
        (stages, &[("stage", "images"), ("verdict", "allow")], Some(2.0)),
        (stages, &[("stage", "images"), ("verdict", "deny")], Some(1.0)),
        (
            stages,
            &[("stage", "fails"), ("verdict", "failed"), ("mode", "Enforce")],
            Some(2.0),
        ),
        (
            stages,
            &[("stage", "audited"), ("verdict", "failed"), ("mode", "Audit")],
            Some(2.0),
        ),
        (
            failures,
            &[("stage", "fails"), ("failure", "error"), ("policy", "Ignore")],
            Some(2.0),
        ),
        (
            failures,
            &[("stage", "audited"), ("failure", "error"), ("policy", "Ignore")],
            Some(2.0),
        ),
        ("admittance_http_requests_total", &[("status", "2xx")], Some(2.0)),
        ("admittance_http_requests_total", &[("status", "4xx")], Some(1.0)),
    ];
    for (name, labels, expected) in table {
        assert_eq!(
            metrics.sum(name, labels),
            expected,
            "{name} {labels:?}\n{}",
            metrics.text()
        );
    }
    for bucket in ["0.00001", "10"] {
        let labels = [("stage", "changes"), ("le", bucket)];
        assert!(
            metrics
                .sum("admittance_stage_duration_seconds_bucket", &labels)
                .is_some(),
            "{bucket}"
        );
    }
}

/// If a counter first appeared with the value 1, the PromQL function `increase()` would miss the first failure.
fn check_counters_begin_at_zero(metrics: &ScrapedMetrics) {
    let failures = "admittance_stage_failures_total";
    for failure in FailureKind::ALL {
        // A stage can fail in these ways only if it has a webhook, a selector or conditions. The stages of this test
        // have none of these.
        let can_fail = ![
            "unreachable",
            "tls",
            "bad-status",
            "namespace-unknown",
            "condition-failed",
        ]
        .contains(&failure.as_str());
        // The stage `audited` has the failure policy `Fail`, but it is in Audit mode. So its failures are counted as
        // ignored, like those of a stage with the failure policy `Ignore`.
        for (stage, policy) in [("changes", "Fail"), ("fails", "Ignore"), ("audited", "Ignore")] {
            let labels = [("stage", stage), ("policy", policy), ("failure", failure.as_str())];
            assert_eq!(metrics.sum(failures, &labels), can_fail.then_some(0.0), "{labels:?}");
        }
    }
    let table: [(&str, &[(&str, &str)]); 13] = [
        ("admittance_requests_total", &[("decision", "failed")]),
        ("admittance_requests_total", &[("decision", "deadline")]),
        ("admittance_tables_total", &[("result", "failed")]),
        ("admittance_write_failures_total", &[("directory", "history")]),
        ("admittance_write_failures_total", &[("directory", "store")]),
        ("admittance_http_requests_shed_total", &[]),
        ("admittance_http_bodies_refused_total", &[]),
        ("admittance_http_stalled_total", &[("who", "client"), ("how", "idle")]),
        ("admittance_http_stalled_total", &[("who", "client"), ("how", "slow")]),
        ("admittance_http_stalled_total", &[("who", "upstream"), ("how", "idle")]),
        ("admittance_http_stalled_total", &[("who", "tunnel"), ("how", "idle")]),
        ("admittance_http_upstream_errors_total", &[("reason", "timeout")]),
        ("admittance_http_upstream_connect_failures_total", &[]),
    ];
    for (name, labels) in table {
        assert_eq!(metrics.sum(name, labels), Some(0.0), "{name} {labels:?}");
    }
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(metrics.sum("admittance_build_info", &version), Some(1.0));
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_threads"] {
        assert!(metrics.sum(name, &[]) > Some(1.0), "{name}");
    }
}

/// Starts the program once. Returns for each plugin whether the program found it compiled in the store.
async fn plugins_found_in_store(config: &Path, store: &Path) -> Vec<bool> {
    let upstream = FakeUpstream::start().await.unwrap();
    let program = Serve::new(config)
        .unwrap()
        .upstream(&upstream.url())
        .store(store)
        .start()
        .await
        .unwrap();
    let url = program.url("/mesosdriver/v4/namespaces/shop/applications");
    let body = application("shop", "web", "nginx:1.29").to_string();
    let reply = Client::new().unwrap().send_bcs(Method::POST, &url, body).await.unwrap();
    assert_eq!(
        reply.json().unwrap()["data"]["metadata"]["annotations"]["well-behaved"],
        "true"
    );
    let load_lines = program
        .log()
        .into_iter()
        .filter(|line| line.message() == "plugin loaded");
    load_lines
        .map(|line| line.fields()["from_store"].as_bool().unwrap())
        .collect()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files_below(&path))
        } else {
            files.push(path)
        }
    }
    files
}

/// Replicas on one node share a store. When a replica starts, it removes temporary files of programs that were killed.
/// A replica must not remove the files that another replica is just writing.
#[tokio::test]
async fn several_programs_can_share_a_store() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", chain());
    let config = write(&directory, "admittance.yaml", BCS);
    let store = directory.path().join("store");
    let starts = [(); 3].map(|()| plugins_found_in_store(&config, &store));
    let [first, second, third] = starts;
    for found_in_store in <[Vec<bool>; 3]>::from(tokio::join!(first, second, third)) {
        assert_eq!(found_in_store.len(), 1);
    }
    // All replicas wrote the same compiled plugin into the store, and none left a temporary file.
    assert_eq!(plugins_found_in_store(&config, &store).await, [true]);
    assert_eq!(files_below(&store.join("temporary")), Vec::<PathBuf>::new());
    assert_eq!(files_below(&store.join("compiled")).len(), 1);
}

#[tokio::test]
async fn a_plugin_is_compiled_again_only_if_its_store_entry_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", chain());
    let config = write(&directory, "admittance.yaml", BCS);
    let store = directory.path().join("store");
    assert_eq!(plugins_found_in_store(&config, &store).await, [false]);
    assert_eq!(plugins_found_in_store(&config, &store).await, [true]);

    let flip_last: fn(&mut Vec<u8>) = |bytes| *bytes.last_mut().unwrap() ^= 1;
    let flip_middle: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() / 2);
    let empty: fn(&mut Vec<u8>) = Vec::clear;
    for (name, damage) in [
        ("last", flip_last),
        ("middle", flip_middle),
        ("cut", cut),
        ("empty", empty),
    ] {
        let files = files_below(&store);
        assert!(!files.is_empty());
        for file in files {
            let mut bytes = fs::read(&file).unwrap();
            damage(&mut bytes);
            fs::write(&file, bytes).unwrap();
        }
        assert_eq!(plugins_found_in_store(&config, &store).await, [false], "{name}");
        assert_eq!(
            plugins_found_in_store(&config, &store).await,
            [true],
            "{name}: it was put right"
        );
    }
}

#[tokio::test]
async fn every_mistake_of_the_configuration_is_reported_before_a_port_is_bound() {
    let directory = tempfile::tempdir().unwrap();
    // The configuration has an address that is in use. If the program tried to listen on it, it would report an error.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = write(
        &directory,
        "admittance.yaml",
        format!(
            "listen: {{ address: \"{address}\", tls: {{ certificate: absent.pem, key: absent.key }} }}
dialect: {{ bcs: {{ cluster: \"\" }} }}
upstream:
  servers: [\"ftp://127.0.0.1\"]
  connectTimeout: soon
limits: {{ body: -1, concurency: 5 }}
log: {{ level: loud }}
"
        ),
    );
    let finished = Serve::new(&config).unwrap().listen(address).finish().await.unwrap();
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    for (line, words) in [
        (1, "listen.tls"),
        (2, "dialect.bcs.cluster"),
        (4, "upstream.servers"),
        (5, "upstream.connectTimeout"),
        (6, "limits.body"),
        (6, "concurency"),
        (7, "log.level"),
    ] {
        let location = format!("admittance.yaml:{line}:");
        let is_reported = finished
            .stderr
            .lines()
            .any(|text| text.contains(&location) && text.contains(words));
        assert!(is_reported, "{location} {words} in:\n{}", finished.stderr);
    }
    assert!(!finished.stderr.contains("listened on"), "{}", finished.stderr);
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    write(&directory, "chains.yaml", chain());
    let config = write(
        &directory,
        "admittance.yaml",
        format!("{BCS}listen: {{ address: \"{address}\" }}\n"),
    );
    let serve = Serve::new(&config)
        .unwrap()
        .store(crate::scene::store())
        .listen_as_configured();
    let finished = serve.finish().await.unwrap();
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    let words = format!("listen.address: cannot listen on {address}");
    assert!(finished.stderr.contains(&words), "{}", finished.stderr);
}

#[tokio::test]
async fn world_readable_keys_are_reported_at_startup() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let arguments = ["certs", "--host", "localhost", "--client", "spans", "--out", out];
    let certs_output = Admittance::run(arguments).await.unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
    let config = format!(
        "{BCS}listen: {{ tls: {{ certificate: localhost.pem, key: localhost.key }} }}
tracing: {{ endpoint: \"http://127.0.0.1:1\", tls: {{ certificate: spans.pem, key: spans.key }} }}
"
    );
    let config = write(&directory, "admittance.yaml", config);
    write(&directory, "chains.yaml", chain());
    let keys = ["localhost.key", "spans.key"];
    for key in keys {
        fs::set_permissions(directory.path().join(key), Permissions::from_mode(0o644)).unwrap();
    }
    let serve = Serve::new(config).unwrap().store(crate::scene::store());
    let mut program = serve.start().await.unwrap();
    for key in keys {
        let words = format!("{key}: the private key is readable by every user");
        program
            .wait_for_log(key, |line| line.message().contains(&words))
            .await
            .unwrap();
    }
}

/// systemd restarts the program, except after an exit code which says that the configuration has to change first.
#[tokio::test]
async fn the_exit_code_says_whether_a_restart_may_help() {
    const TRANSIENT_ERROR: i32 = 75;
    const INVALID_CONFIG: i32 = 2;
    let directory = tempfile::tempdir().unwrap();
    let chain = |stage: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: a }}\nspec:\n  \
             rules: [{{ operations: [CREATE], kinds: [application] }}]\n  stages: [ {{ name: a, {stage} }} ]\n"
        )
    };
    let unreachable_chain = write(
        &directory,
        "far.yaml",
        chain("plugin: { source: \"https://127.0.0.1:1/a.wasm\" }"),
    );
    let invalid_chain = write(&directory, "wrong.yaml", chain("plugin: { sauce: \"file:a.wasm\" }"));
    let object = write(
        &directory,
        "object.json",
        application("shop", "web", "nginx:1.29").to_string(),
    );
    let config = |definitions: &str| {
        format!(
            "dialect: {{ bcs: {{ cluster: BCS-MESOS-10001 }} }}\nupstream: {{ servers: [\"http://127.0.0.1:1\"] }}\n\
             zookeeper: {{ cluster: {{ servers: [\"127.0.0.1:1\"] }} }}\nmodules: {{ attempts: 1 }}\n\
             definitions: [ {definitions} ]\n"
        )
    };
    let zookeeper_config = write(&directory, "stored.yaml", config("{ zookeeper: {} }"));
    let invalid_config = write(&directory, "mistaken.yaml", config("wrong.yaml"));
    let store = directory.path().join("store");
    let serve_config = async |config: &Path| {
        let serve = Serve::new(config).unwrap().store(&store);
        serve.finish().await.unwrap()
    };
    let run_chain = async |chain: &Path| {
        let arguments = [
            "run".as_ref(),
            chain.as_os_str(),
            object.as_os_str(),
            "--config".as_ref(),
            zookeeper_config.as_os_str(),
            "--store".as_ref(),
            store.as_os_str(),
        ];
        Admittance::run(arguments).await.unwrap()
    };
    let page_text = fs::read_to_string(admittance_tests::repository().join("docs/operators.md")).unwrap();
    let mut lines = page_text.lines();
    let preventing_codes: Vec<_> = lines
        .find_map(|line| line.strip_prefix("RestartPreventExitStatus="))
        .unwrap()
        .split_whitespace()
        .collect();
    for (finished, expected, words) in [
        (serve_config(&zookeeper_config).await, TRANSIENT_ERROR, "zookeeper"),
        (serve_config(&invalid_config).await, INVALID_CONFIG, "sauce"),
        (
            run_chain(&unreachable_chain).await,
            TRANSIENT_ERROR,
            "https://127.0.0.1:1/a.wasm",
        ),
        (run_chain(&invalid_chain).await, INVALID_CONFIG, "sauce"),
    ] {
        assert_eq!(finished.code, Some(expected), "{words}: {}", finished.stderr);
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
        let is_final = preventing_codes.contains(&expected.to_string().as_str());
        assert_eq!(is_final, expected == INVALID_CONFIG, "{preventing_codes:?}");
    }
}

#[tokio::test]
async fn status_shows_the_upstream() {
    let scene = ProgramScene::start_bcs(&chain()).await;
    let status = scene.program.status().await.unwrap();
    let server = status["upstream"][0]["server"].as_str().unwrap().to_owned();
    let address = scene.program.admin_url("");
    let status_output = Admittance::run(["status", "--server", &address]).await.unwrap();
    let line = format!("upstream {server}: up");
    assert!(status_output.stdout.contains(&line), "{}", status_output.stdout);
}

/// While modules are loaded, the program answers probes of its readiness and requests for its metrics.
#[tokio::test]
async fn the_admin_port_is_open_from_the_start() {
    let server = ModuleServer::start().await.unwrap();
    server.put("versions.wasm", Versions::find().unwrap().module(1));
    server.slow_down(Duration::from_secs(1));
    let directory = tempfile::tempdir().unwrap();
    let ca = write(&directory, "ca.pem", server.authority());
    let config = format!("{BCS}modules: {{ ca: \"{}\" }}\n", ca.display());
    let config = write(&directory, "admittance.yaml", config);
    let chain = format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: versions }}\nspec:\n  \
         rules: [{{ operations: [CREATE], kinds: [application] }}]\n  stages:\n  - name: version\n    plugin:\n      \
         source: \"{}\"\n      settings: {{ name: version }}\n",
        server.url("versions.wasm")
    );
    write(&directory, "chains.yaml", chain);
    let upstream = FakeUpstream::start().await.unwrap();
    let serve = Serve::new(config).unwrap().upstream(&upstream.url());
    let mut program = serve.store(directory.path().join("store")).spawn().unwrap();
    program.wait_until_starting().await.unwrap();
    let client = Client::new().unwrap();
    for (path, status, part) in [
        ("/healthz", 200, "ok"),
        ("/readyz", 503, "{\"ready\":false}"),
        ("/metrics", 200, "process_start_time_seconds"),
        ("/v1/status", 503, "the driver is starting"),
    ] {
        let reply = client.get(&program.admin_url(path)).await.unwrap();
        assert_eq!(reply.status.as_u16(), status, "{path}");
        assert!(reply.text().contains(part), "{path}: {}", reply.text());
    }
    server.slow_down(Duration::ZERO);
    program.wait_until_serving().await.unwrap();
    let is_prepared = program.log().iter().any(|line| line.message() == "preparing a plugin");
    assert!(is_prepared);
    let ready = client.get(&program.admin_url("/readyz")).await.unwrap();
    let status = program.status().await.unwrap();
    let short_hash = &status["hash"].as_str().unwrap().trim_start_matches("sha256:")[..12];
    assert_eq!(
        (ready.status.as_u16(), ready.text()),
        (200, format!("{{\"ready\":true,\"table\":\"{short_hash}\"}}"))
    );
}
