use serde_json::{Value, json};

use super::setup::{OperatorSetup, annotations_by, chain};
use crate::scene::run_test_cases;

#[tokio::test]
async fn a_shadow_candidate_is_compared_and_promoted() {
    let candidate = "      candidate:\n        source: file:../two.wasm\n        share: 50%\n";
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", candidate)).await;
    for name in ["a", "b", "c", "d"] {
        assert_eq!(setup.versions_of(name).await, annotations_by(1));
    }
    // The program answers the client before it calls the candidate, so the result of the comparison appears a moment
    // later.
    let compared = |status: &Value| status["chains"][0]["stages"][0]["candidate"]["different"] == 2;
    setup
        .program
        .wait_for_status("the comparisons", compared)
        .await
        .unwrap();
    let candidates = setup.json_of(&["candidates"]).await;
    let report = &candidates["candidates"][0];
    assert_eq!(report["stage"], "Mutating:versions/version");
    assert_eq!(report["candidate"]["share"], "50%");
    let sample = &report["samples"][0];
    assert_eq!(
        (&sample["namespace"], &sample["operation"]),
        (&json!("shop"), &json!("CREATE"))
    );
    assert!(
        sample["plugin"]["patch"].to_string().contains("version-000001"),
        "{sample}"
    );
    assert!(
        sample["candidate"]["patch"].to_string().contains("version-000002"),
        "{sample}"
    );
    let metrics = setup.program.metrics().await.unwrap();
    let labels = [("stage", "Mutating:versions/version"), ("result", "different")];
    assert_eq!(metrics.sum("admittance_candidate_calls_total", &labels), Some(2.0));
    let text = setup.stdout_of(["candidates"]).await;
    assert!(text.contains("version-000002"), "{text}");

    setup.stdout_of(["promote", "versions/version"]).await;
    assert_eq!(setup.versions_of("e").await, annotations_by(2));
    let text = setup.read("chains/versions.yaml");
    assert!(text.starts_with("# Which version runs.\napiVersion: "), "{text}");
    let stage =
        "    - name: version\n      plugin:\n        source: file:../two.wasm\n        settings:\n          name: a\n";
    assert!(text.replace('"', "").ends_with(stage), "{text}");
    assert_eq!(setup.json_of(&["candidates"]).await["candidates"], json!([]));
}

#[tokio::test]
async fn a_stage_in_audit_mode_counts_what_it_would_have_done() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "      mode: Audit\n")).await;
    assert_eq!(setup.versions_of("a").await, json!({}));
    let status = setup.json_of(&["status"]).await;
    let stage = &status["chains"][0]["stages"][0];
    assert_eq!(
        (&stage["mode"], &stage["calls"]["changed"]),
        (&json!("Audit"), &json!(1))
    );
}

#[tokio::test]
async fn requests_are_recorded_and_replayed() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let file_path = setup.path("requests.ndjson");
    let file = file_path.to_str().unwrap();
    let image = "/spec/template/spec/containers/*/image";
    record_three(&setup, &["--redact", image, "--output", file], "requests.ndjson").await;
    let text = setup.read("requests.ndjson");
    assert!(!text.contains("nginx"), "{text}");
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["kind"], &first["response"]["allowed"]),
        (&json!("AdmissionReview"), &json!(true))
    );

    let replay = async |arguments: &[&str]| {
        let store = crate::scene::store().to_str().unwrap();
        let arguments = [&["replay", file, "--store", store], arguments].concat();
        admittance_tests::Admittance::run(arguments).await.unwrap()
    };
    let chains_path = setup.path("chains");
    let chains = chains_path.to_str().unwrap();
    let same = replay(&[chains]).await;
    assert_eq!(same.code, Some(0), "{}{}", same.stdout, same.stderr);
    let two = setup.path("two.wasm");
    let other = replay(&[chains, "--module", two.to_str().unwrap(), "--stage", "versions/version"]).await;
    assert_eq!(other.code, Some(1), "{}{}", other.stdout, other.stderr);
    for expected in ["version-000001", "version-000002"] {
        assert!(other.stdout.contains(expected), "{expected} in {}", other.stdout);
    }
}

#[tokio::test]
async fn requests_can_be_recorded_as_test_cases() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let cases = setup.path("new/cases");
    record_three(
        &setup,
        &["--as-tests", cases.to_str().unwrap()],
        "new/cases/recorded.ndjson",
    )
    .await;
    let cases = setup.path("new/cases/recorded.yaml");
    let chains = setup.path("chains/versions.yaml");
    let test = || run_test_cases(&chains, &cases);
    let passed = test().await;
    assert_eq!(passed.code, Some(0), "{}{}", passed.stdout, passed.stderr);
    assert!(passed.stdout.contains("3 passed, 0 failed"), "{}", passed.stdout);
    std::fs::copy(setup.path("two.wasm"), setup.path("one.wasm")).unwrap();
    let failed = test().await;
    assert_eq!(failed.code, Some(1), "{}{}", failed.stdout, failed.stderr);
    assert!(failed.stdout.contains("0 passed, 3 failed"), "{}", failed.stdout);
}

async fn record_three(setup: &OperatorSetup, arguments: &[&str], file: &str) {
    let record = setup.stdout_of([&["record", "--count", "3"], arguments].concat());
    let file = setup.path(file);
    let create = async {
        // `admittance record` needs a moment before it records requests. So requests are sent until three of them are
        // recorded.
        for number in 0.. {
            if std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() == 3) {
                break;
            }
            setup.create(&format!("a{number}")).await;
        }
    };
    tokio::join!(record, create);
}
