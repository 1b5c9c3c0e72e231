use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance_admission::{Digest, FailureKind};
use admittance_sandbox::{CallLimits, CallMeter, ConfigurationTime, Error, LoadStep, PluginConfig, Prepared};
use tempfile::TempDir;

use crate::{
    guest::{DESCRIPTION_ADDRESS, Guest, RESPONSE_ADDRESS},
    harness::{call, config, sandbox, sandbox_with},
    policies::Policy,
};

async fn prepare_refusal(module: &[u8]) -> String {
    sandbox()
        .prepare(module.to_vec(), "{}", &config())
        .await
        .unwrap_err()
        .to_string()
}

fn replace_bytes(component: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = component.to_vec();
    let mut is_found = false;
    for start in 0..bytes.len() - from.len() {
        if bytes[start..].starts_with(from.as_bytes()) {
            bytes[start..start + from.len()].copy_from_slice(to.as_bytes());
            is_found = true;
        }
    }
    assert!(is_found);
    bytes
}

#[tokio::test]
async fn a_module_that_is_not_a_plugin_is_refused_with_the_reason() {
    let component = Guest::default().component();
    let text = |text: &str| wat::parse_str(text).unwrap();
    let cut_off = component[..component.len() - 10].to_vec();
    let elsewhere = Guest::running("(call $it)")
        .with_world("import other:host/thing@1.0.0;")
        .with_items(r#"(import "other:host/thing@1.0.0" "do-it" (func $it))"#)
        .component();
    let wasi_3 = Guest::running("(call $it)")
        .with_world("import wasi:http/handler@0.3.0;")
        .with_items(r#"(import "wasi:http/handler@0.3.0" "handle" (func $it))"#)
        .component();
    let no_such_function = Guest::running("(call $it)")
        .with_world("import wasi:cli/exit@0.2.3;")
        .with_items(r#"(import "wasi:cli/exit@0.2.3" "no-such-exit" (func $it))"#)
        .component();
    for (case, module, expected_text) in [
        ("nothing", Vec::new(), "the file is empty"),
        (
            "a library",
            b"!<arch>\nlib.rmeta".to_vec(),
            "add `crate-type = [\"cdylib\"]`",
        ),
        (
            "a beginning",
            component[..5].to_vec(),
            "the module is cut off: it has only 5 bytes",
        ),
        (
            "half",
            component[..component.len() / 2].to_vec(),
            "the module is cut off: unexpected end-of-file",
        ),
        (
            "async",
            text("(component (core func (canon task.cancel)))"),
            "needs component-model async, which this host does not support",
        ),
        (
            "a program",
            text(
                r#"(component
                    (core module $m (func (export "run") (result i32) i32.const 0))
                    (core instance $i (instantiate $m))
                    (func $run (result (result)) (canon lift (core func $i "run")))
                    (instance $it (export "run" (func $run)))
                    (export "wasi:cli/run@0.2.3" (instance $it)))"#,
            ),
            "it is a program with a `main`",
        ),
        ("text", b"hello".to_vec(), "not WebAssembly"),
        ("a core module", text("(module)"), "core module"),
        ("cut off", cut_off, "the module is cut off"),
        (
            "an empty component",
            text("(component)"),
            "it does not export `describe`",
        ),
        (
            "another type of `admit`",
            text(
                r#"(component
                    (core module $m (func (export "f")))
                    (core instance $i (instantiate $m))
                    (func $f (canon lift (core func $i "f")))
                    (export "describe" (func $f)) (export "configure" (func $f)) (export "admit" (func $f)))"#,
            ),
            "is not a plugin",
        ),
        (
            "another version",
            replace_bytes(
                &component,
                "admittance:plugin/types@0.1.1",
                "admittance:plugin/types@0.9.0",
            ),
            "version 0.9.0 of admittance:plugin, and this host accepts 0.1.x",
        ),
        (
            "an import from elsewhere",
            elsewhere,
            "imports `other:host/thing@1.0.0`",
        ),
        ("WASI 0.3", wasi_3, "imports `wasi:http/handler@0.3.0`"),
        (
            "a function that is not there",
            no_such_function,
            "does not fit this host",
        ),
        (
            "garbage collection",
            text("(component (core module (type (struct (field i32)))))"),
            "does not support garbage collection",
        ),
    ] {
        let refusal = prepare_refusal(&module).await;
        assert!(refusal.contains(expected_text), "{case}: {refusal}");
    }
}

#[tokio::test]
async fn a_patch_version_of_the_contract_is_accepted() {
    let component = replace_bytes(
        &Guest::default().component(),
        "admittance:plugin/types@0.1.1",
        "admittance:plugin/types@0.1.9",
    );
    sandbox().prepare(component, "{}", &config()).await.unwrap();
}

#[tokio::test]
async fn preparations_with_different_settings_share_compiled_code() {
    let sandbox = sandbox_with(|_| {});
    // The guest's `configure` stores the settings, and its `admit` fails with them as the message.
    let keep = format!(
        "(i32.store (i32.const {RESPONSE_ADDRESS}) (i32.const 1))
         (i32.store (i32.const {}) (local.get $text))
         (i32.store (i32.const {}) (local.get $length))",
        RESPONSE_ADDRESS + 4,
        RESPONSE_ADDRESS + 8
    );
    let module = Guest::default().with_configure(&keep).component();
    let prepare = async |settings: &str| {
        let prepared = sandbox.prepare(module.clone(), settings, &config()).await.unwrap();
        assert_eq!(*prepared.configuration_time(), ConfigurationTime::Snapshot);
        let plugin = sandbox.load(&prepared, &config()).unwrap();
        let failure = call(&plugin).await.unwrap_err();
        assert!(failure.message.ends_with(settings), "{failure:?}");
    };
    let shared = sandbox.share(Digest::of_bytes(&module));
    for settings in [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#] {
        prepare(settings).await;
    }
    assert_eq!(
        sandbox.compilation_count(),
        2,
        "the module, and the code of its snapshots"
    );
    // These settings are shorter than the previous ones, so the heap of the guest ends at another address. A global of
    // the snapshot contains this address, so the code of this snapshot differs, and is compiled again.
    prepare("{}").await;
    assert_eq!(
        sandbox.compilation_count(),
        3,
        "this snapshot differs in more than data"
    );
    drop(shared);
    prepare("{}").await;
    assert_eq!(sandbox.compilation_count(), 5, "nothing is kept");
    tokio::join!(prepare("{}"), prepare("[]"), prepare("77"));
    assert_eq!(
        sandbox.compilation_count(),
        7,
        "preparations at the same time share too"
    );
}

#[tokio::test]
async fn a_meter_measures_the_cost_of_calls() {
    let meter = Arc::new(CallMeter::default());
    let sandbox = sandbox_with(|config| config.meter = Some(meter.clone()));
    let module = Guest::default().component();
    let prepared = sandbox.prepare(module, "{}", &config()).await.unwrap();
    let plugin = sandbox.load(&prepared, &config()).unwrap();
    assert_eq!(meter.take(), None, "what is prepared is no call");
    call(&plugin).await.unwrap();
    let cost = meter.take().unwrap();
    assert!(!cost.instance.is_zero() && !cost.guest.is_zero(), "{cost:?}");
    assert_eq!((cost.touched, meter.take()), (None, None));
}

#[tokio::test]
async fn a_module_above_the_size_limit_is_refused() {
    let sandbox = sandbox_with(|config| config.max_module_size = 100);
    let error = sandbox.prepare(vec![0; 101], "{}", &config()).await.unwrap_err();
    let message = "the module has 101 bytes; the limit is 100; ";
    assert!(error.to_string().starts_with(message), "{error}");
}

#[tokio::test]
async fn a_memory_limit_above_the_maximum_is_refused() {
    let limits = CallLimits {
        memory: 2 << 30,
        ..CallLimits::default()
    };
    let config = PluginConfig { limits, ..config() };
    let error = sandbox()
        .prepare(Guest::default().component(), "{}", &config)
        .await
        .unwrap_err();
    let message = "a memory limit of 2147483648 bytes is above this host's maximum of 1073741824 bytes";
    assert!(error.to_string().starts_with(message), "{error}");
}

#[test]
fn a_preparation_can_be_cancelled_at_any_time() {
    let sandbox = sandbox_with(|config| config.configure_timeout = Duration::from_secs(3600));
    let guest = Guest::default().with_configure("(loop $again (br $again))").component();
    let has_panicked = Arc::new(AtomicBool::new(false));
    let hook = std::panic::take_hook();
    let panic_flag = has_panicked.clone();
    std::panic::set_hook(Box::new(move |info| {
        // Other tests may panic at the same time, but with other messages. This test looks only for the panic of a
        // runtime that is shutting down.
        if info.to_string().contains("being shutdown") {
            panic_flag.store(true, Ordering::SeqCst);
        }
        hook(info);
    }));
    for wait in [0, 20, 200] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sandbox, guest) = (sandbox.clone(), guest.clone());
        let preparing = runtime.spawn(async move { sandbox.prepare(guest, "{}", &config()).await });
        std::thread::sleep(Duration::from_millis(wait));
        // Dropping the runtime waits for its threads. The guest on one of these threads loops forever, so this line
        // returns only because the guest is stopped.
        drop(runtime);
        assert!(preparing.is_finished());
    }
    assert!(!has_panicked.load(Ordering::SeqCst));
}

#[tokio::test]
async fn configure_is_limited_in_time_and_memory() {
    let sandbox = sandbox_with(|config| config.configure_timeout = Duration::from_millis(50));
    for (case, code, kind) in [
        ("loop", "(loop $again (br $again))", FailureKind::Timeout),
        ("trap", "unreachable", FailureKind::Trap),
        ("memory", "(drop (memory.grow (i32.const 2000)))", FailureKind::Memory),
    ] {
        let guest = Guest::default().with_configure(code);
        let error = sandbox.prepare(guest.component(), "{}", &config()).await.unwrap_err();
        let Error::Call {
            step: LoadStep::Configure,
            failure,
        } = error
        else {
            panic!("{case}: {error}")
        };
        assert_eq!(failure.kind, kind, "{case}: {failure}");
    }
}

#[tokio::test]
async fn a_plugin_that_fills_too_much_memory_in_configure_is_refused() {
    let mut config = config();
    config.limits.memory = 256 << 20;
    let component = |bytes: usize| Guest::default().with_configure(&fill_code(bytes)).component();
    // This `configure` adds many pages of memory, but fills only one byte. Only filled pages count towards the limit,
    // so the plugin is accepted.
    sandbox().prepare(component(1), "{}", &config).await.unwrap();
    let mut policy = Policy::default();
    policy.items = format!("(func $fill {}) (start $fill)", fill_code(100 << 20));
    for module in [component(100 << 20), policy.module()] {
        let error = sandbox().prepare(module, "{}", &config).await.unwrap_err().to_string();
        let parts = error
            .strip_prefix("`configure` leaves ")
            .and_then(|rest| rest.split_once(" bytes of memory"));
        let (bytes, rest) = parts.unwrap();
        assert!(bytes.parse::<usize>().unwrap() >= 100 << 20, "{error}");
        assert!(rest.contains("at most 67108864 can be kept"), "{error}");
    }
}

fn fill_code(bytes: usize) -> String {
    format!(
        "(drop (memory.grow (i32.const 2000)))
         (memory.fill (i32.const 262144) (i32.const 1) (i32.const {bytes}))"
    )
}

#[tokio::test]
async fn the_start_up_code_of_a_plugin_runs_once() {
    // The guest's start-up code traps if it runs a second time in the same memory, as a C library's start-up code
    // would.
    let guest = Guest::default().with_items(
        r#"(func (export "_initialize")
            (if (i32.load (i32.const 512)) (then unreachable))
            (i32.store (i32.const 512) (i32.const 1)))"#,
    );
    let prepared = sandbox().prepare(guest.component(), "{}", &config()).await.unwrap();
    assert_eq!(*prepared.configuration_time(), ConfigurationTime::Snapshot);
    call(&sandbox().load(&prepared, &config()).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_is_tested_before_it_is_used() {
    // The guest's `configure` overwrites the field `mutates` of the guest's own description, which is in its memory. So
    // in the snapshot, `describe` returns something else than before.
    let spoils = format!("(i32.store8 (i32.const {}) (i32.const 1))", DESCRIPTION_ADDRESS + 24);
    let guest = Guest::default().with_configure(&spoils);
    let prepared = sandbox().prepare(guest.component(), "{}", &config()).await.unwrap();
    let ConfigurationTime::PerCall { reason } = prepared.configuration_time() else {
        panic!("{:?}", prepared.configuration_time())
    };
    assert!(reason.contains("differently"), "{reason}");
    call(&sandbox().load(&prepared, &config()).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_prepared_plugin_is_mapped_from_a_file() {
    let prepared = sandbox()
        .prepare(Guest::default().component(), "{}", &config())
        .await
        .unwrap();
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("code");
    let header = prepared.header();
    fs::write(&path, [prepared.code().unwrap().as_ref(), &header].concat()).unwrap();
    let reloaded = Prepared::from_file(&path, &header).unwrap();
    assert_eq!(reloaded.description(), prepared.description());
    assert_eq!(reloaded.header(), header);
    let plugin = sandbox().load(&reloaded, &config()).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains(path.to_str().unwrap()), "{maps}");
    fs::remove_file(&path).unwrap();
    call(&plugin).await.unwrap();

    for cut in [0, 4, header.len() - 1] {
        let cut = Prepared::from_file(&path, &header[..cut]);
        assert!(matches!(cut, Err(Error::Artifact(_))), "{cut:?}");
    }
    let missing = sandbox().load(&reloaded, &config()).unwrap_err();
    assert!(missing.to_string().contains("No such file"), "{missing}");
    let other = sandbox().fingerprint().replace('-', "+");
    let foreign = Prepared::from_file(&path, &replace_bytes(&header, &sandbox().fingerprint(), &other)).unwrap();
    let error = sandbox().load(&foreign, &config()).unwrap_err();
    assert!(error.to_string().contains(&other), "{error}");
}

#[tokio::test]
async fn a_separate_compiler_process_produces_the_same_plugin() {
    let sandbox = sandbox_with(|config| config.compiler = Some(env!("CARGO_BIN_EXE_admittance-compiler").into()));
    for in_background in [false, true] {
        if in_background {
            sandbox.limit_compilations();
        }
        let guest = Guest::default();
        let prepared = sandbox.prepare(guest.component(), "{}", &config()).await.unwrap();
        assert_eq!(*prepared.configuration_time(), ConfigurationTime::Snapshot);
        call(&sandbox.load(&prepared, &config()).unwrap()).await.unwrap();
        let code = prepared.code().unwrap().clone();
        let prepared = Prepared::from_bytes(code, &prepared.header()).unwrap();
        call(&self::sandbox().load(&prepared, &config()).unwrap())
            .await
            .unwrap();
        let module = wat::parse_str("(component (core module (func (result i32))))").unwrap();
        let error = sandbox.prepare(module.clone(), "{}", &config()).await.unwrap_err();
        assert_eq!(error.to_string(), prepare_refusal(&module).await);
    }
}

#[tokio::test]
async fn prepare_and_inspect_refuse_a_module_above_the_complexity_limits() {
    let mut text = "(component)".to_owned();
    for _ in 0..9 {
        text = format!("(component {text} {})", "(instance (instantiate 0))".repeat(10));
    }
    let module = wat::parse_str(&text).unwrap();
    let expected_text = "1111111110 instances";
    assert!(prepare_refusal(&module).await.contains(expected_text));
    let error = sandbox().inspect(module).await.unwrap_err().to_string();
    assert!(error.contains(expected_text), "{error}");
}
