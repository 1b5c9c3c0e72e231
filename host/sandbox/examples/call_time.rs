//! Measures the time of a plugin call, each in a fresh instance.
//!
//! `cargo run --release -p admittance-sandbox --example call_time -- PLUGIN.wasm [SETTINGS] [OBJECT.json]`
//!
//! The default object is a Pod of 1 KB. The minimum is the cost on an idle machine; the median includes other load.

use std::{error::Error, sync::Arc, time::Instant};

use admittance_admission::{
    Deadline, GroupVersionKind, GroupVersionResource, Hook as _, Object, Operation, Request, Verdict,
};
use admittance_sandbox::{PluginConfig, Sandbox, SandboxConfig};

/// The numbers of warm-up calls and of measured calls.
const CALLS: (usize, usize) = (2_000, 20_000);

fn pod() -> String {
    let container = |name: &str| {
        format!(
            r#"{{"name":"{name}","image":"registry.example.com/team/{name}:1.4.2","ports":[{{"containerPort":8080}}],"env":[{{"name":"MODE","value":"production"}},{{"name":"REGION","value":"north"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}}}}"#
        )
    };
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web","namespace":"shop","uid":"7c3f5a0e-9a0e-4a55-8a52-3d9a4d6f2b11","labels":{{"app":"web","tier":"front","release":"r42"}},"annotations":{{"example.com/owner":"team-a","example.com/reviewed":"yes"}}}},"spec":{{"serviceAccountName":"web","nodeSelector":{{"disk":"ssd"}},"containers":[{},{}]}}}}"#,
        container("web"),
        container("metrics")
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let module = std::fs::read(
        arguments
            .next()
            .ok_or("name a plugin: PLUGIN.wasm [SETTINGS] [OBJECT.json]")?,
    )?;
    let settings = arguments.next().unwrap_or_else(|| "{}".to_owned());
    let object = match arguments.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => pod(),
    };

    let sandbox = Sandbox::new(SandboxConfig::default())?;
    let config = PluginConfig {
        name: "measured".to_owned(),
        ..PluginConfig::default()
    };
    let start = Instant::now();
    let prepared = sandbox.prepare(module, &settings, &config).await?;
    let prepare = start.elapsed();
    let start = Instant::now();
    let plugin = sandbox.load(&prepared, &config)?;
    println!(
        "prepare {prepare:.1?}, load {:.1?}, {:?}",
        start.elapsed(),
        plugin.configured()
    );

    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = GroupVersionResource {
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        ..Default::default()
    };
    let bytes = object.len();
    let request = Request::new(Operation::Create, kind, resource);
    let request = Arc::new(request.with_object(Object::parse(object)?));

    let (mut times, mut verdict) = (Vec::with_capacity(CALLS.1), None);
    for call in 0..CALLS.0 + CALLS.1 {
        let start = Instant::now();
        let response = plugin
            .admit(&request, Deadline::after(config.limits.time))
            .await?;
        if call >= CALLS.0 {
            times.push(start.elapsed());
        }
        verdict = Some(response.verdict);
    }
    times.sort_unstable();
    let at = |percent: usize| {
        times
            .get(times.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    let verdict = match verdict {
        Some(Verdict::Patch(patch)) => format!("patch of {} operations", patch.len()),
        Some(Verdict::Deny(denial)) => format!("denial: {denial}"),
        other => format!("{other:?}"),
    };
    println!(
        "{bytes} bytes, {verdict}: min {:.1?}, p50 {:.1?}, p90 {:.1?}, p99 {:.1?}",
        at(0),
        at(50),
        at(90),
        at(99)
    );
    Ok(())
}
