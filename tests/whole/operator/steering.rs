use admittance_tests::Versions;
use serde_json::{Value, json};

use super::setup::{OperatorSetup, annotations_by, chain};
use crate::scene::write;

#[tokio::test]
async fn the_status_shows_the_live_chains() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    assert_eq!(setup.versions_of("a").await, annotations_by(1));

    let status = setup.json_of(&["status"]).await;
    assert_eq!(
        (&status["revision"], &status["origin"]["type"]),
        (&json!(1), &json!("start"))
    );
    let stage = &status["chains"][0]["stages"][0];
    assert_eq!(
        (&stage["hook"]["version"], &stage["state"], &stage["calls"]["changed"]),
        (&json!(Versions::name(1)), &json!("Healthy"), &json!(1)),
        "{status}"
    );
    assert!(stage["calls"]["p99Microseconds"].is_u64(), "{status}");

    let text = setup.stdout_of(["status"]).await;
    for expected in ["revision 1", "versions", "version-000001", "Enforce"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let yaml = setup.stdout_of(["status", "--output", "yaml"]).await;
    assert!(yaml.lines().any(|line| line == "revision: 1"), "{yaml}");

    let list = setup.stdout_of(["get"]).await;
    assert!(
        list.contains("AdmissionChain/versions") && list.contains("versions.yaml"),
        "{list}"
    );
    let definition_text = setup.stdout_of(["get", "AdmissionChain/versions"]).await;
    assert_eq!(definition_text.trim_end(), chain("one.wasm", "").trim_end());
    let none = setup.run_command(["get", "AdmissionChain/version"]).await;
    assert_eq!(none.code, Some(2));
    assert!(
        none.stderr
            .contains("there is no AdmissionChain/version; did you mean AdmissionChain/versions?"),
        "{}",
        none.stderr
    );
    let none = setup.run_command(["decisions", "--chain", "version"]).await;
    assert!(
        none.stderr
            .contains("no chain `version` is live; did you mean versions?"),
        "{}",
        none.stderr
    );
}

#[tokio::test]
async fn definitions_are_applied_rolled_back_and_deleted() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let file = write(&setup.directory, "new.yaml", chain("two.wasm", ""));
    let apply = |options: &[&str]| {
        let file = file.to_str().unwrap().to_owned();
        let mut arguments = vec!["apply".to_owned(), "-f".to_owned(), file];
        arguments.extend(options.iter().map(|&argument| argument.to_owned()));
        arguments
    };

    let dry_run = setup.stdout_of(apply(&["--dry-run"])).await;
    assert!(dry_run.contains("+        source: file:../two.wasm"), "{dry_run}");
    assert_eq!(setup.versions_of("a").await, annotations_by(1));
    assert_eq!(setup.read("chains/versions.yaml"), chain("one.wasm", ""));

    let apply_output = setup.stdout_of(apply(&[])).await;
    assert!(apply_output.contains("AdmissionChain/versions"), "{apply_output}");
    // `apply` returns when the change is live.
    assert_eq!(setup.versions_of("b").await, annotations_by(2));
    assert_eq!(setup.read("chains/versions.yaml"), chain("two.wasm", ""));

    let history = setup.json_of(&["history"]).await;
    let origins: Vec<_> = history["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|revision| revision["origin"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(origins, ["applied", "start"]);
    assert_eq!(history["revisions"][0]["by"], "loopback");
    let diff = setup.stdout_of(["diff", "1", "2"]).await;
    for expected in ["-        source: file:../one.wasm", "version-000001", "version-000002"] {
        assert!(diff.contains(expected), "{expected} in {diff}");
    }

    setup.stdout_of(["rollback", "1"]).await;
    assert_eq!(setup.versions_of("c").await, annotations_by(1));
    assert_eq!(setup.read("chains/versions.yaml"), chain("two.wasm", ""));

    setup.stdout_of(["delete", "AdmissionChain/versions"]).await;
    assert_eq!(setup.versions_of("d").await, json!({}));
    assert!(!setup.path("chains/versions.yaml").exists());
    setup.stdout_of(["rollback", "2"]).await;
    assert_eq!(setup.versions_of("e").await, annotations_by(2));
}

/// A rollback restores the module that was live. The module comes from the store, because its file has changed.
#[tokio::test]
async fn a_rollback_restores_the_exact_module() {
    let mut setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    setup.replace_module("one.wasm", 7);
    let is_live = |status: &Value| status["revision"] == 2;
    setup.program.wait_for_status("the new module", is_live).await.unwrap();
    assert_eq!(setup.versions_of("a").await, annotations_by(7));
    setup.stdout_of(["rollback", "1"]).await;
    assert_eq!(setup.versions_of("b").await, annotations_by(1));
    setup.replace_module("one.wasm", 8);
    let is_live = |status: &Value| status["revision"] == 4;
    setup
        .program
        .wait_for_status("the mended module", is_live)
        .await
        .unwrap();
    assert_eq!(setup.versions_of("c").await, annotations_by(8));
    setup.program.terminate().unwrap();
    assert!(setup.program.wait_for_end().await.unwrap().success());
}

#[tokio::test]
async fn impossible_commands_are_refused_and_change_nothing() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let misspelled = chain("one.wasm", "").replace("settings: { name: a }", "settings: { nmae: a }");
    let missing = chain("three.wasm", "");
    let broken_chain = chain("one.wasm", "").replace("stages:", "stagse:");
    // Each line of this YAML repeats the previous line nine times through aliases, so its value is enormous.
    let lines = (1..10).map(|line| {
        let aliases = vec![format!("*a{}", line - 1); 9].join(",");
        format!("a{line}: &a{line} {{<<: [{aliases}]}}\n")
    });
    let expanding = format!("a0: &a0 {{ x: 1 }}\n{}", lines.collect::<String>());
    for (text, expected) in [
        (misspelled, "nmae"),
        (missing, "three.wasm"),
        (broken_chain, "wrong.yaml:10:3: spec.stagse"),
        (expanding, "repeat over 99 times as much as is written"),
    ] {
        let file = write(&setup.directory, "wrong.yaml", text);
        let refusal = setup.run_command(["apply", "-f", file.to_str().unwrap()]).await;
        assert_eq!(refusal.code, Some(2), "{}", refusal.stdout);
        assert!(refusal.stderr.contains(expected), "{expected} in {}", refusal.stderr);
    }
    for arguments in [
        ["rollback", "9"],
        ["delete", "AdmissionChain/none"],
        ["promote", "versions/version"],
        ["diff", "1"],
    ] {
        assert_eq!(setup.run_command(arguments).await.code, Some(2), "{arguments:?}");
    }
    assert_eq!(setup.versions_of("a").await, annotations_by(1));
    assert_eq!(
        setup.json_of(&["history"]).await["revisions"].as_array().unwrap().len(),
        1
    );
    assert_eq!(setup.read("chains/versions.yaml"), chain("one.wasm", ""));
}

#[tokio::test]
async fn an_unreachable_driver_is_reported_with_a_fix() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let finished = admittance_tests::Admittance::run(["status", "--server", &closed])
        .await
        .unwrap();
    assert_eq!(finished.code, Some(2));
    for expected in [closed.as_str(), "admin: { address: ... }"] {
        assert!(finished.stderr.contains(expected), "{expected} in {}", finished.stderr);
    }
}
