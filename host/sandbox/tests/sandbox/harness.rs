//! What every test needs: a sandbox, a request, and short ways to a plugin and its answer.

use std::{sync::LazyLock, time::Duration};

use admittance_admission::{
    Deadline, Failure, GroupVersionKind, GroupVersionResource, Hook, Object, Operation, Request, Response,
};
use admittance_sandbox::{Error, Limits, Plugin, PluginConfig, Sandbox, SandboxConfig};

use crate::guest::Guest;

/// One for all tests that do not need their own, as in a process.
pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| small(16));
    &SANDBOX
}

/// A sandbox for this many calls at once.
pub(crate) fn small(calls_in_flight: u32) -> Sandbox {
    Sandbox::new(SandboxConfig {
        calls_in_flight,
        ..SandboxConfig::default()
    })
    .unwrap()
}

pub(crate) fn config() -> PluginConfig {
    // Long enough for a busy machine; tests of time set their own.
    let limits = Limits {
        time: Duration::from_secs(30),
        ..Limits::default()
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
        .admit(&request(), Deadline::after(Duration::from_secs(60)))
        .await
}

/// Load and call once.
pub(crate) async fn answer(guest: &Guest) -> Result<Response, Failure> {
    call(&load(guest).await).await
}
