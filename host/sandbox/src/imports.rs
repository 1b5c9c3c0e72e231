use admittance_admission::{ClusterError, ClusterKind, FailureKind, HttpOrigin};
use tracing::Level;
use url::Url;
use wasmtime::{
    Engine,
    component::{
        Component, ComponentExportIndex, HasSelf, InstancePre, Linker, ResourceType, Val,
        types::{ComponentInstance, ComponentItem},
    },
};
use wasmtime_wasi::{
    cli::{WasiCli, WasiCliView as _},
    p2::bindings::{cli, random},
    random::{WasiRandom, WasiRandomView as _},
};

use crate::{
    Error,
    capability::{HttpError, HttpRequest},
    contract::{
        ACCEPTED, PACKAGE, accepts,
        bindings::{
            self,
            admittance::plugin::{cluster, http, types},
            wasi::logging::logging,
        },
    },
    engine::{Inner, chain, per_call},
    store::{CallState, Violation},
};

/// The interfaces of the contract.
const OURS: [&str; 3] = ["types", "cluster", "http"];

/// The only version of `wasi:logging`.
const LOGGING: &str = "wasi:logging/logging@0.1.0-draft";

/// The interfaces of WASI 0.2 that this host provides.
pub(crate) const WASI: [&str; 18] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];

/// A linker with everything that this host provides to plugins.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    let into = &mut linker;
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(into)?;
    // Also needed by Rust's standard library.
    cli::environment::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::exit::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_input::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_output::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_stdin::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_stdout::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_stderr::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    random::insecure::add_to_linker::<_, WasiRandom>(into, CallState::random)?;
    random::insecure_seed::add_to_linker::<_, WasiRandom>(into, CallState::random)?;
    bindings::Plugin::add_to_linker::<_, HasSelf<CallState>>(into, |state| state)?;
    Ok(linker)
}

/// A component linked with its imports. Lives as long as the plugin.
pub(crate) struct Linked {
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) indices: bindings::PluginIndices,
    pub(crate) admit: ComponentExportIndex,
    pub(crate) configure: ComponentExportIndex,
}

/// Links a component with its imports, and checks that it is a plugin. The types of its functions are checked
/// when it is first instantiated.
pub(crate) fn link(sandbox: &Inner, component: &Component) -> Result<Linked, Error> {
    let mut linker = sandbox.linker.clone();
    satisfy_imports(&mut linker, component)?;
    check_parts(component)?;
    let export = |name: &str| {
        component
            .get_export_index(None, name)
            .ok_or_else(|| Error::NotAPlugin(format!("it does not export `{name}`")))
    };
    export("describe")?;
    let (admit, configure) = (export("admit")?, export("configure")?);
    let pre = linker
        .instantiate_pre(component)
        .map_err(|error| Error::WrongImport(chain(&error)))?;
    let indices = bindings::PluginIndices::new(&pre).map_err(|error| Error::NotAPlugin(chain(&error)))?;
    Ok(Linked {
        pre,
        indices,
        admit,
        configure,
    })
}

/// Refuses unknown imports, and defines the parts of WASI that are never granted as functions that fail the
/// call: toolchains import them even if they are not used.
///
/// `Linker::define_unknown_imports_as_traps` is not used: it compares versions exactly, and would replace an
/// interface that is provided in another patch version by traps.
fn satisfy_imports(linker: &mut Linker<CallState>, component: &Component) -> Result<(), Error> {
    let engine = component.engine();
    let mut unknown = Vec::new();
    let mut resources = Vec::new();
    let component_type = component.component_type();
    for (name, import) in component_type.imports(engine) {
        let (interface, version) = name.split_once('@').unwrap_or((name, ""));
        if let Some(ours) = interface.strip_prefix(PACKAGE) {
            if !accepts(version) {
                return Err(Error::UnknownVersion {
                    found: version.to_owned(),
                    accepted: ACCEPTED,
                });
            }
            if OURS.contains(&ours) {
                continue;
            }
        }
        if name == LOGGING {
            continue;
        }
        let ComponentItem::ComponentInstance(instance) = import.ty else {
            unknown.push(name);
            continue;
        };
        if !interface.starts_with("wasi:") || !version.starts_with("0.2.") {
            unknown.push(name);
        } else if WASI.contains(&interface) {
            for (_, export) in instance.exports(engine) {
                if let ComponentItem::Resource(resource) = export.ty {
                    resources.push(resource);
                }
            }
        } else {
            define_denials(linker, engine, name, &instance, &mut resources)
                .map_err(|error| Error::WrongImport(chain(&error)))?;
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let names = unknown.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    Err(Error::UnknownImport(names.join(", ")))
}

/// Defines an interface as functions that fail the call. `resources` are those that were already defined: an
/// interface that uses them names them again, and must not define them again.
fn define_denials(
    linker: &mut Linker<CallState>,
    engine: &Engine,
    name: &str,
    instance: &ComponentInstance,
    resources: &mut Vec<ResourceType>,
) -> wasmtime::Result<()> {
    let mut into = linker.instance(name)?;
    for (item, export) in instance.exports(engine) {
        match export.ty {
            // The start-up code of Go and of C libraries calls this, even if the program opens no file; an
            // empty list is a valid answer.
            ComponentItem::ComponentFunc(_) if name.starts_with("wasi:filesystem/preopens@") => {
                into.func_new(item, |_, _, _, results| {
                    results.fill(Val::List(Vec::new()));
                    Ok(())
                })?;
            }
            ComponentItem::ComponentFunc(_) => {
                let message = format!(
                    "the plugin called `{name}#{item}`; plugins have no files, no sockets and no WASI HTTP, \
                     and no stage can grant them"
                );
                into.func_new(item, move |_, _, _, _| {
                    Err(Violation::error(FailureKind::CapabilityDenied, message.clone()))
                })?;
            }
            ComponentItem::Resource(resource) if !resources.contains(&resource) => {
                let number = u32::try_from(resources.len()).unwrap_or(u32::MAX);
                into.resource(item, ResourceType::host_dynamic(number), |_, _| Ok(()))?;
                resources.push(resource);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a component that does not fit into one call's share of the pool.
fn check_parts(component: &Component) -> Result<(), Error> {
    let Some(required) = component.resources_required() else {
        return Err(Error::UnknownImport("a core module or a component".to_owned()));
    };
    for (what, needed, limit) in [
        ("memories", required.num_memories, per_call::MEMORIES),
        ("tables", required.num_tables, per_call::TABLES),
    ] {
        if needed > limit {
            return Err(Error::TooManyParts { what, needed, limit });
        }
    }
    Ok(())
}

impl types::Host for CallState {}

impl logging::Host for CallState {
    async fn log(&mut self, level: logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        let level = match level {
            logging::Level::Trace => Level::TRACE,
            logging::Level::Debug => Level::DEBUG,
            logging::Level::Info => Level::INFO,
            logging::Level::Warn => Level::WARN,
            logging::Level::Error | logging::Level::Critical => Level::ERROR,
        };
        self.log.line(level, &context, &message);
        Ok(())
    }
}

impl CallState {
    /// The kind, if the stage grants it.
    fn granted_kind(&self, api_version: String, kind: String) -> wasmtime::Result<ClusterKind> {
        let kind = ClusterKind::new(api_version, kind);
        if self.preparing {
            return Err(denied(
                "the plugin reads from the control plane while it is configured".to_owned(),
            ));
        }
        if self.grants.cluster.contains(&kind) {
            return Ok(kind);
        }
        Err(denied(format!(
            "the plugin reads `{kind}` from the control plane without permission; add `{kind}` to `allow.cluster` \
             of the stage"
        )))
    }
}

fn denied(message: String) -> wasmtime::Error {
    Violation::error(FailureKind::CapabilityDenied, message)
}

const NO_CLUSTER: &str = "no control plane is configured on this host";
const NO_HTTP: &str = "outgoing requests of plugins are not enabled on this host";

impl From<ClusterError> for cluster::Error {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Unavailable(why) => Self::Unavailable(why),
            ClusterError::Timeout => Self::Timeout,
            ClusterError::Refused(why) => Self::Refused(why),
        }
    }
}

impl cluster::Host for CallState {
    async fn get(
        &mut self,
        api_version: String,
        kind: String,
        namespace: Option<String>,
        name: String,
    ) -> wasmtime::Result<Result<Option<String>, cluster::Error>> {
        let kind = self.granted_kind(api_version, kind)?;
        let Some(reader) = self.sandbox.config.cluster.clone() else {
            return Ok(Err(cluster::Error::Unavailable(NO_CLUSTER.to_owned())));
        };
        let answer = reader.get(&kind, namespace.as_deref(), &name, self.deadline);
        Ok(
            match tokio::time::timeout_at(self.deadline.instant(), answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(cluster::Error::Timeout),
            },
        )
    }

    async fn list(
        &mut self,
        api_version: String,
        kind: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> wasmtime::Result<Result<Vec<String>, cluster::Error>> {
        let kind = self.granted_kind(api_version, kind)?;
        let Some(reader) = self.sandbox.config.cluster.clone() else {
            return Ok(Err(cluster::Error::Unavailable(NO_CLUSTER.to_owned())));
        };
        let answer = reader.list(&kind, namespace.as_deref(), &label_selector, self.deadline);
        Ok(
            match tokio::time::timeout_at(self.deadline.instant(), answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(cluster::Error::Timeout),
            },
        )
    }
}

impl From<HttpError> for http::Error {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Unavailable(why) => Self::Unavailable(why),
            HttpError::Invalid(why) => Self::Invalid(why),
            HttpError::Unreachable(why) => Self::Unreachable(why),
            HttpError::Timeout => Self::Timeout,
            HttpError::TooLarge(limit) => Self::TooLarge(limit),
        }
    }
}

/// Parses a URL that a plugin may use.
fn address(text: &str) -> Result<(Url, HttpOrigin), http::Error> {
    let invalid = |why: &str| http::Error::Invalid(format!("`{text}` {why}"));
    let url = Url::parse(text).map_err(|error| invalid(&format!("is not a valid URL: {error}")))?;
    let origin = HttpOrigin::of(&url).ok_or_else(|| invalid("is not an https URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(http::Error::Invalid(
            "the URL has a user name or a password".to_owned(),
        ));
    }
    if url.fragment().is_some() {
        return Err(invalid("has a fragment"));
    }
    Ok((url, origin))
}

impl http::Host for CallState {
    async fn send(
        &mut self,
        request: http::Request,
    ) -> wasmtime::Result<Result<http::Response, http::Error>> {
        if self.preparing {
            return Err(denied(
                "the plugin sends a request while it is configured".to_owned(),
            ));
        }
        let (url, origin) = match address(&request.url) {
            Ok(address) => address,
            Err(error) => return Ok(Err(error)),
        };
        if !self.grants.http.contains(&origin) {
            return Err(denied(format!(
                "the plugin sends a request to `{origin}` without permission; add `{origin}` to `allow.http` of the stage"
            )));
        }
        let Some(sender) = self.sandbox.config.http.clone() else {
            return Ok(Err(http::Error::Unavailable(NO_HTTP.to_owned())));
        };
        let http::Request {
            method,
            headers,
            body,
            ..
        } = request;
        let answer = sender.send(
            HttpRequest {
                method,
                url,
                headers,
                body,
            },
            self.deadline,
        );
        Ok(
            match tokio::time::timeout_at(self.deadline.instant(), answer).await {
                Ok(Ok(answer)) => Ok(http::Response {
                    status: answer.status,
                    headers: answer.headers,
                    body: answer.body,
                }),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(http::Error::Timeout),
            },
        )
    }
}
