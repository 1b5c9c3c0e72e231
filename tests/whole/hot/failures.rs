//! Tests changes that cannot go live: the program reports the mistake everywhere, such as in its status and in its
//! metrics, and the last valid table stays live.

use std::fs;

use admittance_tests::{Admittance, replace};

use super::scene::{HotScene, chain, mistakes_text};
use crate::scene::source;

struct FailureRow {
    name: &'static str,
    break_it: fn(&HotScene),
    words: &'static [&'static str],
    /// Whether the program tries the failed change again without a change of the files.
    is_retried: bool,
}

const FAILURES: [FailureRow; 14] = [
    FailureRow {
        name: "broken YAML",
        break_it: |hot| replace(&hot.chain_file(), "kind: [").unwrap(),
        words: &["chain.yaml:1:7:", "not YAML"],
        is_retried: false,
    },
    FailureRow {
        name: "a field that is not there",
        break_it: |hot| {
            let text = hot.usual_chain().replace("plugin:", "plugni:");
            replace(&hot.chain_file(), text).unwrap();
        },
        words: &["chain.yaml:8:", "plugni"],
        is_retried: false,
    },
    FailureRow {
        name: "two chains of one name",
        break_it: |hot| fs::write(hot.path("definitions/second.yaml"), hot.usual_chain()).unwrap(),
        words: &["second.yaml:", "versioned"],
        is_retried: false,
    },
    FailureRow {
        name: "a file that is no text",
        break_it: |hot| fs::write(hot.path("definitions/second.yaml"), b"a: \xff").unwrap(),
        words: &["second.yaml"],
        is_retried: false,
    },
    FailureRow {
        name: "a file that is emptied",
        break_it: |hot| fs::write(hot.chain_file(), "").unwrap(),
        words: &["chain.yaml", "there is no definition in it"],
        is_retried: false,
    },
    FailureRow {
        name: "a file of which comments are left",
        break_it: |hot| replace(&hot.chain_file(), "# Sidecars.\n---\n").unwrap(),
        words: &["chain.yaml", "there is no definition in it"],
        is_retried: false,
    },
    FailureRow {
        name: "another digest than the definition wants",
        break_it: |hot| {
            let digest = format!("{{ digest: \"sha256:{}\", source", "0".repeat(64));
            let text = hot.usual_chain().replace("{ source", &digest);
            replace(&hot.chain_file(), text).unwrap();
        },
        words: &["chain.yaml:", "stage stage of chain versioned", "digest sha256:"],
        is_retried: false,
    },
    FailureRow {
        name: "a module that is not there",
        break_it: |hot| fs::remove_file(hot.module_path()).unwrap(),
        words: &["stage stage of chain versioned", "versioned.wasm", "No such file"],
        is_retried: false,
    },
    FailureRow {
        name: "a module of another world",
        break_it: |hot| replace(&hot.module_path(), component_bytes("guest-wrong-world")).unwrap(),
        words: &["stage stage of chain versioned", "export"],
        is_retried: false,
    },
    FailureRow {
        name: "a module that is none",
        break_it: |hot| replace(&hot.module_path(), "hello, world").unwrap(),
        words: &["stage stage of chain versioned", "not WebAssembly"],
        is_retried: false,
    },
    FailureRow {
        name: "settings that the plugin refuses",
        break_it: |hot| {
            let text = hot.usual_chain().replace("name: stage }", "nmae: stage }");
            replace(&hot.chain_file(), text).unwrap();
        },
        words: &["chain.yaml:", "stage stage of chain versioned", "nmae"],
        is_retried: false,
    },
    FailureRow {
        name: "a module that is not signed as its source must be",
        break_it: |hot| {
            fs::create_dir_all(hot.path("signed")).unwrap();
            fs::write(hot.path("signed/versioned.wasm"), hot.module_bytes(9)).unwrap();
            let text = hot.usual_chain().replace("/modules/", "/signed/");
            replace(&hot.chain_file(), text).unwrap();
        },
        words: &["stage stage of chain versioned", "sign"],
        is_retried: false,
    },
    FailureRow {
        name: "a server that is not there",
        break_it: |hot| write_chain_with_source(hot, "https://localhost:1/versioned.wasm"),
        words: &[
            "stage stage of chain versioned",
            "https://localhost:1/versioned.wasm",
            "reached",
        ],
        is_retried: true,
    },
    FailureRow {
        name: "a registry that is not there",
        break_it: |hot| write_chain_with_source(hot, "oci://localhost:1/plugins/versioned:1"),
        words: &[
            "stage stage of chain versioned",
            "localhost:1/plugins/versioned",
            "reached",
        ],
        is_retried: true,
    },
];

fn write_chain_with_source(hot: &HotScene, source: &str) {
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
}

fn component_bytes(package: &str) -> Vec<u8> {
    fs::read(source(package).trim_start_matches("file:")).unwrap()
}

async fn failed_table_count(program: &Admittance) -> f64 {
    let metrics = program.metrics().await.unwrap();
    let failure_count = metrics.sum("admittance_tables_total", &[("result", "failed")]);
    failure_count.unwrap_or_default()
}

#[tokio::test]
async fn a_failed_change_is_reported_and_the_last_table_stays_live() {
    let hot = HotScene::new_with_additions(
        "modules: { attempts: 1 }
signatures:
  - { source: \"file:/**/signed/*\", keys: [key.pem] }
  - { source: \"**\", accept: Unsigned }
",
    )
    .await;
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(hot.path("key.pem"), key.public_key_pem()).unwrap();
    let program = hot.start().await;
    for (row, version) in FAILURES.iter().zip(2..) {
        let name = row.name;
        let (failed_before, mark) = (failed_table_count(&program).await, program.mark());
        let before = program.status().await.unwrap();
        (row.break_it)(&hot);
        let line = program
            .wait_for_log_after(mark, name, |line| {
                let message = line.message();
                message.contains("are rejected") || message.contains("cannot be used; its previous version stays")
            })
            .await
            .unwrap();

        let status = program.status().await.unwrap();
        let status_mistakes = mistakes_text(&status);
        for words in row.words {
            assert!(
                status_mistakes.contains(words),
                "{name}: {words:?} in /v1/status: {status:#}"
            );
            assert!(
                line.message().contains(words),
                "{name}: {words:?} in the log: {}",
                line.text
            );
        }
        assert_eq!(
            status["problem"].get("nextAttempt").is_some(),
            row.is_retried,
            "{name}: {status:#}"
        );
        assert_eq!(line.field("level"), "ERROR", "{name}");
        assert!(program.is_ready().await, "{name}");
        assert!(!hot.is_table_current(&program).await, "{name}");
        let has_failed = failed_table_count(&program).await > failed_before;
        assert_eq!(has_failed, !row.is_retried, "{name}");
        assert_eq!(status["revision"], before["revision"], "{name}");
        assert_eq!(status["liveSince"], before["liveSince"], "{name}");
        assert_eq!(hot.fetch_version(&program).await, Some(version - 1), "{name}");

        let _ = fs::remove_file(hot.path("definitions/second.yaml"));
        hot.write_module(version);
        replace(&hot.chain_file(), hot.usual_chain()).unwrap();
        hot.until_version(&program, name, version).await;
        let status = program
            .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
            .await
            .unwrap();
        assert!(
            status["revision"].as_u64() > before["revision"].as_u64(),
            "{name}: {status:#}"
        );
        assert!(hot.is_table_current(&program).await, "{name}");
    }
}
