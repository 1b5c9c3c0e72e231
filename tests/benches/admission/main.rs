//! Measures the cost of stages: `cargo task bench`.
//!
//! Compares a plugin with the same code called natively and as a webhook, and measures a chain of ten plugins, the
//! proxy in front of its upstream, and the webhook server. All of these measurements come from one run on one thread
//! pool, with sequential requests, so ratios are more reliable than times. Then measures the whole program under load,
//! and the durations of its starts and changes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that cannot run should stop"
)]

#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../../host/cluster/tests/cluster/api_server.rs"]
mod api_server;
mod decisions;
mod generator;
mod loading;
mod measure;
mod mesos;
mod native;
mod objects;
mod proxy;
mod reviews;
#[expect(dead_code, reason = "another crate's tests use the rest of it")]
#[path = "../../../host/cluster/tests/cluster/setting.rs"]
mod setting;
mod throughput;
mod webhook;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use admittance::{
    Host, ModuleReference,
    admission::{GroupVersionKind, MatchConditions, Object, Operation, Outcome, Request, Rule, StageResult},
    definitions,
};
use admittance_tests::{Artifacts, repository};

use crate::{measure::MeasuredTable, native::NativePlugin};

const SETTINGS: &str = r#"{
    "containers": [{"name": "log-agent", "image": "registry.example.com/log-agent:2.1"}],
    "volumes": [{"name": "logs", "emptyDir": {}}],
    "annotations": {"example.com/logs": "collected"}
}"#;

#[tokio::main]
async fn main() -> ExitCode {
    // `cargo bench` passes `--bench` to this program, and `cargo test` does not. `cargo test` only has to show that the
    // benchmarks work, so each benchmark makes few calls then.
    let is_quick = std::env::args().all(|argument| argument != "--bench");
    let calls = if is_quick { 20 } else { 20_000 };
    let directory = tempfile::tempdir().unwrap();

    let benchmark_names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let is_wanted =
        |name: &str| benchmark_names.is_empty() || benchmark_names.iter().any(|benchmark| benchmark == name);
    if is_wanted("stage") {
        measure_stages(directory.path(), calls).await;
    }
    if is_wanted("chains") {
        measure_chains(calls).await;
    }
    let requests = if is_quick { 20 } else { 5_000 };
    if is_wanted("proxy") {
        proxy::measure(directory.path(), requests, &objects::pod(2)).await;
    }
    if is_wanted("reviews") {
        reviews::measure(directory.path(), requests, &objects::pod(2)).await;
    }
    if is_wanted("decisions") {
        let (decision_count, rows) = if is_quick { (100, 10) } else { (1_000_000, 20_000) };
        decisions::measure(directory.path(), calls, decision_count, rows).await;
    }
    if is_wanted("mesos") {
        mesos::measure(directory.path(), requests).await;
    }
    if is_wanted("throughput") {
        let time = Duration::from_millis(if is_quick { 100 } else { 3_000 });
        let other = std::env::args().find_map(|argument| Some(argument.strip_prefix("--compare=")?.into()));
        if !throughput::measure(directory.path(), time, other).await {
            return ExitCode::FAILURE;
        }
    }
    let (rounds, plugins) = if is_quick { (2, 3) } else { (20, 100) };
    if is_wanted("loading") {
        loading::measure(rounds, plugins).await;
    }
    ExitCode::SUCCESS
}

fn program() -> PathBuf {
    Artifacts::find().unwrap().program("admittance").unwrap()
}

/// Measures a plugin as the only stage of a chain, and in a chain of ten stages. To compare, also measures the plugin's
/// code as native code without a sandbox, and as a webhook.
async fn measure_stages(directory: &std::path::Path, calls: usize) {
    let native = NativePlugin::new(SETTINGS);
    let one_stage = plugin_host(directory, 1).await;
    let ten_stages = plugin_host(directory, 10).await;
    let native_chain = Host::builder().chain(native::chain(SETTINGS)).build().await.unwrap();
    let artifacts = Artifacts::find().unwrap();
    let policy = build_host(write_labels_chain(
        directory,
        "policy",
        &artifacts.policy("guest_policy").unwrap(),
    ))
    .await;
    let rule = build_host(write_labels_chain(
        directory,
        "rule",
        &artifacts.component("guest-labels").unwrap(),
    ))
    .await;
    let expression = build_host(write_chain(directory, "expressions", "Pod", &validation_stages())).await;
    let of_kubernetes = build_host(write_policy(
        directory,
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    ))
    .await;
    let of_kyverno = build_host(write_policy(directory, "policies.kyverno.io/v1", "ValidatingPolicy")).await;
    let labels = template_host("required-labels", "warning.yaml").await;
    let limits = template_host("container-limits", "constraint.yaml").await;
    let webhook = webhook::BenchWebhook::start(SETTINGS).await;
    let remote = webhook.host(directory).await;

    let mut table = MeasuredTable::new(&format!("a stage: {calls} calls each, one after another"));
    for (name, text) in [("1 kB Pod", objects::pod(2)), ("5 kB Pod", objects::pod(16))] {
        let name = format!("{name} ({} bytes)", text.len());
        let base = table
            .measure(
                &format!("{name}, native call of the plugin's code"),
                None,
                calls,
                async || native.admit(&text),
            )
            .await;
        table
            .measure(
                &format!("{name}, native code as a stage"),
                Some(base),
                calls,
                async || assert_changed(native_chain.admit(request(&text)).await),
            )
            .await;
        for (form, host) in [
            ("a stage", &expression),
            ("a policy of Kubernetes", &of_kubernetes),
            ("a policy of Kyverno", &of_kyverno),
        ] {
            table
                .measure(
                    &format!("{name}, a validation in CEL as {form}"),
                    Some(base),
                    calls,
                    async || assert_allowed(host.admit(request(&text)).await),
                )
                .await;
        }
        let plugin = table
            .measure(&format!("{name}, one plugin stage"), Some(base), calls, async || {
                assert_changed(one_stage.admit(request(&text)).await)
            })
            .await;
        table
            .measure(
                &format!("{name}, ten plugin stages"),
                Some(base),
                calls / 4,
                async || assert_changed(ten_stages.admit(request(&text)).await),
            )
            .await;
        table
            .measure(
                &format!("{name}, one Kubewarden policy (waPC) that adds a label"),
                Some(base),
                calls,
                async || assert_changed(policy.admit(request(&text)).await),
            )
            .await;
        table
            .measure(
                &format!("{name}, one plugin with the rule of that policy"),
                Some(base),
                calls,
                async || assert_changed(rule.admit(request(&text)).await),
            )
            .await;
        for (template, host) in [("required labels", &labels), ("container limits", &limits)] {
            table
                .measure(
                    &format!("{name}, a Gatekeeper template in Rego: {template}"),
                    Some(base),
                    calls / 4,
                    async || assert_no_failure(host.admit(request(&text)).await),
                )
                .await;
        }
        let webhook = table
            .measure(
                &format!("{name}, one webhook stage, TLS keep-alive"),
                Some(base),
                calls / 4,
                async || assert_changed(remote.admit(request(&text)).await),
            )
            .await;
        table.note(format!(
            "{name}: the plugin stage is {:.1} times faster than the webhook stage",
            webhook.ratio(plugin)
        ));
    }
    table.print();
}

/// Measures a request that matches one chain, without other chains and with 10,000 chains that it does not match.
async fn measure_chains(calls: usize) {
    let text = objects::pod(2);
    let mut table = MeasuredTable::new(&format!("many chains: {calls} calls each, one after another"));
    let mut base = None;
    for other_count in [0, 100, 10_000] {
        let mut builder = Host::builder().chain(native::chain(SETTINGS));
        for other in 0..other_count {
            builder = builder.chain(native::chain_for(SETTINGS, &format!("resource-{other}")));
        }
        let host = builder.build().await.unwrap();
        let row = table
            .measure(
                &format!("native stage, {other_count} other chains"),
                base,
                calls,
                async || assert_changed(host.admit(request(&text)).await),
            )
            .await;
        base.get_or_insert(row);
    }
    table.print();
}

async fn plugin_host(directory: &std::path::Path, stages: usize) -> Host {
    build_host(chain_file(directory, stages)).await
}

async fn build_host(chains: std::path::PathBuf) -> Host {
    Host::builder().definitions(chains).build().await.unwrap()
}

fn validation_stages() -> serde_json::Value {
    serde_json::json!([{"name": "unprivileged", "cel": {"validations": [{
        "expression": "object.spec.containers.all(c, !c.?securityContext.?privileged.orValue(false))",
        "message": "privileged containers are not allowed",
    }]}}])
}

/// Writes the check of [`validation_stages`] as a policy of this kind. If the kind needs a binding, writes one, too.
fn write_policy(directory: &std::path::Path, version: &str, kind: &str) -> std::path::PathBuf {
    let validations = &validation_stages()[0]["cel"]["validations"];
    let rule = serde_json::json!({
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    });
    let mut items = vec![serde_json::json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "unprivileged"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": validations},
    })];
    if kind == "ValidatingAdmissionPolicy" {
        items.push(serde_json::json!({
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "all"},
            "spec": {"policyName": "unprivileged", "validationActions": ["Deny"]},
        }));
    }
    let path = directory.join(format!("{kind}.json"));
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(&path, list.to_string()).unwrap();
    path
}

fn chain_file(directory: &std::path::Path, stages: usize) -> std::path::PathBuf {
    chain_file_for(directory, "Pod", stages)
}

fn chain_file_for(directory: &std::path::Path, kind: &str, stages: usize) -> std::path::PathBuf {
    let plugin = Artifacts::find().unwrap().component("sidecar-injector").unwrap();
    let stages: Vec<_> = (0..stages)
        .map(|stage| {
            let mut settings: serde_json::Value = serde_json::from_str(SETTINGS).unwrap();
            settings["containers"][0]["name"] = format!("log-agent-{stage}").into();
            settings["statusAnnotation"] = format!("example.com/status-{stage}").into();
            serde_json::json!({
                "name": format!("sidecar-{stage}"),
                "plugin": {"source": format!("file:{}", plugin.display()), "settings": settings},
            })
        })
        .collect();
    let name = format!("plugins-{}", stages.len());
    write_chain(directory, &name, kind, &stages.into())
}

async fn template_host(example: &str, constraint: &str) -> Host {
    let directory = repository().join("docs/examples/gatekeeper").join(example);
    let paths = ["template.yaml", constraint].map(|name| directory.join(name));
    let mut builder = Host::builder();
    for mut chain in definitions::load(&paths).unwrap() {
        chain.rules = vec![Rule::for_operations([Operation::Create])];
        for stage in &mut chain.stages {
            stage.spec.rules = Vec::new();
            stage.spec.match_conditions = MatchConditions::default();
            for plugin in stage.plugins_mut() {
                plugin.source = ModuleReference::File(Artifacts::find().unwrap().component("rego").unwrap());
            }
        }
        builder = builder.definition(chain);
    }
    builder.build().await.unwrap()
}

/// Checks that no stage failed, whatever the verdict is.
fn assert_no_failure(outcome: Outcome) -> Outcome {
    let mut rows = outcome.trace.iter();
    assert!(
        rows.all(|row| !matches!(row.result, StageResult::Failed { .. })),
        "{:?}",
        outcome.trace
    );
    outcome
}

fn write_labels_chain(directory: &std::path::Path, name: &str, module: &std::path::Path) -> std::path::PathBuf {
    let stage = serde_json::json!({
        "name": name,
        "plugin": {"source": format!("file:{}", module.display()), "settings": {"add": {"checked": "yes"}}},
    });
    write_chain(directory, name, "Pod", &serde_json::json!([stage]))
}

fn write_chain(directory: &std::path::Path, name: &str, kind: &str, stages: &serde_json::Value) -> std::path::PathBuf {
    let chain = serde_json::json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": name},
        "spec": {"rules": [{"operations": ["CREATE"], "kinds": [kind]}], "stages": stages},
    });
    let path = directory.join(format!("{name}.json"));
    std::fs::write(&path, chain.to_string()).unwrap();
    path
}

/// Returns a request like the servers do, which parse only the metadata of the object.
fn request(text: &str) -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    Request::new(Operation::Create, kind, resource).with_object(Object::parse(text).unwrap())
}

fn assert_allowed(outcome: Outcome) -> Outcome {
    assert!(outcome.is_allowed(), "{:?}", outcome.trace);
    outcome
}

fn assert_changed(outcome: Outcome) -> Outcome {
    assert!(outcome.is_allowed() && outcome.is_changed(), "{:?}", outcome.trace);
    outcome
}
