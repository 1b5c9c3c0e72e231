//! Tests misbehaving guests with each failure policy. Meanwhile, well-behaved requests must be served.

use std::{collections::HashSet, fmt::Write as _, fs, net::TcpListener, sync::Arc};

use admittance_tests::{Admittance, Reply, ScrapedMetrics};
use guest_misbehaves::Behaviour;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::scene::{ProgramScene, application, bcs_message, source, store, write};

#[derive(Clone, Copy)]
enum ExpectedOutcome {
    /// The stage with the guest allows the request.
    Passes,
    /// The call of the guest fails at once. The fields are the expected kind of failure and a part of its message.
    Fails(&'static str, &'static str),
    /// The guest runs until the stage's timeout stops it.
    RunsOn,
    /// The program rejects the guest when it loads it, with a message that contains this text.
    DoesNotLoad(&'static str),
}

use ExpectedOutcome::{DoesNotLoad, Fails, Passes, RunsOn};

/// Returns the expected result of a behaviour. The `match` has no default, so a new behaviour needs a result.
fn expected_outcome(behaviour: Behaviour) -> ExpectedOutcome {
    match behaviour {
        Behaviour::WellBehaved | Behaviour::LogsTooMuch => Passes,
        Behaviour::Traps => Fails("trap", "unreachable"),
        Behaviour::Panics => Fails("trap", "deliberate panic"),
        Behaviour::Exits => Fails("trap", "exit code 1"),
        Behaviour::LoopsForever | Behaviour::FillsMemory | Behaviour::Sleeps | Behaviour::LogsWithoutEnd => RunsOn,
        Behaviour::GrowsMemory => Fails("memory", "67108864"),
        Behaviour::Recurses => Fails("trap", "stack overflow"),
        Behaviour::HugePatch => Fails("output-too-large", "1048576"),
        Behaviour::InvalidJson => Fails("invalid-response", "JSON"),
        Behaviour::NoPatch => Fails("invalid-response", "patch"),
        Behaviour::PatchDoesNotApply => Fails("patch-failed", "/spec/nowhere"),
        Behaviour::ChangesName => Fails("identity-changed", "/metadata/name"),
        Behaviour::ChangesNamespace => Fails("identity-changed", "/metadata/namespace"),
        Behaviour::EmptiesObject => Fails("identity-changed", "apiVersion"),
        Behaviour::AsksForCluster => Fails("capability-denied", "v1/Node"),
        Behaviour::AsksForHttp => Fails("capability-denied", "https://policy.example.com"),
        Behaviour::AnswersPatch => Fails("error", "no patch in the settings"),
        Behaviour::ReturnsError => Fails("error", "deliberate error"),
        Behaviour::RefusesSettings => DoesNotLoad("these settings are never valid"),
        Behaviour::PanicsInConfigure => DoesNotLoad("deliberate panic in configure"),
        Behaviour::FillsMemoryInConfigure => DoesNotLoad("at most 67108864 can be kept for the calls"),
    }
}

/// A test of a misbehaving guest with a failure policy. The guest is the stage between two good stages of a chain. This
/// stage, the chain and its namespace have the name of the test case.
#[derive(Clone)]
struct GuestCase {
    name: String,
    expected: ExpectedOutcome,
    policy: &'static str,
    plugin: String,
}

const POLICIES: [(&str, &str); 2] = [("Fail", "fail"), ("Ignore", "ignore")];

fn cases() -> Vec<GuestCase> {
    let misbehaves = source("guest-misbehaves");
    let settings_cases = Behaviour::ALL.iter().map(|behaviour| {
        let settings = format!("{{ behaviour: {} }}", behaviour.name());
        (
            behaviour.name(),
            expected_outcome(*behaviour),
            match behaviour {
                Behaviour::FillsMemoryInConfigure => {
                    format!("{{ source: \"{misbehaves}\", memory: 1GiB, settings: {settings} }}")
                }
                _ => format!("{{ source: \"{misbehaves}\", settings: {settings} }}"),
            },
        )
    });
    let reaching_plugin = |target: &str| {
        format!(
            "{{ source: \"{}\", settings: {{ target: {target} }} }}",
            source("guest-reaches-out")
        )
    };
    let guest_cases = [
        // The guest has no file system, so it gets an error from its standard library, and handles it.
        ("opens-file", Passes, reaching_plugin("file")),
        (
            "connects",
            Fails("capability-denied", "wasi:sockets"),
            reaching_plugin("socket"),
        ),
        (
            "wrong-world",
            DoesNotLoad("must export the world `plugin`"),
            format!("{{ source: \"{}\" }}", source("guest-wrong-world")),
        ),
        (
            "not-wasm",
            DoesNotLoad("not WebAssembly"),
            "{ source: \"file:not-wasm.wasm\" }".to_owned(),
        ),
        (
            "core-module",
            DoesNotLoad("core module"),
            "{ source: \"file:core-module.wasm\" }".to_owned(),
        ),
        (
            "missing",
            DoesNotLoad("missing.wasm"),
            "{ source: \"file:missing.wasm\" }".to_owned(),
        ),
    ];
    let guests: Vec<_> = settings_cases.chain(guest_cases).collect();
    let cases_with_policy = |(policy, suffix): (&'static str, &str)| {
        let case = |(name, expected, plugin): &(&str, ExpectedOutcome, String)| GuestCase {
            name: format!("{name}-{suffix}"),
            expected: *expected,
            policy,
            plugin: plugin.clone(),
        };
        guests.iter().map(case).collect::<Vec<_>>()
    };
    POLICIES.into_iter().flat_map(cases_with_policy).collect()
}

fn is_loadable(case: &GuestCase) -> bool {
    !matches!(case.expected, DoesNotLoad(_))
}

fn chains<'a>(cases: impl IntoIterator<Item = &'a GuestCase>) -> String {
    let mut text = String::new();
    let (first_source, last_source) = (source("guest-misbehaves"), source("sidecar-injector"));
    for GuestCase {
        name,
        expected,
        policy,
        plugin,
    } in cases
    {
        // A guest that runs forever is stopped by the timeout of its stage, and the test has to wait for that. So this
        // timeout is short. Three seconds are enough to show that a concurrent request does not wait for the guest.
        let timeout = if matches!(expected, RunsOn) { "3s" } else { "8s" };
        write!(
            text,
            "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {name} }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: first
      plugin: {{ source: \"{first_source}\", settings: {{ behaviour: well-behaved }} }}
      namespaceSelector: {{ operator: In, values: [{name}] }}
      failurePolicy: Fail
      timeout: 8s
    - name: {name}
      plugin: {plugin}
      namespaceSelector: {{ operator: In, values: [{name}] }}
      failurePolicy: {policy}
      timeout: {timeout}
    - name: last
      plugin: {{ source: \"{last_source}\", settings: {{ annotations: {{ last: \"true\" }} }} }}
      namespaceSelector: {{ operator: In, values: [{name}] }}
      failurePolicy: Fail
      timeout: 8s
"
        )
        .unwrap();
    }
    text
}

#[tokio::test]
async fn a_misbehaving_guest_fails_only_its_own_call() {
    let cases: Vec<_> = cases().into_iter().filter(is_loadable).collect();
    let scene = Arc::new(ProgramScene::start_bcs(&chains(&cases)).await);
    let mut calls = JoinSet::new();
    for case in cases {
        calls.spawn(check_case(scene.clone(), case));
    }
    let (mut finished_cases, mut problems) = (Vec::new(), Vec::new());
    while let Some(case) = calls.join_next().await {
        match case {
            Ok(case) => finished_cases.push(case),
            Err(error) => problems.push(error.to_string()),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let metrics = scene.program.metrics().await.unwrap();
    for case in &finished_cases {
        check_metrics(case, &metrics);
    }
    check_logs(&scene.program);
}

/// Sends one request to the chain with the misbehaving guest, and meanwhile one to a good chain. Checks both results.
async fn check_case(scene: Arc<ProgramScene>, case: GuestCase) -> GuestCase {
    let name = &case.name;
    let object = application(name, "app", "nginx:1.29");
    let begins = scene.program.when_logged("the guest's first line", {
        let name = name.clone();
        move |line| line.message() == "begins" && line.field("plugin") == name
    });
    let request = tokio::spawn({
        let (scene, object) = (scene.clone(), object.clone());
        async move { scene.create(&object).await }
    });
    if !name.starts_with("opens-file") && !name.starts_with("connects") {
        begins.await.unwrap();
    }
    let neighbour_reply = scene
        .create(&application(
            "well-behaved-fail",
            &format!("beside-{name}"),
            "nginx:1.29",
        ))
        .await;
    assert_eq!(neighbour_reply.status, 200, "beside {name}: {}", neighbour_reply.text());
    if matches!(case.expected, RunsOn) {
        assert!(!request.is_finished(), "{name}: the request beside it waited for it");
    }
    let stored_beside = scene
        .stored_object("well-behaved-fail", &format!("beside-{name}"))
        .unwrap();
    assert_eq!(
        stored_beside["metadata"]["annotations"]["well-behaved"], "true",
        "beside {name}"
    );

    let reply = request.await.unwrap();
    let stored = scene.stored_object(name, "app");
    let (failure, words) = match case.expected {
        Passes => {
            assert_eq!(reply.status, 200, "{name}: {}", reply.text());
            check_object(name, &object, &stored.unwrap());
            return case;
        }
        Fails(failure, words) => (failure, words),
        RunsOn => ("timeout", "the plugin gave no verdict"),
        DoesNotLoad(_) => unreachable!("it is filtered out"),
    };
    if case.policy == "Fail" {
        assert_eq!(reply.status, 400, "{name}: {}", reply.text());
        assert_eq!(reply.json().unwrap()["code"], 1_405_234, "{name}");
        let message = bcs_message(&reply);
        let beginning = format!("request webhoook {name} error stage {name} of chain {name} failed ({failure}): ");
        assert!(message.starts_with(&beginning), "{name}: {message}");
        assert!(message.contains(words), "{name}: {message}");
        assert_eq!(stored, None, "{name}: the upstream got it");
    } else {
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        check_object(name, &object, &stored.unwrap());
    }
    case
}

/// Checks the object that the upstream server stores: it must be the client's object with the additions of the two good
/// stages, and with nothing else.
fn check_object(name: &str, sent_object: &Value, stored: &Value) {
    let mut stored_without_annotations = stored.clone();
    let annotations = stored_without_annotations["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations")
        .unwrap();
    assert_eq!(&stored_without_annotations, sent_object, "{name}");
    assert_eq!(annotations["well-behaved"], "true", "{name}");
    assert_eq!(annotations["last"], "true", "{name}: the stage after it was called");
    assert!(annotations.get("huge").is_none(), "{name}");
}

fn check_metrics(
    GuestCase {
        name, expected, policy, ..
    }: &GuestCase,
    metrics: &ScrapedMetrics,
) {
    let stage = [("chain", name.as_str()), ("stage", name.as_str())];
    let failures = "admittance_stage_failures_total";
    let failure = match expected {
        Fails(failure, _) => failure,
        RunsOn => "timeout",
        Passes | DoesNotLoad(_) => {
            assert_eq!(metrics.sum(failures, &stage).unwrap_or_default(), 0.0, "{name}");
            return;
        }
    };
    let labels = [stage[0], stage[1], ("failure", failure), ("policy", *policy)];
    assert_eq!(metrics.sum(failures, &labels), Some(1.0), "{name}: {failure}");
    assert_eq!(
        metrics.sum(failures, &stage),
        Some(1.0),
        "{name}: it failed in no other way"
    );
    let verdicts = [stage[0], stage[1], ("verdict", "failed")];
    assert_eq!(
        metrics.sum("admittance_stage_duration_seconds_count", &verdicts),
        Some(1.0),
        "{name}"
    );
}

/// Checks that the program logs the lines that plugins write, and that it drops the lines above the limit.
fn check_logs(program: &Admittance) {
    for noisy in ["logs-too-much-fail", "logs-without-end-ignore"] {
        let log = program.log();
        let lines = log.iter().filter(|line| line.field("plugin") == noisy);
        assert_eq!(
            lines.clone().filter(|line| line.field("context") == "noise").count(),
            63,
            "{noisy}"
        );
        assert_eq!(
            lines
                .filter(|line| line.message().contains("the rest was dropped"))
                .count(),
            1,
            "{noisy}"
        );
    }
}

#[tokio::test]
async fn a_guest_that_does_not_load_is_reported_before_anything_is_served() {
    let cases: Vec<_> = cases().into_iter().filter(|case| !is_loadable(case)).collect();
    let directory = directory_with_bad_modules();
    let chains = write(&directory, "chains.yaml", chains(&cases));
    let config = write(&directory, "admittance.yaml", crate::scene::BCS);

    let serve = admittance_tests::Serve::new(config)
        .unwrap()
        .store(store())
        .finish()
        .await
        .unwrap();
    assert_eq!(serve.code, Some(2), "{}", serve.stderr);
    assert!(!serve.stderr.contains("serving"), "{}", serve.stderr);

    let arguments = [
        "check".as_ref(),
        chains.as_os_str(),
        "--store".as_ref(),
        store().as_os_str(),
    ];
    let check = Admittance::run(arguments).await.unwrap();
    assert_eq!(check.code, Some(1), "{}", check.stdout);

    for output in [&serve.stderr, &check.stdout] {
        // Each mistake begins with the name of the file. It may have several lines, as in a panic message.
        let mistakes: Vec<_> = output.split("chains.yaml:").skip(1).collect();
        // `check` reports each invalid setting as a mistake, so a stage may have several mistakes. Only the number of
        // stages with mistakes must be right.
        let stages: HashSet<_> = mistakes
            .iter()
            .filter_map(|mistake| mistake.split_once("stage ")?.1.split(' ').next())
            .collect();
        assert_eq!(stages.len(), cases.len(), "{output}");
        for GuestCase { name, expected, .. } in &cases {
            let DoesNotLoad(words) = expected else { continue };
            let stage_label = format!("stage {name} of chain {name}: ");
            let is_reported = mistakes
                .iter()
                .any(|mistake| mistake.contains(&stage_label) && mistake.contains(words));
            assert!(is_reported, "{name} and `{words}` in:\n{output}");
        }
    }
}

fn directory_with_bad_modules() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "not-wasm.wasm", "this is a text");
    write(&directory, "core-module.wasm", b"\0asm\x01\0\0\0");
    directory
}

/// Each patch would produce gigabytes. The program must serve other requests within bounded memory.
#[tokio::test]
async fn exploding_patches_are_refused_and_delay_no_other_request() {
    const MAX_MEMORY: u64 = 512 << 20;
    let operations = |count: usize, operation: &dyn Fn(usize) -> Value| Value::from_iter((0..count).map(operation));
    let copy = |from: &str, to: String| json!({"op": "copy", "from": from, "path": to});
    let patches = [
        ("doubles", operations(35, &|i| copy("", format!("/b{i}")))),
        ("copies", operations(1_000, &|i| copy("/spec", format!("/b{i}")))),
        (
            "shifts",
            operations(10_001, &|_| json!({"op": "add", "path": "/list/0", "value": 1})),
        ),
    ];
    let mut chains = String::new();
    for (name, patch) in &patches {
        for mode in ["Enforce", "Audit"] {
            let name = format!("{name}-{}", mode.to_lowercase());
            let chain = json!({
                "apiVersion": "admittance.dev/v1alpha1",
                "kind": "AdmissionChain",
                "metadata": {"name": name},
                "spec": {
                    "rules": [{"operations": ["CREATE"], "kinds": ["application"]}],
                    "stages": [{
                        "name": name,
                        "plugin": {
                            "source": source("guest-misbehaves"),
                            "settings": {"behaviour": "answers-patch", "patch": patch.to_string()},
                        },
                        "namespaceSelector": {"operator": "In", "values": [name]},
                        "failurePolicy": "Fail",
                        "mode": mode,
                        "timeout": "8s",
                    }],
                },
            });
            writeln!(chains, "---\n{chain}").unwrap();
        }
    }
    let scene = Arc::new(ProgramScene::start_bcs(&chains).await);
    let mut calls = JoinSet::new();
    for (name, _) in &patches {
        for (mode, number) in [("enforce", 0), ("audit", 0), ("enforce", 1), ("audit", 1)] {
            let (scene, namespace) = (scene.clone(), format!("{name}-{mode}"));
            calls.spawn(async move {
                let mut object = application(&namespace, &format!("app-{number}"), "nginx:1.29");
                object["spec"]["text"] = "x".repeat(200 << 10).into();
                object["list"] = vec![0; 1_000].into();
                let reply = scene.create(&object).await;
                (namespace, object, reply)
            });
        }
    }
    let mut memory_peak = 0;
    while !calls.is_empty() {
        let health_reply = scene.client.get(&scene.program.admin_url("/healthz")).await;
        assert_eq!(health_reply.unwrap().status, 200);
        memory_peak = memory_peak.max(scene.program.resident_memory().unwrap());
        while let Some(call) = calls.try_join_next() {
            let (namespace, object, reply) = call.unwrap();
            let name = object["metadata"]["name"].as_str().unwrap();
            let stored = scene.stored_object(&namespace, name);
            if namespace.ends_with("audit") {
                assert_eq!(reply.status, 200, "{namespace}: {}", reply.text());
                assert_eq!(stored.as_ref(), Some(&object), "{namespace}");
            } else {
                assert_eq!(reply.status, 400, "{namespace}: {}", reply.text());
                assert!(
                    bcs_message(&reply).contains("failed (output-too-large)"),
                    "{}",
                    reply.text()
                );
                assert_eq!(stored, None, "{namespace}");
            }
        }
    }
    assert!(memory_peak < MAX_MEMORY, "{memory_peak} bytes");
}

/// If the program can open no further files, it gets no connection for a webhook call or for a plugin's HTTP request.
/// The failure then counts as `overloaded`, and not as a failure of the webhook or the plugin.
#[tokio::test]
async fn a_stage_that_gets_no_file_descriptor_counts_as_overloaded() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let plugin = source("guest-reaches-out");
    for (stage_kind, hook) in [
        (
            "webhook",
            format!("webhook: {{ protocol: AdmissionReview, url: \"https://{address}/\" }}"),
        ),
        (
            "plugin",
            format!(
                "plugin: {{ source: \"{plugin}\", settings: {{ target: http, url: \"http://{address}/\" }}, \
                 allow: {{ http: [\"http://{address}\"] }} }}"
            ),
        ),
    ] {
        let scene = ProgramScene::start_bcs(&format!(
            "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: remote }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: remote
      {hook}
      failurePolicy: Fail
"
        ))
        .await;
        // Before the limit takes effect, this request opens two connections: one from the client to the program, and
        // one from the program to the upstream server. The next request can use both, although no new connection can be
        // opened.
        let mut deployment = application("shop", "other", "nginx:1.29");
        deployment["kind"] = "deployment".into();
        assert_eq!(scene.create(&deployment).await.status, 200, "{stage_kind}");
        let refused_reply = create_without_descriptors(&scene, application("shop", "web", "nginx:1.29")).await;
        assert!(
            bcs_message(&refused_reply).contains("Too many open files"),
            "{stage_kind}: {}",
            refused_reply.text()
        );
        let metrics = scene.program.metrics().await.unwrap();
        let failures = metrics.sum("admittance_stage_failures_total", &[("failure", "overloaded")]);
        assert_eq!(failures, Some(1.0), "{stage_kind}: {}", refused_reply.text());
    }
}

/// Sends a request for this object while a resource limit keeps the program from opening files and sockets.
async fn create_without_descriptors(scene: &ProgramScene, object: Value) -> Reply {
    let id = scene.program.id().unwrap();
    let process = Pid::from_raw(id.cast_signed()).unwrap();
    let open_descriptors: HashSet<u64> = fs::read_dir(format!("/proc/{id}/fd"))
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let limit = |current| Rlimit {
        current,
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let original_limit = prlimit(
        Some(process),
        Resource::Nofile,
        limit((0..).find(|number| !open_descriptors.contains(number))),
    )
    .unwrap();
    let reply = scene.create(&object).await;
    prlimit(Some(process), Resource::Nofile, original_limit).unwrap();
    reply
}
