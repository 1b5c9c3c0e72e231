//! Measures calls alongside plugins that fill their memory in a loop: one `memory.fill` is not interrupted by
//! epoch ticks.
//!
//! `cargo run --release -p admittance --example beside_fill -- [SECONDS] [PLUGINS]`

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance::admission::{
    Deadline, GroupVersionKind, GroupVersionResource, Hook as _, Object, Operation, Request,
};
use admittance_sandbox::{Limits, Plugin, PluginConfig, Sandbox, SandboxConfig};

use self::guest::Guest;

#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it is a helper of tests"
)]
#[path = "../../sandbox/tests/sandbox/guest.rs"]
mod guest;

const MIB: u32 = 1 << 20;

async fn load(sandbox: &Sandbox, code: &str) -> Result<Arc<Plugin>, Box<dyn Error>> {
    let config = PluginConfig {
        name: "measured".to_owned(),
        limits: Limits {
            time: Duration::from_secs(600),
            ..Limits::default()
        },
        ..PluginConfig::default()
    };
    let module = Guest::running(code).component();
    let prepared = sandbox.prepare(module, "{}", &config).await?;
    Ok(Arc::new(sandbox.load(&prepared, &config)?))
}

fn request() -> Result<Request, Box<dyn Error>> {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = GroupVersionResource {
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        ..Default::default()
    };
    let object = Object::parse(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#)?;
    Ok(Request::new(Operation::Create, kind, resource).with_object(object))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let plugins: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let sandbox = Sandbox::new(SandboxConfig::default())?;
    let good = load(&sandbox, "").await?;
    let request = Arc::new(request()?);
    for mib in [None, Some(0), Some(1), Some(8), Some(48)] {
        let code = match mib {
            // A plain loop.
            Some(0) => "(loop $again (br $again))".to_owned(),
            Some(mib) => format!(
                "(drop (memory.grow (i32.const {})))
                (loop $again
                    (memory.fill (i32.const 131072) (i32.const 1) (i32.const {}))
                    (br $again))",
                mib * MIB / 65_536,
                mib * MIB
            ),
            None => String::new(),
        };
        let bad = load(&sandbox, &code).await?;
        let hostile: Vec<_> = (0..mib.map_or(0, |_| plugins))
            .map(|_| {
                let (bad, request) = (bad.clone(), request.clone());
                tokio::spawn(async move {
                    let _ = bad
                        .admit(&request, Deadline::after(Duration::from_secs(600)))
                        .await;
                })
            })
            .collect();
        let (good, request) = (good.clone(), request.clone());
        // On a worker, as requests are.
        let measured = tokio::spawn(async move {
            let (mut times, end) = (Vec::new(), Instant::now() + Duration::from_secs(seconds));
            while Instant::now() < end {
                let start = Instant::now();
                let answer = good
                    .admit(&request, Deadline::after(Duration::from_secs(60)))
                    .await;
                times.push(start.elapsed());
                answer.map_err(|failure| failure.to_string())?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, String>(times)
        });
        let mut times = measured.await??;
        for call in hostile {
            call.abort();
        }
        times.sort_unstable();
        let at = |percent: usize| {
            let last = times.len().saturating_sub(1);
            times.get(last * percent / 100).copied().unwrap_or_default()
        };
        let beside = match mib {
            None => "nothing".to_owned(),
            Some(0) => format!("{plugins} loops"),
            Some(mib) => format!("{plugins} times memory.fill of {mib} MiB"),
        };
        println!(
            "beside {beside}: {} calls, p50 {:.1?}, p99 {:.1?}, max {:.1?}",
            times.len(),
            at(50),
            at(99),
            at(100)
        );
    }
    Ok(())
}
