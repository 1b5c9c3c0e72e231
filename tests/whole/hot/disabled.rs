//! Tests that disabled stages stay disabled if definitions are invalid or the program is killed.

use std::{fs, time::Duration};

use admittance_tests::{Admittance, ModuleServer, replace};
use serde_json::{Value, json};

use super::scene::{HotScene, chain, kill_program, mistakes_text};

async fn stdout_of(program: &Admittance, command: &[&str]) -> String {
    let server = program.admin_url("");
    let arguments = [command, &["--server", server.as_str()]].concat();
    let finished = Admittance::run(arguments).await.unwrap();
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
    finished.stdout
}

async fn disable(program: &Admittance, options: &[&str]) -> String {
    let command = ["disable", "versioned/stage", "--reason", "ticket 4711"];
    stdout_of(program, &[&command[..], options].concat()).await
}

/// Returns what `/v1/status` reports about the disabled stage: who disabled it, why, and until when.
async fn disabled_status(program: &Admittance) -> Value {
    let status = program.status().await.unwrap();
    status["chains"][0]["stages"][0]["disabled"].clone()
}

async fn disabled_metric(program: &Admittance) -> Option<f64> {
    let metrics = program.metrics().await.unwrap();
    metrics.sum("admittance_stage_disabled", &[("stage", "Mutating:versioned/stage")])
}

#[tokio::test]
async fn a_stage_can_be_disabled_while_definitions_are_invalid() {
    let hot = HotScene::new_with_additions("modules: { attempts: 1 }\n").await;
    let registry = chain("versioned", "{ source: \"oci://localhost:1/plugins/versioned:1\" }");
    for (broken_text, mistake) in [("kind: [".to_owned(), "not YAML"), (registry, "localhost:1")] {
        let program = hot.start().await;
        replace(&hot.chain_file(), &broken_text).unwrap();
        program
            .wait_for_status(mistake, |status| mistakes_text(status).contains(mistake))
            .await
            .unwrap();
        assert_eq!(hot.fetch_version(&program).await, Some(1));
        let mark = program.mark();
        let output = disable(&program, &["--for", "1h"]).await;
        assert!(
            output.starts_with("Mutating:versioned/stage is disabled until "),
            "{output}"
        );
        assert_eq!(hot.fetch_version(&program).await, None);
        assert_eq!(disabled_status(&program).await["by"], "loopback");
        assert_eq!(disabled_metric(&program).await, Some(1.0));
        let line = program
            .wait_for_log_after(mark, "who did it", |line| line.field("target") == "admittance::audit")
            .await
            .unwrap();
        assert_eq!(line.message(), "loopback: disable Mutating:versioned/stage");
        assert_eq!(line.field("reason"), "ticket 4711");
        let status = status_text(&program).await;
        assert!(status.contains("by loopback: ticket 4711"), "{status}");

        kill_program(program).await;
        let program = hot.start().await;
        assert!(mistakes_text(&program.status().await.unwrap()).contains(mistake));
        assert_eq!(hot.fetch_version(&program).await, None);
        assert_eq!(disabled_metric(&program).await, Some(1.0));

        let output = stdout_of(&program, &["enable", "versioned/stage"]).await;
        assert!(output.contains("is enabled; it was disabled until "), "{output}");
        assert_eq!(hot.fetch_version(&program).await, Some(1));
        assert_eq!(disabled_metric(&program).await, Some(0.0));
        replace(&hot.chain_file(), hot.usual_chain()).unwrap();
        program
            .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
            .await
            .unwrap();
        kill_program(program).await;
    }
}

/// Returns the output of the command `status`. As the newest definitions are not live, the command exits with 1.
async fn status_text(program: &Admittance) -> String {
    let server = program.admin_url("");
    let finished = Admittance::run(["status", "--server", &server]).await.unwrap();
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    finished.stdout
}

#[tokio::test]
async fn a_stage_can_be_disabled_while_a_table_is_built() {
    let server = ModuleServer::start().await.unwrap();
    let hot = HotScene::new_with_additions("modules: { ca: ca.pem }\n").await;
    fs::write(hot.path("ca.pem"), server.authority()).unwrap();
    server.put("versioned.wasm", hot.module_bytes(2));
    server.slow_down(Duration::from_secs(600));
    let program = hot.start().await;
    let plugin = format!(
        "{{ source: \"{}\", settings: {{ name: stage }} }}",
        server.url("versioned.wasm")
    );
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    program
        .wait_for_status("a table is built", |status| status["building"] == true)
        .await
        .unwrap();
    disable(&program, &["--for", "1h"]).await;
    assert_eq!(hot.fetch_version(&program).await, None);
    let status = program.status().await.unwrap();
    assert_eq!((&status["building"], &status["revision"]), (&json!(true), &json!(1)));
}

#[tokio::test]
async fn a_disabled_stage_is_enabled_when_its_time_ends() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let mark = program.mark();
    let output = disable(&program, &["--for", "1h", "--audit"]).await;
    assert!(
        output.starts_with("Mutating:versioned/stage is only audited until "),
        "{output}"
    );
    assert_eq!(hot.fetch_version(&program).await, None);
    let output = disable(&program, &["--for", "1s"]).await;
    assert!(output.contains("before, it was only audited until "), "{output}");
    program
        .wait_for_log_after(mark, "the end", |line| line.message().contains("its time has ended"))
        .await
        .unwrap();
    assert_eq!(hot.fetch_version(&program).await, Some(1));
    assert_eq!(disabled_status(&program).await, Value::Null);
    let stored_text = fs::read_to_string(hot.path("history/disabled")).unwrap();
    assert!(!stored_text.contains("versioned"), "{stored_text}");

    let server = program.admin_url("");
    let unknown = [
        "disable",
        "versioned/stages",
        "--for",
        "1s",
        "--reason",
        "x",
        "--server",
        &server,
    ];
    let finished = Admittance::run(unknown).await.unwrap();
    assert_eq!(finished.code, Some(2));
    assert!(
        finished
            .stderr
            .contains("there is no stage versioned/stages; did you mean versioned/stage?"),
        "{}",
        finished.stderr
    );
}
