//! Tests of loading waPC policies: refused modules, settings, limits and metadata.

use std::time::Duration;

use admittance_admission::{Digest, FailureKind};
use admittance_sandbox::{Capability, ConfigurationTime, Error, Grant, LoadStep};

use super::{MESSAGE_ADDRESS, METADATA, Policy, escape, load_module};
use crate::harness::{call, config, sandbox, sandbox_with};

#[tokio::test]
async fn a_module_that_is_not_a_policy_is_refused_with_the_reason() {
    let with_metadata = |from: &str, to: &str| Policy {
        metadata: METADATA.replace(from, to),
        ..Policy::default()
    };
    let items = |items: &str| Policy {
        items: items.to_owned(),
        ..Policy::default()
    };
    for (policy, says) in [
        (
            with_metadata("\"v1\",", "\"v2\","),
            "speaks version `v2` of Kubewarden's protocol",
        ),
        (with_metadata("kubewarden-wapc", "opa"), "Rego that was compiled"),
        (
            with_metadata("\"mutating\"", "\"policyType\": \"raw\", \"mutating\""),
            "says `policyType: raw`",
        ),
        (with_metadata("kubewarden-wapc", "other"), "does not know"),
        (with_metadata("true", "1"), "cannot be read"),
        (
            Policy {
                version: "\"v9\"".to_owned(),
                ..Policy::default()
            },
            "speaks version `v9`",
        ),
        (
            items(r#"(import "wapc" "__new" (func))"#),
            "imports `wapc.__new`, which this host does not have",
        ),
        (items(r#"(import "env" "abort" (func))"#), "imports `env.abort`"),
        (
            items(r#"(import "wapc" "__host_error" (func (param i64)))"#),
            "does not fit this host",
        ),
    ] {
        let error = policy.load().await.unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    let lies = format!(r#"(module (@custom "io.kubewarden.metadata" "{}"))"#, escape(METADATA));
    let no_call = format!(
        r#"(module (@custom "io.kubewarden.metadata" "{}") (import "wapc" "__host_response" (func (param i32))))"#,
        escape(METADATA)
    );
    for (text, says) in [
        (lies, "imports nothing of `wapc`"),
        (no_call, "does not export the function `__guest_call`"),
        ("(module)".to_owned(), "core module, but a plugin must be a component"),
    ] {
        let module = wat::parse_str(&text).unwrap();
        let error = load_module(sandbox(), module, "{}", &config())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[tokio::test]
async fn settings_are_validated_when_a_policy_is_loaded() {
    let settings = r#"{"valid":false,"message":"no label"}"#.to_owned();
    let invalid = Policy {
        settings,
        ..Policy::default()
    };
    match invalid.load().await.unwrap_err() {
        Error::Settings(mistakes) => assert_eq!(mistakes[0].to_string(), "no label"),
        error => panic!("{error}"),
    }
    let settings = "?".to_owned();
    let error = Policy {
        settings,
        ..Policy::default()
    }
    .load()
    .await
    .unwrap_err();
    assert!(
        error.to_string().contains("validation of its settings cannot be read"),
        "{error}"
    );
    let expected = r#""settings":{"a":1}}"#;
    let policy = Policy::running(&format!(
        "(if (i32.ne (i32.load8_u (i32.sub (i32.add (i32.const {MESSAGE_ADDRESS}) (local.get $length)) (i32.const {})))
            (i32.const {})) (then unreachable))",
        expected.len() - 1,
        b's'
    ));
    let plugin = policy.load_with(sandbox(), r#"{"a":1}"#, &config()).await.unwrap();
    call(&plugin).await.unwrap();
}

#[tokio::test]
async fn policies_with_different_settings_share_compiled_code() {
    let sandbox = sandbox_with(|_| {});
    let module = Policy::default().module();
    let _shared = sandbox.share(Digest::of_bytes(&module));
    for settings in [r#"{"a":1}"#, r#"{"b":2}"#] {
        let prepared = sandbox.prepare(module.clone(), settings, &config()).await;
        assert_eq!(*prepared.unwrap().configuration_time(), ConfigurationTime::Snapshot);
    }
    assert_eq!(
        sandbox.compilation_count(),
        2,
        "the module, and the code of its snapshots"
    );
}

#[tokio::test]
async fn start_up_code_is_limited_in_time_and_memory() {
    let sandbox = sandbox_with(|config| config.configure_timeout = Duration::from_millis(50));
    let items = r#"(func (export "_initialize") (loop $again (br $again)))"#.to_owned();
    let error = Policy {
        items,
        ..Policy::default()
    }
    .load_with(&sandbox, "{}", &config())
    .await
    .unwrap_err();
    assert!(
        matches!(&error, Error::Call { step: LoadStep::Start, failure } if failure.kind == FailureKind::Timeout),
        "{error}"
    );
}

#[tokio::test]
async fn inspecting_a_policy_shows_its_metadata() {
    let inspection = sandbox().inspect(Policy::default().module()).await.unwrap();
    let description = &inspection.description;
    let texts = [&description.name, &description.version, &description.summary];
    assert_eq!(texts, ["t", "1.0.0", "d"]);
    assert!(description.mutates);
    assert_eq!(description.resources[0].resources, ["pods"]);
    assert_eq!(
        description.capabilities,
        [Capability::Cluster("apps/v1/Deployment".to_owned())]
    );
    assert_eq!(inspection.interface, "kubewarden:wapc");
    assert_eq!(inspection.contract.as_deref(), Some("v1"));
    assert_eq!(inspection.annotations["io.kubewarden.policy.author"], "me");
    let imports = inspection
        .imports
        .iter()
        .map(|import| (import.name.as_str(), import.grant));
    assert_eq!(
        imports.collect::<Vec<_>>(),
        [
            ("wapc", Grant::None),
            ("wasi_snapshot_preview1", Grant::None),
            ("wasi_snapshot_preview1/path_open", Grant::Never),
        ]
    );
}
