use std::{num::NonZeroU32, sync::Arc};

use admittance_admission::{
    Access, AccessAttributes, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline,
    FailureKind, FieldMask, HttpAnswer, HttpError, HttpGrant, HttpOrigin, HttpRequest, Tape, UserInfo,
    leave_for,
};
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
    if component.get_export_index(None, "describe").is_none() {
        return Err(Error::NotAPlugin(no_exports(component)));
    }
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

/// What a component without the exports of a plugin probably is.
fn no_exports(component: &Component) -> String {
    let component_type = component.component_type();
    let is_program = component_type
        .exports(component.engine())
        .any(|(name, _)| name.starts_with("wasi:cli/run@"));
    let why = if is_program {
        "it is a program with a `main`; in Rust, a plugin is a library: move its code to src/lib.rs, with \
         `crate-type = [\"cdylib\"]` below `[lib]`"
    } else {
        "in Rust, put `#[plugin]` on `impl Plugin for ...`"
    };
    format!("it does not export `describe` ({why})")
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
    let needs_async = unknown
        .iter()
        .any(|name| name.starts_with("wasi:") && name.contains("@0.3."));
    if needs_async {
        return Err(Error::NeedsAsync(format!("it imports {}", names.join(", "))));
    }
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
                into.func_new(item, move |_, _, _, _| Err(denied(message.clone())))?;
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
    check_count("memories", required.num_memories, per_call::MEMORIES)?;
    check_count("tables", required.num_tables, per_call::TABLES)
}

/// Refuses a module that needs more than one call's share of these parts.
pub(crate) fn check_count(what: &'static str, needed: u32, limit: u32) -> Result<(), Error> {
    if needed > limit {
        return Err(Error::TooManyParts { what, needed, limit });
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
    /// The reader of the control plane and the kind, if the stage grants it; or why nothing can be read.
    fn granted_reader(
        &self,
        api_version: String,
        kind: String,
    ) -> wasmtime::Result<Result<(Arc<dyn ClusterReader>, ClusterKind), cluster::Error>> {
        let kind = ClusterKind::new(api_version, kind);
        // The grants are not known yet. A plugin that warms up with a sample gets what it gets in a native build.
        if self.preparing {
            return Ok(Err(cluster::Error::Unavailable(PREPARING.to_owned())));
        }
        if kind.is_access_review() {
            return Ok(Err(cluster::Error::Refused(format!(
                "there are no objects of `{kind}`; call `can-i`"
            ))));
        }
        if !self.grants.cluster.contains(&kind) {
            return Err(denied(format!(
                "the plugin reads `{kind}` from the control plane without permission; add `{kind}` to \
                 `allow.cluster` of the stage"
            )));
        }
        Ok(self.reader().map(|reader| (reader, kind)))
    }

    /// The namespace of which objects are read, if the stage grants that: a plugin that may read only one lists that.
    fn granted_namespace(
        &self,
        kind: &ClusterKind,
        namespace: Option<String>,
        is_list: bool,
    ) -> wasmtime::Result<Option<String>> {
        let Some(own) = self.grants.namespace.as_deref() else {
            return Ok(namespace);
        };
        match namespace {
            None if is_list => Ok(Some(own.to_owned())),
            Some(namespace) if namespace == own => Ok(Some(namespace)),
            other => {
                let place =
                    other.map_or_else(|| "no namespace".to_owned(), |other| format!("namespace {other}"));
                Err(denied(format!(
                    "the plugin reads `{kind}` in {place}; its chain may read only what is in the namespace {own}"
                )))
            }
        }
    }

    fn reader(&self) -> Result<Arc<dyn ClusterReader>, cluster::Error> {
        let reader = self.sandbox.config.cluster.clone();
        reader.ok_or_else(|| cluster::Error::Unavailable(NO_CLUSTER.to_owned()))
    }

    /// The user that a plugin asks about, if the stage grants that.
    fn asked_user(&self, user: Option<types::UserInfoResult>) -> wasmtime::Result<UserInfo> {
        let missing = |kind: ClusterKind, who: &str| {
            denied(format!(
                "the plugin asks what {who} may do without permission; add `{kind}` to `allow.cluster` of the stage"
            ))
        };
        match user {
            Some(user) if self.grants.any_access() => Ok(UserInfo {
                username: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra.into_iter().collect(),
            }),
            Some(_) => Err(missing(ClusterKind::any_access(), "other users")),
            None if self.grants.own_access() => Ok(self.user.clone()),
            None => Err(missing(ClusterKind::own_access(), "the user of the request")),
        }
    }
}

/// Waits for an answer of the control plane until the deadline of the call.
async fn ask<T>(
    deadline: Deadline,
    answer: impl Future<Output = Result<T, ClusterError>>,
) -> Result<T, cluster::Error> {
    match tokio::time::timeout_at(deadline.instant(), answer).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(cluster::Error::Timeout),
    }
}

async fn list_of(
    tape: Option<&Tape>,
    reader: &dyn ClusterReader,
    kind: &ClusterKind,
    query: &ClusterQuery,
    deadline: Deadline,
) -> Result<ClusterPage, cluster::Error> {
    // It is compared with the labels of every object.
    leave_for(query.label_selector.len() * LABELS).await;
    let page = ask(deadline, reader.list(kind, query, deadline)).await?;
    if let Some(tape) = tape {
        tape.objects(kind, &page.objects);
    }
    Ok(page)
}

/// Gives way to other calls between large objects that are searched, until the deadline.
pub(crate) struct Pace {
    deadline: Deadline,
    /// Since it last gave way.
    bytes: usize,
}

impl Pace {
    pub(crate) fn new(deadline: Deadline) -> Self {
        Self { deadline, bytes: 0 }
    }

    /// To be called before each object.
    pub(crate) async fn before(&mut self, object: &str) -> Result<(), cluster::Error> {
        self.bytes += object.len();
        if self.bytes > BYTES_AT_ONCE {
            self.bytes = 0;
            tokio::task::yield_now().await;
            if self.deadline.has_passed() {
                return Err(cluster::Error::Timeout);
            }
        }
        Ok(())
    }
}

/// The wanted parts of objects.
async fn select(
    page: &ClusterPage,
    fields: &FieldMask,
    deadline: Deadline,
) -> Result<Vec<String>, cluster::Error> {
    // They are copied twice, here and into the plugin.
    leave_for(page.objects.iter().map(|object| object.len()).sum()).await;
    if fields.is_whole() {
        return Ok(page.objects.iter().map(|object| object.to_string()).collect());
    }
    let mut selected = Vec::with_capacity(page.objects.len());
    let mut pace = Pace::new(deadline);
    for object in &page.objects {
        pace.before(object).await?;
        let part = fields.apply(object).map_err(|error| {
            cluster::Error::Unavailable(format!("an object of the control plane is not JSON: {error}"))
        })?;
        selected.push(part);
    }
    Ok(selected)
}

/// A call of something that is not granted.
pub(crate) fn denied(message: String) -> wasmtime::Error {
    Violation::error(FailureKind::CapabilityDenied, message)
}

pub(crate) const PREPARING: &str = "the plugin is being configured";
const NO_CLUSTER: &str = "no control plane is configured on this host";
const NO_HTTP: &str = "outgoing requests of plugins are not enabled on this host";

/// The most objects of a page.
const PAGE_MAX: NonZeroU32 = NonZeroU32::new(500).unwrap();

/// The longest URL that a plugin may use, in bytes: longer than servers accept.
const URL_MAX: usize = 16 << 10;

/// Comparing a byte of a label selector with the labels of all objects takes as long as searching this many bytes.
const LABELS: usize = 64;

/// How many bytes of objects are searched for fields before other work on the thread gets its turn.
const BYTES_AT_ONCE: usize = 256 << 10;

/// The share of a call's remaining time that one HTTP request may take.
const TIME_FOR_REQUESTS: f64 = 0.9;

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
        let (reader, kind) = match self.granted_reader(api_version, kind)? {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(error)),
        };
        let namespace = self.granted_namespace(&kind, namespace, false)?;
        let answer = reader.get(&kind, namespace.as_deref(), &name, self.deadline);
        let answer = ask(self.deadline, answer).await;
        leave_for(answer.iter().flatten().map(String::len).sum()).await;
        if let (Some(tape), Ok(found)) = (&self.tape, &answer) {
            let found = found.as_deref().map(Arc::from);
            tape.objects(&kind, &found);
        }
        Ok(answer)
    }

    async fn list(
        &mut self,
        api_version: String,
        kind: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> wasmtime::Result<Result<Vec<String>, cluster::Error>> {
        let (reader, kind) = match self.granted_reader(api_version, kind)? {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(error)),
        };
        let mut query = ClusterQuery::default();
        query.namespace = self.granted_namespace(&kind, namespace, true)?;
        query.label_selector = label_selector;
        Ok(
            match list_of(self.tape.as_ref(), &*reader, &kind, &query, self.deadline).await {
                Ok(page) => select(&page, &query.fields, self.deadline).await,
                Err(error) => Err(error),
            },
        )
    }

    async fn list_page(
        &mut self,
        request: cluster::PageRequest,
    ) -> wasmtime::Result<Result<cluster::Page, cluster::Error>> {
        let (reader, kind) = match self.granted_reader(request.api_version, request.kind)? {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(error)),
        };
        let fields = match FieldMask::new(request.fields.iter().map(String::as_str)) {
            Ok(fields) => fields,
            Err(why) => return Ok(Err(cluster::Error::Refused(why))),
        };
        let mut query = ClusterQuery::default();
        query.namespace = self.granted_namespace(&kind, request.namespace, true)?;
        query.label_selector = request.label_selector;
        query.fields = fields;
        query.limit = Some(NonZeroU32::new(request.limit).map_or(PAGE_MAX, |limit| limit.min(PAGE_MAX)));
        query.from = request.continue_;
        let page = match list_of(self.tape.as_ref(), &*reader, &kind, &query, self.deadline).await {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let items = select(&page, &query.fields, self.deadline).await;
        Ok(items.map(|items| cluster::Page {
            items,
            continue_: page.rest,
        }))
    }

    async fn can_i(
        &mut self,
        action: cluster::Action,
        user: Option<types::UserInfoResult>,
    ) -> wasmtime::Result<Result<cluster::Access, cluster::Error>> {
        if self.preparing {
            return Ok(Err(cluster::Error::Unavailable(PREPARING.to_owned())));
        }
        let user = self.asked_user(user)?;
        let reader = match self.reader() {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error)),
        };
        let action = attributes(action);
        let answer = ask(self.deadline, reader.access(&user, &action, self.deadline)).await;
        if let (Some(tape), Ok(access)) = (&self.tape, &answer) {
            tape.access(&user, &action, access.allowed);
        }
        Ok(answer.map(|Access { allowed, reason }| cluster::Access { allowed, reason }))
    }
}

fn attributes(action: cluster::Action) -> AccessAttributes {
    match action {
        cluster::Action::Resource(action) => AccessAttributes::Resource {
            verb: action.verb,
            group: action.group,
            version: "*".to_owned(),
            resource: action.resource,
            subresource: action.subresource.unwrap_or_default(),
            namespace: action.namespace.unwrap_or_default(),
            name: action.name.unwrap_or_default(),
            field_selector: String::new(),
            label_selector: String::new(),
        },
        cluster::Action::Path(cluster::PathAction { verb, path }) => AccessAttributes::Path { verb, path },
    }
}

/// What the plugin gets instead of a response; an error if that ends its call.
fn no_response(error: HttpError) -> wasmtime::Result<http::Error> {
    Ok(match error {
        HttpError::Unavailable(why) => http::Error::Unavailable(why),
        HttpError::Invalid(why) => http::Error::Invalid(why),
        HttpError::Unreachable(why) => http::Error::Unreachable(why),
        HttpError::Timeout => http::Error::Timeout,
        HttpError::TooLarge(limit) => http::Error::TooLarge(limit),
        HttpError::Denied(message) => return Err(denied(message)),
        HttpError::Exhausted(failure) => return Err(Violation::error(failure.kind, failure.message)),
    })
}

/// Parses a URL that a plugin may use.
fn address(text: &str) -> Result<(Url, HttpOrigin), http::Error> {
    if text.len() > URL_MAX {
        return Err(http::Error::Invalid(format!(
            "the URL has {} bytes; the limit is {URL_MAX}",
            text.len()
        )));
    }
    let invalid = |why: &str| http::Error::Invalid(format!("`{text}` {why}"));
    let url = Url::parse(text).map_err(|error| invalid(&format!("is not a valid URL: {error}")))?;
    let origin = HttpOrigin::of(&url)
        .ok_or_else(|| invalid("is neither an https URL, nor an http URL of a loopback address"))?;
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
            return Ok(Err(http::Error::Unavailable(PREPARING.to_owned())));
        }
        let (url, origin) = match address(&request.url) {
            Ok(address) => address,
            Err(error) => return Ok(Err(error)),
        };
        let http::Request {
            method,
            headers,
            body,
            ..
        } = request;
        let mut request = HttpRequest::new(method, url);
        request.headers = headers;
        request.body = body;
        let grant = HttpGrant::of(&self.grants.http, &origin, &request).map_err(denied)?;
        let Some(sender) = self.sandbox.config.http.clone() else {
            return Ok(Err(http::Error::Unavailable(NO_HTTP.to_owned())));
        };
        let sent = format!("{} {origin}{}", request.method, request.url.path());
        let taped = self
            .tape
            .clone()
            .map(|tape| (tape, request.method.clone(), request.url.clone()));
        // The rest of the time is for the plugin's own answer to an error.
        let deadline = Deadline::after(self.deadline.remaining().mul_f64(TIME_FOR_REQUESTS));
        let answer = sender.send(grant, request, deadline);
        let answer = tokio::time::timeout_at(deadline.instant(), answer).await;
        let answer = answer.unwrap_or(Err(HttpError::Timeout));
        if let Some((tape, method, url)) = taped {
            tape.http(HttpAnswer::recorded(&method, &url, &answer));
        }
        self.log.sent(&sent, answer.as_ref().map(|answer| answer.status));
        leave_for(answer.as_ref().map_or(0, |answer| answer.body.len())).await;
        match answer {
            Ok(answer) => Ok(Ok(http::Response {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            })),
            Err(error) => no_response(error).map(Err),
        }
    }
}
