use admittance_admission::{FailureKind, Verdict};
use admittance_sandbox::ConfigurationTime;

use super::{ANSWER_ADDRESS, MESSAGE_ADDRESS, METADATA, SETTINGS_ADDRESS, TEXT_ADDRESS, escape, load_module};
use crate::harness::{call, config, request, sandbox};

/// Creates a WASI policy with this code and answer. It tells operations apart by the lengths of their names.
fn program_policy(code: &str, answer: &str) -> Vec<u8> {
    let metadata = METADATA.replace("kubewarden-wapc", "wasi");
    let settings = r#"{"valid":true}"#;
    let text = format!(
        r#"(module (@custom "io.kubewarden.metadata" "{metadata}")
            (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "host" "call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 4)
            (data (i32.const {ANSWER_ADDRESS}) "{answer}") (data (i32.const {SETTINGS_ADDRESS}) "{settings}")
            (data (i32.const {TEXT_ADDRESS}) "kubewardentracinglog{{}}kubernetesget_resource")
            (func $say (param $at i32) (param $length i32)
                (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $length))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
            ;; Reads all of standard input, and leaves its length at 20.
            (func $input
                (i32.store (i32.const 0) (i32.const {MESSAGE_ADDRESS})) (i32.store (i32.const 4) (i32.const 65536))
                (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 20))))
            (func (export "_start")
                (drop (call $sizes (i32.const 12) (i32.const 16)))
                ;; `policy.wasm`, `validate` and two zeros.
                (if (i32.ne (i32.load (i32.const 16)) (i32.const 21))
                    (then (call $say (i32.const {SETTINGS_ADDRESS}) (i32.const {settings_length})) (return)))
                (call $input)
                (if (i32.eqz (i32.load (i32.const 20))) (then unreachable))
                {code}
                (call $say (i32.const {ANSWER_ADDRESS}) (i32.const {answer_length}))
                (call $exit (i32.const 0))))"#,
        metadata = escape(&metadata),
        answer = escape(answer),
        answer_length = answer.len(),
        settings = escape(settings),
        settings_length = settings.len(),
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[tokio::test]
async fn a_wasi_policy_is_run_for_each_call() {
    let denial = r#"{"accepted":false,"message":"no"}"#;
    let plugin = load_module(sandbox(), program_policy("", denial), "{}", &config())
        .await
        .unwrap();
    assert!(matches!(plugin.configuration_time(), ConfigurationTime::PerCall { .. }));
    let response = call(&plugin).await.unwrap();
    assert!(matches!(&response.verdict, Verdict::Deny(denial) if denial.code() == 400 && denial.message == "no"));
    // A policy reads the host's answers from its standard input. The answer to a log line is empty, so the policy reads
    // nothing.
    let log = format!(
        "(if (call $call (i32.const {TEXT_ADDRESS}) (i32.const 10) (i32.const {}) (i32.const 7) (i32.const {})
            (i32.const 3) (i32.const {}) (i32.const 2)) (then unreachable))
         (call $input) (if (i32.load (i32.const 20)) (then unreachable))",
        TEXT_ADDRESS + 10,
        TEXT_ADDRESS + 17,
        TEXT_ADDRESS + 20
    );
    let lines = "(memory.fill (i32.const 131072) (i32.const 10) (i32.const 131072))
         (loop $again
            (i32.store (i32.add (i32.const 65536) (i32.load (i32.const 8))) (i32.const 131072))
            (i32.store (i32.add (i32.const 65540) (i32.load (i32.const 8))) (i32.const 131072))
            (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 8)))
            (br_if $again (i32.lt_u (i32.load (i32.const 8)) (i32.const 8192))))
         (if (call $write (i32.const 2) (i32.const 65536) (i32.const 1024) (i32.const 8)) (then unreachable))
         (if (i32.ne (i32.load (i32.const 8)) (i32.const 16384)) (then unreachable))";
    for (code, kind) in [
        (log.as_str(), None),
        (lines, None),
        ("unreachable", Some(FailureKind::Trap)),
        ("(call $exit (i32.const 1))", Some(FailureKind::Trap)),
        (
            "(loop $again (call $say (i32.const 0) (i32.const 65536)) (br $again))",
            Some(FailureKind::OutputTooLarge),
        ),
    ] {
        let plugin = load_module(sandbox(), program_policy(code, denial), "{}", &config())
            .await
            .unwrap();
        assert_eq!(call(&plugin).await.err().map(|failure| failure.kind), kind, "{code}");
    }
    let inspection = sandbox().inspect(program_policy("", denial)).await.unwrap();
    assert_eq!(inspection.interface, "kubewarden:wasi");
    assert!(request().object.is_some());
}

#[tokio::test]
async fn unread_answers_to_a_wasi_policy_are_limited() {
    // The policy calls the host again and again with a long request, and never reads the answers. Each answer is an
    // error that quotes the request, so the unread answers soon take much memory.
    let code = format!(
        "(memory.fill (i32.const {MESSAGE_ADDRESS}) (i32.const 97) (i32.const 65536))
         (i32.store8 (i32.const {MESSAGE_ADDRESS}) (i32.const 34)) (i32.store8 (i32.const {}) (i32.const 34))
         (loop $again
            (drop (call $call (i32.const {TEXT_ADDRESS}) (i32.const 10) (i32.const {}) (i32.const 10) (i32.const {})
                (i32.const 12) (i32.const {MESSAGE_ADDRESS}) (i32.const 65536)))
            (br $again))",
        MESSAGE_ADDRESS + 65_535,
        TEXT_ADDRESS + 22,
        TEXT_ADDRESS + 32
    );
    let mut config = config();
    config.limits.memory = 512 << 10;
    let plugin = load_module(sandbox(), program_policy(&code, ""), "{}", &config)
        .await
        .unwrap();
    let failure = call(&plugin).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Memory, "{failure}");
    assert!(failure.message.contains("standard input unread"), "{failure}");
}
