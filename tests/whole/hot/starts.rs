//! Tests that a start serves the definitions, or the last live table if the definitions are invalid.

use std::fs;

use admittance_tests::replace;
use serde_json::json;

use super::scene::{HotScene, kill_program, mistakes_text};

#[tokio::test]
async fn the_last_live_table_is_served_when_definitions_are_broken() {
    type Break = fn(&HotScene);
    let table: [(&str, Break, &str); 4] = [
        (
            "broken definitions",
            |hot| fs::write(hot.chain_file(), "kind: [").unwrap(),
            "chain.yaml:1:",
        ),
        (
            "no directory of definitions",
            |hot| fs::remove_dir_all(hot.path("definitions")).unwrap(),
            "definitions",
        ),
        (
            "no module",
            |hot| fs::remove_file(hot.module_path()).unwrap(),
            "versioned.wasm",
        ),
        (
            "half a module",
            |hot| fs::write(hot.module_path(), &hot.module_bytes(2)[..1000]).unwrap(),
            "stage stage",
        ),
    ];
    for (name, break_it, words) in table {
        let hot = HotScene::new().await;
        // The definitions are invalid before the first start, so the program has no earlier definitions to serve.
        break_it(&hot);
        let output = hot.program_builder().finish().await.unwrap();
        assert_eq!(output.code, Some(2), "{name}: {}", output.stderr);
        assert!(output.stderr.contains(words), "{name}: {}", output.stderr);

        fs::create_dir_all(hot.path("definitions")).unwrap();
        replace(&hot.chain_file(), hot.usual_chain()).unwrap();
        hot.write_module(1);
        let program = hot.start().await;
        let before = program.status().await.unwrap();
        kill_program(program).await;
        break_it(&hot);
        let program = hot.start().await;
        assert_eq!(hot.fetch_version(&program).await, Some(1), "{name}");
        let status = program.status().await.unwrap();
        assert_eq!(status["revision"], before["revision"], "{name}");
        assert!(mistakes_text(&status).contains(words), "{name}: {status:#}");
        assert!(!hot.is_table_current(&program).await, "{name}");
        let is_error_log = |line: &admittance_tests::ProgramLogLine| {
            line.field("level") == "ERROR"
                && line.message().contains("last live table")
                && line.message().contains(words)
        };
        assert!(program.log().iter().any(is_error_log), "{name}: {:#?}", program.log());

        fs::create_dir_all(hot.path("definitions")).unwrap();
        hot.write_module(3);
        replace(&hot.chain_file(), hot.usual_chain()).unwrap();
        hot.until_version(&program, name, 3).await;
        program
            .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_rollback_holds_until_the_files_change() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    hot.write_module(2);
    hot.until_version(&program, "the second version", 2).await;
    hot.roll_back(&program, 1).await;
    assert_eq!(hot.fetch_version(&program).await, Some(1));
    let status = program.status().await.unwrap();
    assert_eq!(status["revision"], 3, "{status:#}");
    assert_eq!(status["origin"]["type"], "rolledBack", "{status:#}");
    assert_eq!(status["origin"]["to"], 1, "{status:#}");
    assert_eq!(
        fs::read(hot.module_path()).unwrap(),
        hot.module_bytes(2),
        "no file is touched"
    );

    // After a rollback, the file still has the newer content. Writing the same content again is not a change, so the
    // rollback is still in effect after a restart.
    let mut program = program;
    program.terminate().unwrap();
    program.wait_for_end().await.unwrap();
    hot.write_module(2);
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(1));
    let restarted_status = program.status().await.unwrap();
    assert_eq!(
        (&restarted_status["revision"], &restarted_status["origin"]),
        (&status["revision"], &status["origin"])
    );

    hot.write_module(3);
    hot.until_version(&program, "the third version", 3).await;
    let status = program.status().await.unwrap();
    assert_eq!(status["revision"], 4, "{status:#}");
    assert_eq!(status["origin"]["type"], "files", "{status:#}");
}

#[tokio::test]
async fn two_programs_cannot_share_a_history() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let output = hot.program_builder().finish().await.unwrap();
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    for words in [
        &format!("it is in use by process {}", program.id().unwrap()),
        hot.path("history").to_str().unwrap(),
        "a history directory of its own",
    ] {
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
    // The store is not locked, so another program may use it at the same time. Only a history is locked, so the other
    // program gets a history of its own.
    let other = hot
        .program_builder()
        .history(hot.path("other-history"))
        .start()
        .await
        .unwrap();
    assert_eq!(hot.fetch_version(&other).await, Some(1));
    kill_program(program).await;
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(1));
}

#[tokio::test]
async fn a_damaged_revision_is_skipped_at_startup() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    for version in [2, 3] {
        hot.write_module(version);
        hot.until_version(&program, "a version", version).await;
    }
    kill_program(program).await;
    let revision = |number: u32| hot.path("history").join(format!("{number:010}.revision"));
    let text = fs::read(revision(3)).unwrap();
    fs::write(revision(3), &text[..text.len() / 2]).unwrap();
    fs::write(hot.chain_file(), "kind: [").unwrap();
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(2), "the newest that is whole");
    let is_logged = program
        .log()
        .iter()
        .any(|line| line.field("level") == "WARN" && line.text.contains("0000000003.revision"));
    assert!(is_logged, "{:#?}", program.log());
}

#[tokio::test]
async fn the_history_shows_the_author_and_the_differences_of_each_revision() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    hot.write_module(2);
    hot.until_version(&program, "the second version", 2).await;
    let second = hot.usual_chain().replace("name: versioned", "name: second");
    let reply = hot.post(&program, "/v1/definitions", &second).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    hot.roll_back(&program, 2).await;

    let history = hot.client.get(&program.admin_url("/v1/history")).await.unwrap();
    let history = history.json().unwrap();
    let origins: Vec<_> = history["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|revision| (revision["number"].as_u64().unwrap(), &revision["origin"]["type"]))
        .collect();
    let expected = [
        (4, &json!("rolledBack")),
        (3, &json!("applied")),
        (2, &json!("files")),
        (1, &json!("start")),
    ];
    assert_eq!(origins, expected, "{history:#}");
    let diff = hot
        .client
        .get(&program.admin_url("/v1/diff?from=1&to=3"))
        .await
        .unwrap();
    let text = diff.text();
    for words in ["second", "version-000001", "version-000002"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
