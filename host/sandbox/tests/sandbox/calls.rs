use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Chain, Deadline, Evaluation, EvaluationSources, FailureKind, Hook, Mode, NoAuthorizer, Response, StageSpec,
    StaticNamespaces, Verdict,
};
use admittance_sandbox::{CallLimits, ConfigurationTime, PluginConfig};

use crate::{
    guest::{
        CONFIGURE_RESULT_ADDRESS, Guest, GuestAnswer, RESPONSE_ADDRESS, SCRATCH_ADDRESS, TEXT_ADDRESS, data_segment,
    },
    harness::{call, config, load, load_and_call, load_with, log_lines, request, sandbox, sandbox_with_slots},
    wrapper::wrap_component,
};

fn verdict_text(response: &Response) -> String {
    match &response.verdict {
        Verdict::Allow => format!("allow {:?}", response.warnings),
        Verdict::Patch(patch) => format!("patch {patch}"),
        Verdict::Replace(object) => format!("replace {}", object.text()),
        Verdict::Deny(denial) => format!("deny {} {} {}", denial.code(), denial.reason, denial.message),
    }
}

#[tokio::test]
async fn a_plugins_verdict_becomes_the_response() {
    for (guest, expected) in [
        (Guest::default(), "allow []"),
        (Guest::answering(&GuestAnswer::Warn("careful")), r#"allow ["careful"]"#),
        (
            Guest::answering(&GuestAnswer::Patch(r#"[{"op":"remove","path":"/a"}]"#)),
            r#"patch [{"op":"remove","path":"/a"}]"#,
        ),
        (
            Guest::answering(&GuestAnswer::Replace(r#"{"a":1}"#)),
            r#"replace {"a":1}"#,
        ),
        (
            Guest::answering(&GuestAnswer::Deny {
                code: 422,
                reason: "Bad",
                message: "No.",
            }),
            "deny 422 Bad No.",
        ),
        (
            Guest::answering(&GuestAnswer::Deny {
                code: 200,
                reason: "",
                message: "No.",
            }),
            "deny 403  No.",
        ),
    ] {
        assert_eq!(verdict_text(&load_and_call(&guest).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn without_address_space_for_the_pool_each_call_maps_its_own_memory() {
    // 20,000 calls with up to four memories each need 320 TiB of address space, but a process has only 128 TiB.
    let sandbox = sandbox_with_slots(20_000);
    let plugin = load_with(&sandbox, &Guest::default(), "{}", &config()).await.unwrap();
    assert_eq!(verdict_text(&call(&plugin).await.unwrap()), "allow []");
    assert!(
        log_lines()
            .iter()
            .any(|line| line.contains("address space for their memories cannot be reserved")),
        "the log says it"
    );
}

/// A function that recurses without end. It takes stack space for its argument.
const RECURSIVE_FUNCTION: &str = "(func $deep (param i64) (result i64)
    (i64.add (call $deep (i64.add (local.get 0) (i64.const 1))) (local.get 0)))";

#[tokio::test]
async fn each_kind_of_failed_call_has_its_own_failure_kind() {
    // There is one slot, so if a failed call did not release it, the next case would wait for it.
    let sandbox = sandbox_with_slots(1);
    let deep = Guest::running("(drop (call $deep (i64.const 0)))").with_items(RECURSIVE_FUNCTION);
    // The guest returns a verdict with the number 9, but there are only four verdicts.
    let no_such_verdict = Guest::default().with_data(RESPONSE_ADDRESS + 4, &[9]);
    let outside = Guest::default().with_data(RESPONSE_ADDRESS + 4, &[1, 0, 0, 0, 0, 0, 0, 0xf0, 8]);
    let not_utf8 = Guest::default()
        .with_data(RESPONSE_ADDRESS + 4, &[1, 0, 0, 0, 0, 0x10, 0, 0, 2])
        .with_data(TEXT_ADDRESS, &[0xff, 0xfe]);
    for (case, guest, kind, says) in [
        (
            "unreachable",
            Guest::running("unreachable"),
            FailureKind::Trap,
            "panicked or aborted",
        ),
        (
            "division by zero",
            Guest::running("(drop (i32.div_u (i32.const 1) (i32.const 0)))"),
            FailureKind::Trap,
            "divide by zero",
        ),
        (
            "outside of memory",
            Guest::running("(drop (i32.load (i32.const -8)))"),
            FailureKind::Trap,
            "memory out of bounds",
        ),
        ("recursion", deep, FailureKind::Trap, "stack overflow"),
        (
            "memory without end",
            Guest::running("(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const 0))))"),
            FailureKind::Memory,
            "the limit is 67108864",
        ),
        (
            "its own error",
            Guest::answering(&GuestAnswer::Error("disk is full")),
            FailureKind::Error,
            "disk is full",
        ),
        (
            "no patch",
            Guest::answering(&GuestAnswer::Patch("{}")),
            FailureKind::InvalidResponse,
            "JSON Patch",
        ),
        (
            "no object",
            Guest::answering(&GuestAnswer::Replace("[]")),
            FailureKind::InvalidResponse,
            "not a JSON object",
        ),
        (
            "no such verdict",
            no_such_verdict,
            FailureKind::InvalidResponse,
            "not valid",
        ),
        (
            "text outside of memory",
            outside,
            FailureKind::InvalidResponse,
            "not valid",
        ),
        (
            "text that is not UTF-8",
            not_utf8,
            FailureKind::InvalidResponse,
            "utf-8",
        ),
        (
            "more than the host copies",
            Guest {
                pages: 100,
                ..Guest::answering(&GuestAnswer::Huge(5_000_000))
            },
            FailureKind::OutputTooLarge,
            "1048576 bytes",
        ),
        (
            "a little too much",
            Guest {
                pages: 100,
                ..Guest::answering(&GuestAnswer::Huge((1 << 20) + 1))
            },
            FailureKind::OutputTooLarge,
            "1048577 bytes",
        ),
    ] {
        let plugin = load_with(&sandbox, &guest, "{}", &config()).await.unwrap();
        let failure = call(&plugin).await.expect_err(case);
        assert_eq!(failure.kind, kind, "{case}: {failure}");
        assert!(failure.message.contains(says), "{case}: {failure}");
        assert_eq!(call(&plugin).await.expect_err(case), failure, "{case}");
    }
    assert_eq!(sandbox.free_slots(), 1);
}

#[tokio::test]
async fn a_call_starts_with_fresh_memory() {
    // The guest notes in memory and in a global that it was called, and traps if it finds this note.
    let guest = Guest::running(&format!(
        "(if (i32.or (i32.load (i32.const {SCRATCH_ADDRESS})) (global.get $calls)) (then unreachable))
         (i32.store (i32.const {SCRATCH_ADDRESS}) (i32.const 1))
         (global.set $calls (i32.const 1))"
    ))
    .with_items("(global $calls (mut i32) (i32.const 0))");
    let plugin = load(&guest).await;
    for _ in 0..50 {
        call(&plugin).await.unwrap();
    }
}

fn settings_guest() -> Guest {
    Guest::running(&format!(
        "(i32.store8 (i32.const {}) (i32.const 3))
         (i32.store16 (i32.const {}) (i32.add (global.get $last) (i32.const 400)))",
        RESPONSE_ADDRESS + 4,
        RESPONSE_ADDRESS + 8,
    ))
    .with_items("(global $last (mut i32) (i32.const 0))")
    .with_configure(
        "(global.set $last
            (i32.sub (i32.load8_u (i32.sub (i32.add (local.get $text) (local.get $length)) (i32.const 1)))
                     (i32.const 48)))",
    )
}

#[tokio::test]
async fn the_settings_of_a_plugin_are_kept_in_its_snapshot() {
    let plugin = load_with(sandbox(), &settings_guest(), "7", &config()).await.unwrap();
    assert_eq!(*plugin.configuration_time(), ConfigurationTime::Snapshot);
    for _ in 0..3 {
        assert_eq!(verdict_text(&call(&plugin).await.unwrap()), "deny 407  ");
    }
}

#[tokio::test]
async fn settings_are_kept_in_a_snapshot_of_nested_components() {
    let component = settings_guest().component();
    for (times, why) in [(1, None), (2, Some("instantiated twice"))] {
        let sandbox = sandbox();
        let prepared = sandbox
            .prepare(wrap_component(&component, times), "7", &config())
            .await
            .unwrap();
        let reason = match prepared.configuration_time() {
            ConfigurationTime::Snapshot => None,
            ConfigurationTime::PerCall { reason } => Some(reason.as_str()),
        };
        assert_eq!(reason.is_some(), why.is_some(), "{reason:?}");
        assert!(
            reason.unwrap_or_default().contains(why.unwrap_or_default()),
            "{reason:?}"
        );
        let plugin = sandbox.load(&prepared, &config()).unwrap();
        for _ in 0..3 {
            assert_eq!(verdict_text(&call(&plugin).await.unwrap()), "deny 407  ");
        }
    }
    // A component that is nested in a nested component cannot be snapshotted.
    let prepared = sandbox()
        .prepare(wrap_component(&wrap_component(&component, 1), 1), "7", &config())
        .await;
    let ConfigurationTime::PerCall { reason } = prepared.unwrap().configuration_time().clone() else {
        panic!("a component in a component in a component has a snapshot")
    };
    assert!(reason.contains("nested components with modules"), "{reason}");
}

#[tokio::test]
async fn a_plugin_that_cannot_be_snapshotted_is_configured_in_each_call() {
    let table = "(table 1 funcref) (func $unused (table.set (i32.const 0) (ref.null func)))";
    let guest = settings_guest().with_items(table);
    let plugin = load_with(sandbox(), &guest, "9", &config()).await.unwrap();
    let ConfigurationTime::PerCall { reason } = plugin.configuration_time() else {
        panic!("{:?}", plugin.configuration_time())
    };
    assert!(reason.contains("table.set"), "{reason}");
    for _ in 0..3 {
        assert_eq!(verdict_text(&call(&plugin).await.unwrap()), "deny 409  ");
    }
}

fn config_with_time(time: Duration) -> PluginConfig {
    PluginConfig {
        limits: CallLimits {
            time,
            ..CallLimits::default()
        },
        ..config()
    }
}

fn looping_guest() -> Guest {
    Guest::running("(loop $again (br $again))")
}

fn sleeping_guest() -> Guest {
    Guest::running("(call $block (call $sleep (i64.const 3600000000000)))")
        .with_world("import wasi:clocks/monotonic-clock@0.2.3;")
        .with_items(
            r#"(import "wasi:clocks/monotonic-clock@0.2.3" "subscribe-duration" (func $sleep (param i64) (result i32)))
               (import "wasi:io/poll@0.2.3" "[method]pollable.block" (func $block (param i32)))"#,
        )
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    for (case, guest) in [("loop", looping_guest()), ("sleep", sleeping_guest())] {
        let plugin = load_with(sandbox(), &guest, "{}", &config_with_time(Duration::from_millis(50)))
            .await
            .unwrap();
        let failure = call(&plugin).await.expect_err(case);
        assert_eq!(failure.kind, FailureKind::Timeout, "{case}: {failure}");
        assert!(
            failure.message.contains("the stage's limit of 50ms"),
            "{case}: {failure}"
        );

        let short = Deadline::after(Duration::from_millis(20));
        let failure = plugin.admit(&Arc::new(request()), short).await.expect_err(case);
        assert_eq!(failure.kind, FailureKind::Timeout, "{case}: {failure}");
        assert!(failure.message.contains("its deadline"), "{case}: {failure}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_looping_plugin_does_not_delay_other_work() {
    let good = load(&Guest::default()).await;
    let bad = load_with(
        sandbox(),
        &looping_guest(),
        "{}",
        &config_with_time(Duration::from_secs(20)),
    )
    .await
    .unwrap();
    let bad = tokio::spawn(async move { call(&bad).await });
    tokio::task::yield_now().await;
    for _ in 0..20 {
        call(&good).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!bad.is_finished());
    bad.abort();
    assert!(bad.await.unwrap_err().is_cancelled());
    call(&good).await.unwrap();
}

#[tokio::test]
async fn a_call_waits_for_a_slot_until_its_deadline() {
    let sandbox = sandbox_with_slots(1);
    let plugin = load_with(
        &sandbox,
        &sleeping_guest(),
        "{}",
        &config_with_time(Duration::from_secs(20)),
    )
    .await
    .unwrap();
    let good = load_with(&sandbox, &Guest::default(), "{}", &config()).await.unwrap();

    let held_call = tokio::spawn(async move { call(&plugin).await });
    while sandbox.free_slots() > 0 {
        tokio::task::yield_now().await;
    }
    let failure = good
        .admit(&Arc::new(request()), Deadline::after(Duration::from_millis(10)))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Overloaded, "{failure}");
    assert!(failure.message.contains("all 1 slots"), "{failure}");

    // A call that is dropped releases its slot, which the waiting call gets.
    let (good, _) = tokio::join!(call(&good), async {
        tokio::task::yield_now().await;
        held_call.abort();
    });
    good.unwrap();
}

/// Even if all plugins of stages in mode `Audit` hang, half of the slots are free for enforced stages.
#[tokio::test]
async fn audit_calls_leave_half_of_the_slots_free() {
    let sandbox = sandbox_with_slots(4);
    let hangs = load_with(&sandbox, &sleeping_guest(), "{}", &config()).await.unwrap();
    let good = load_with(&sandbox, &Guest::default(), "{}", &config()).await.unwrap();
    let audits: Vec<_> = (0..6)
        .map(|_| {
            let mut spec = StageSpec::new("audit");
            (spec.mode, spec.timeout) = (Mode::Audit, Duration::from_secs(60));
            let chain = Chain::new("audits", Vec::new(), vec![spec.with_hook(hangs.clone())]);
            tokio::spawn(async move {
                let sources = EvaluationSources {
                    namespaces: &StaticNamespaces::default(),
                    authorizer: &NoAuthorizer,
                };
                let mut evaluation = Evaluation::new(request(), Deadline::after(Duration::from_secs(60)));
                evaluation.run(&[&chain], sources).await;
            })
        })
        .collect();
    while sandbox.free_slots() > 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        call(&good).await.unwrap();
    }
    assert_eq!(sandbox.free_slots(), 2);

    for audit in &audits {
        audit.abort();
    }
    while sandbox.free_slots() < 4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn many_calls_run_concurrently() {
    let plugin = Arc::new(load(&Guest::default()).await);
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let plugin = Arc::clone(&plugin);
            tokio::spawn(async move { call(&plugin).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(sandbox().fingerprint(), sandbox_with_slots(1).fingerprint());
}

fn mistaken_settings_data() -> String {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    data_segment(CONFIGURE_RESULT_ADDRESS, &words(&[1, SCRATCH_ADDRESS, 1]))
        + &data_segment(SCRATCH_ADDRESS, &words(&[TEXT_ADDRESS, 2, TEXT_ADDRESS + 2, 4]))
        + &data_segment(TEXT_ADDRESS, b"/amust")
}

#[tokio::test]
async fn mistakes_in_settings_are_reported() {
    let guest = Guest {
        data: mistaken_settings_data(),
        ..Guest::default()
    };
    let error = load_with(sandbox(), &guest, "{}", &config()).await.unwrap_err();
    assert_eq!(error.to_string(), "the plugin rejected its settings: /a: must");
}
