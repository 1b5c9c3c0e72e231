//! Tests evaluations of requests with chains that are not live, and explanations of which chains apply to a request.

use std::{fs, time::Duration};

use admittance::{
    Applies, ChainApplies, DecisionsConfig, EvaluateError, EvaluateOptions, EvaluatedChains, EvaluationResult, Host,
    admission::{GroupVersionKind, Object, Operation, Request, StageResult},
    sandbox::SandboxConfig,
};
use serde_json::{Value, json};

use crate::{
    guest::Guest,
    scene::{ChangesScene, chain, live_summary, plugin},
};

const OWNERS_CHAIN: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: owners }
spec:
  phase: Validating
  rules: [ { operations: [CREATE], kinds: [Pod] } ]
  stages:
    - name: owner
      cel:
        validations: [ { expression: \"'owner' in object.metadata.labels\", message: who owns it } ]
";

fn pod(labels: Value) -> Request {
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "prod", "labels": labels}});
    Request::from_objects(Object::from_value(object), None, None, None, None).unwrap()
}

async fn start(scene: &ChangesScene, sandbox: SandboxConfig) -> Host {
    Host::builder()
        .definitions(scene.chains())
        .history(scene.folder.path().join("history"))
        .sandbox(sandbox)
        .decisions(DecisionsConfig::default())
        .build()
        .await
        .unwrap()
}

fn small_sandbox() -> SandboxConfig {
    let mut sandbox = SandboxConfig::default();
    sandbox.calls_in_flight = 1;
    sandbox
}

async fn evaluate(host: &Host, text: &str, request: Request) -> Result<EvaluationResult, EvaluateError> {
    let chains = EvaluatedChains::Text { text, name: "chain" };
    host.evaluate(chains, request, &EvaluateOptions::default()).await
}

fn write_module(scene: &ChangesScene, file: &str, guest: &Guest) {
    fs::write(scene.chains().join(file), guest.component()).unwrap();
}

#[tokio::test]
async fn an_evaluation_is_not_counted_or_recorded() {
    let scene = ChangesScene::new();
    scene.write("owners.yaml", OWNERS_CHAIN);
    let host = start(&scene, small_sandbox()).await;
    host.admit(pod(json!({"owner": "ann"}))).await;
    let (before, files) = (host.status(), scene.read("owners.yaml"));

    let other = OWNERS_CHAIN
        .replace("'owner'", "'team'")
        .replace("who owns it", "which team");
    let evaluated = evaluate(&host, &other, pod(json!({}))).await.unwrap();
    assert!(!evaluated.outcome.is_allowed());
    assert_eq!(
        evaluated.decision.message.as_deref(),
        Some("stage owner of chain owners denied the request: which team")
    );
    assert!(evaluated.request.dry_run && evaluated.decision.dry_run);
    assert_eq!(evaluated.decision.revision, 1);
    let evaluated = evaluate(&host, &other, pod(json!({"team": "a"}))).await.unwrap();
    assert!(evaluated.outcome.is_allowed());

    let after = host.status();
    assert_eq!(
        (after.chains, after.revision, after.plugins),
        (before.chains, before.revision, before.plugins)
    );
    assert_eq!(host.history().len(), 1);
    assert_eq!(scene.read("owners.yaml"), files);
    let decision_list = host.decisions().list(&Default::default(), None, 10);
    assert_eq!(decision_list.decisions.len(), 1);
}

#[tokio::test]
async fn an_evaluation_loads_a_plugin_that_is_not_applied() {
    let scene = ChangesScene::new();
    let host = start(&scene, small_sandbox()).await;
    write_module(&scene, "loops.wasm", &Guest::running("(loop $again (br $again))"));
    let text = plugin("loops", "file:loops.wasm").replace("      plugin:", "      timeout: 20ms\n      plugin:");
    let evaluated = evaluate(&host, &text, pod(json!({}))).await.unwrap();
    let [row] = evaluated.outcome.trace.as_slice() else {
        panic!("{:?}", evaluated.outcome);
    };
    let StageResult::Failed { failure, .. } = &row.result else {
        panic!("{row:?}");
    };
    assert_eq!(failure.kind.as_str(), "timeout");
    assert_eq!(host.status().plugins, 0);
    let compiled = scene.folder.path().join("history/store/compiled");
    let compiled_count = fs::read_dir(compiled).map_or(0, Iterator::count);
    assert_eq!(compiled_count, 0);
}

/// The host can run one plugin call at a time. Evaluations run plugins with endless loops, but the live plugin still
/// answers, because evaluations use other slots.
#[tokio::test]
async fn a_looping_evaluation_takes_no_slot_from_requests() {
    let scene = ChangesScene::new();
    write_module(&scene, "allows.wasm", &Guest::default());
    write_module(&scene, "loops.wasm", &Guest::running("(loop $again (br $again))"));
    scene.write("live.yaml", &plugin("live", "file:allows.wasm"));
    let host = start(&scene, small_sandbox()).await;
    let loops = plugin("loops", "file:loops.wasm");
    let evaluations = [(); 2].map(|()| {
        let (host, loops) = (host.clone(), loops.clone());
        tokio::spawn(async move { evaluate(&host, &loops, pod(json!({}))).await })
    });
    let mut count = 0;
    while !evaluations.iter().all(tokio::task::JoinHandle::is_finished) {
        let outcome = host.admit(pod(json!({}))).await;
        assert!(outcome.is_allowed(), "{outcome:?}");
        count += 1;
        tokio::task::yield_now().await;
    }
    assert!(count > 0);
    for evaluation in evaluations {
        let evaluated = evaluation.await.unwrap().unwrap();
        assert!(!evaluated.outcome.is_allowed());
    }
}

#[tokio::test]
async fn a_dropped_evaluation_lets_the_next_one_begin() {
    let scene = ChangesScene::new();
    let mut sandbox = small_sandbox();
    sandbox.configure_timeout = Duration::from_secs(600);
    let host = start(&scene, sandbox).await;
    let hangs = Guest::default().with_configure("(loop $again (br $again))");
    write_module(&scene, "hangs.wasm", &hangs);
    let text = plugin("hangs", "file:hangs.wasm");
    for _ in 0..5 {
        let evaluation = evaluate(&host, &text, pod(json!({})));
        let timeout_result = tokio::time::timeout(Duration::from_millis(50), evaluation).await;
        assert!(timeout_result.is_err());
    }
    let evaluated = evaluate(&host, OWNERS_CHAIN, pod(json!({}))).await.unwrap();
    assert!(!evaluated.outcome.is_allowed());
}

#[tokio::test]
async fn an_evaluation_can_replace_the_settings_of_a_live_chain() {
    let scene = ChangesScene::new();
    // The `configure` of this plugin fails unless the settings are `{}`.
    let strict = Guest::default().with_configure("(if (i32.ne (local.get $length) (i32.const 2)) (then unreachable))");
    write_module(&scene, "strict.wasm", &strict);
    scene.write("live.yaml", &plugin("live", "file:strict.wasm"));
    let host = start(&scene, small_sandbox()).await;
    let id = "Mutating:live".parse().unwrap();
    let evaluate_with = async |settings: Value| {
        let mut options = EvaluateOptions::default();
        options.settings = serde_json::from_value(settings).unwrap();
        host.evaluate(EvaluatedChains::Live(&id), pod(json!({})), &options)
            .await
    };
    assert!(evaluate_with(json!({})).await.unwrap().outcome.is_allowed());
    let error = evaluate_with(json!({"hook": {"a": 1}})).await.unwrap_err().to_string();
    assert!(error.contains("stage hook of chain live"), "{error}");
    let error = evaluate_with(json!({"other": {}})).await.unwrap_err();
    assert!(
        matches!(&error, EvaluateError::NoSuchPlugin(name) if name == "other"),
        "{error}"
    );
    let missing_id = "Validating:live".parse().unwrap();
    let error = host
        .evaluate(
            EvaluatedChains::Live(&missing_id),
            pod(json!({})),
            &EvaluateOptions::default(),
        )
        .await;
    assert!(matches!(error, Err(EvaluateError::NoSuchChain(_))));
    assert_eq!(live_summary(&host).split(' ').next(), Some("1"));
}

#[tokio::test]
async fn a_mistake_in_an_evaluated_text_is_reported_with_its_line() {
    let scene = ChangesScene::new();
    let host = start(&scene, small_sandbox()).await;
    for (text, expected) in [
        (OWNERS_CHAIN.replace("rules:", "rulez:"), "chain:6:3: spec.rulez"),
        (OWNERS_CHAIN.replace("'owner' in", "'owner' on"), "chain:"),
        (plugin("gone", "file:gone.wasm"), "chain:10:7: stage hook of chain gone"),
        (String::new(), "chain: it contains no definition"),
        ("a: 1".to_owned(), "chain:1:1"),
    ] {
        let error = evaluate(&host, &text, pod(json!({}))).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[tokio::test]
async fn an_evaluation_explains_why_a_chain_does_not_match() {
    let scene = ChangesScene::new();
    let host = start(&scene, small_sandbox()).await;
    let text = OWNERS_CHAIN.replace("[Pod]", "[Node]");
    let evaluated = evaluate(&host, &text, pod(json!({}))).await.unwrap();
    assert!(evaluated.outcome.trace.is_empty());
    let [unmatched] = evaluated.unmatched.as_slice() else {
        panic!("{evaluated:?}");
    };
    assert_eq!(
        unmatched.reason,
        "no rule of the chain is for CREATE of v1/pods, kind Pod: `kinds` has Node"
    );
}

#[tokio::test]
async fn an_evaluation_calls_webhooks_only_if_that_is_allowed() {
    let scene = ChangesScene::new();
    let host = start(&scene, small_sandbox()).await;
    let text = chain("hook", "1");
    let error = evaluate(&host, &text, pod(json!({}))).await.unwrap_err();
    assert!(
        matches!(&error, EvaluateError::Webhook(stage) if stage.starts_with("stage hook of chain ")),
        "{error}"
    );
    let mut options = EvaluateOptions::default();
    options.call_webhooks = true;
    let chains = EvaluatedChains::Text {
        text: &text,
        name: "chain",
    };
    let evaluated = host.evaluate(chains, pod(json!({})), &options).await.unwrap();
    assert_eq!(evaluated.decision.stages[0].failure.as_deref(), Some("unreachable"));
    let nodes = text.replace("[Pod]", "[Node]");
    assert!(
        evaluate(&host, &nodes, pod(json!({})))
            .await
            .unwrap()
            .outcome
            .is_allowed()
    );
}

const SELECTIVE_CHAIN: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: selective }
spec:
  rules: [ { operations: [CREATE, UPDATE], kinds: [Pod] } ]
  stages:
    - { name: namespaces, namespaceSelector: { operator: NotIn, values: [prod] }, webhook: { protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" } }
    - { name: objects, objectSelector: { matchLabels: { app: web } }, webhook: { protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" } }
    - name: conditions
      matchConditions: [ { name: first, expression: \"true\" }, { name: labelled, expression: \"has(object.metadata.labels)\" } ]
      webhook: { protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" }
    - { name: rules, rules: [ { operations: [UPDATE], kinds: [Pod] } ], webhook: { protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" } }
    - { name: effects, sideEffects: Some, webhook: { protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" } }
";

/// Returns lines such as `NAME: Yes` or `NAME: No (why)`, one for each chain and each of its stages.
fn summary(chains: &[ChainApplies]) -> Vec<String> {
    let line = |name: &str, applies: Applies, reason: &Option<String>| {
        let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{name}: {applies:?}{reason}")
    };
    chains
        .iter()
        .flat_map(|chain| {
            let stages = chain
                .stages
                .iter()
                .map(|stage| line(&stage.stage, stage.applies, &stage.reason));
            std::iter::once(line(&chain.chain, chain.applies, &chain.reason)).chain(stages)
        })
        .collect()
}

#[tokio::test]
async fn chains_and_stages_that_do_not_apply_are_explained() {
    let scene = ChangesScene::new();
    scene.write("selective.yaml", SELECTIVE_CHAIN);
    scene.write("owners.yaml", OWNERS_CHAIN);
    let host = start(&scene, small_sandbox()).await;

    let mut request = pod(json!({"app": "api"}));
    request.dry_run = true;
    assert_eq!(
        summary(&host.explain_chains(&request).await),
        [
            "selective: Yes",
            "namespaces: No (namespaceSelector does not match: \"prod\" is excluded)",
            "objects: No (objectSelector does not match: app in (web): the object has app=api)",
            "conditions: Yes",
            "rules: No (no rule of the stage is for CREATE of v1/pods, kind Pod: `operations` has UPDATE)",
            "effects: No (a stage with side effects is not called in a dry run)",
            "owners: Yes",
            "owner: Yes",
        ]
    );

    let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}});
    let request = Request::from_objects(Object::from_value(bare), None, Some(Operation::Update), None, None).unwrap();
    assert_eq!(
        summary(&host.explain_chains(&request).await),
        [
            "selective: Yes",
            "namespaces: Yes",
            "objects: No (objectSelector does not match: app in (web): the object has no labels)",
            "conditions: No (a match condition is false: labelled: has(object.metadata.labels))",
            "rules: Yes",
            "effects: Yes",
            "owners: No (no rule of the chain is for UPDATE of v1/pods, kind Pod: `operations` has CREATE)",
        ]
    );

    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let request = Request::new(Operation::Create, kind.clone(), kind.guess_resource());
    let lines = summary(&host.explain_chains(&request).await);
    assert_eq!(lines[2], "objects: Depends (objectSelector: app in (web))");
    assert_eq!(
        lines[3],
        "conditions: Depends (condition first: true; condition labelled: has(object.metadata.labels))"
    );
}
