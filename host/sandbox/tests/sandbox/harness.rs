//! The sandbox that tests share, a request, and functions that load and call plugins.

use std::{
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use admittance_admission::{
    Deadline, Failure, GroupVersionKind, GroupVersionResource, Hook, Object, Operation, Request, Response,
};
use admittance_sandbox::{CallLimits, Error, Plugin, PluginConfig, Sandbox, SandboxConfig};

use crate::guest::Guest;

pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| sandbox_with_slots(16));
    &SANDBOX
}

pub(crate) fn sandbox_with_slots(calls_in_flight: u32) -> Sandbox {
    sandbox_with(|config| config.calls_in_flight = calls_in_flight)
}

pub(crate) fn sandbox_with(change: impl FnOnce(&mut SandboxConfig)) -> Sandbox {
    let mut config = SandboxConfig::default();
    config.calls_in_flight = 1;
    change(&mut config);
    Sandbox::new(config).unwrap()
}

/// All tests share this subscriber. They cannot have one each, because `tracing` caches for all threads together
/// whether any subscriber wants an event.
static LOG: LazyLock<LogBuffer> = LazyLock::new(|| {
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let format = tracing_subscriber::fmt().without_time().with_ansi(false);
    format.with_writer(move || writer.clone()).init();
    buffer
});

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn log_lines() -> Vec<String> {
    let bytes = LOG.0.lock().unwrap().clone();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

pub(crate) fn config() -> PluginConfig {
    // The log is initialised here, because every test calls this function before it logs anything.
    LazyLock::force(&LOG);
    // Calls get a lot of time, because the machine may be busy. A test that needs a shorter limit sets it in the
    // configuration that this function returns.
    let limits = CallLimits {
        time: Duration::from_secs(30),
        ..CallLimits::default()
    };
    PluginConfig {
        name: "guest".to_owned(),
        limits,
        ..PluginConfig::default()
    }
}

pub(crate) async fn load(guest: &Guest) -> Plugin {
    load_with(sandbox(), guest, "{}", &config()).await.unwrap()
}

pub(crate) async fn load_with(
    sandbox: &Sandbox,
    guest: &Guest,
    settings: &str,
    config: &PluginConfig,
) -> Result<Plugin, Error> {
    let prepared = sandbox.prepare(guest.component(), settings, config).await?;
    sandbox.load(&prepared, config)
}

pub(crate) fn request() -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = GroupVersionResource {
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        ..Default::default()
    };
    Request::new(Operation::Create, kind, resource)
        .with_object(Object::parse(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#).unwrap())
}

pub(crate) async fn call(plugin: &Plugin) -> Result<Response, Failure> {
    plugin
        .admit(&Arc::new(request()), Deadline::after(Duration::from_secs(60)))
        .await
}

pub(crate) async fn load_and_call(guest: &Guest) -> Result<Response, Failure> {
    call(&load(guest).await).await
}
