use std::time::Duration;

use admittance_admission::{FailureKind, Verdict};
use admittance_sandbox::{CallLimits, ConfigurationTime, PluginConfig};

use super::{METADATA, Policy};
use crate::harness::{call, config, sandbox};

#[tokio::test]
async fn each_call_of_a_policy_starts_from_the_snapshot_taken_after_start_up() {
    let plugin = Policy::default().load().await.unwrap();
    assert_eq!(*plugin.configuration_time(), ConfigurationTime::Snapshot);
    for _ in 0..2 {
        assert!(matches!(call(&plugin).await.unwrap().verdict, Verdict::Allow));
    }
    // No snapshot can be taken of a policy that changes a table.
    let items = r#"(func $change (table.set $table (i32.const 0) (ref.null func)))"#.to_owned();
    let plugin = Policy {
        items,
        ..Policy::default()
    }
    .load()
    .await
    .unwrap();
    assert!(
        matches!(plugin.configuration_time(), ConfigurationTime::PerCall { reason } if reason.contains("table.set"))
    );
    for _ in 0..2 {
        assert!(matches!(call(&plugin).await.unwrap().verdict, Verdict::Allow));
    }
}

#[tokio::test]
async fn a_policys_answer_becomes_a_verdict_or_a_failure() {
    let object = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"y"}}}"#;
    let changing = Policy::answering(&format!(r#"{{"accepted":true,"mutated_object":{object}}}"#));
    match changing.load_and_call().await.unwrap().verdict {
        Verdict::Replace(replaced) => assert_eq!(replaced.text(), object),
        verdict => panic!("{verdict:?}"),
    }
    let metadata = METADATA.replace("\"mutating\": true", "\"mutating\": false");
    let denial = Policy::answering(r#"{"accepted":false,"message":"no","code":422,"warnings":["w"]}"#);
    let response = denial.load_and_call().await.unwrap();
    assert_eq!(response.warnings, ["w"]);
    assert!(matches!(&response.verdict, Verdict::Deny(denial) if denial.code() == 422 && denial.message == "no"));

    let not_allowed = Policy { metadata, ..changing };
    let fills = "(loop $again (drop (memory.grow (i32.const 16))) (br $again))";
    for (policy, kind, says) in [
        (
            not_allowed,
            FailureKind::InvalidResponse,
            "does not say `mutating: true`",
        ),
        (
            Policy::answering("{}"),
            FailureKind::InvalidResponse,
            "missing field `accepted`",
        ),
        (Policy::running("unreachable"), FailureKind::Trap, "panicked or aborted"),
        (
            Policy::running("(call $exit (i32.const 3))"),
            FailureKind::Trap,
            "exit code 3",
        ),
        (Policy::running(fills), FailureKind::Memory, "bytes of memory"),
        (
            Policy::running("(call $response (i32.const 1000000) (i32.const 10))"),
            FailureKind::Trap,
            "out of bounds",
        ),
        (
            Policy::running("(call $response (i32.const 0) (i32.const 2000000))"),
            FailureKind::OutputTooLarge,
            "more than the limit",
        ),
        (
            Policy::running("(call $error (i32.const 16384) (i32.const 4)) (return (i32.const 0))"),
            FailureKind::Error,
            "the plugin returned an error: ",
        ),
        (
            Policy::running("(return (i32.const 0))"),
            FailureKind::Error,
            "`validate` failed without a message",
        ),
        (
            Policy::running(
                "(drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                    (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0)))",
            ),
            FailureKind::CapabilityDenied,
            "wasi_snapshot_preview1.path_open",
        ),
    ] {
        let failure = policy.load_and_call().await.unwrap_err();
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
    }
    let limits = CallLimits {
        time: Duration::from_millis(30),
        ..CallLimits::default()
    };
    let config = PluginConfig { limits, ..config() };
    let endless = Policy::running("(loop $again (br $again))")
        .load_with(sandbox(), "{}", &config)
        .await
        .unwrap();
    assert_eq!(call(&endless).await.unwrap_err().kind, FailureKind::Timeout);
}
