//! From the configuration file to its types, with every mistake found at once.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance::{
    SandboxConfig,
    admission::{GroupVersionResource, Operation, StaticNamespaces},
    dialect::{Bcs, Cluster, Dialect, KindSource, Pattern, Pointer, Rest, RestConfig, Route, ValueSource},
};
use admittance_cluster::{ClusterConfig, ClusterSource};
use admittance_definitions::{
    Mistakes,
    document::{self, Fields, Node},
};
use http::{HeaderName, Method, uri::PathAndQuery};

use super::{
    Config, FrontConfig, HealthCheck, Limits, ListenConfig, LogConfig, LogFormat, LogLevel, UpstreamConfig,
};
use crate::{
    namespaces::{self, FileNamespaces, NamespacesConfig},
    tls::{self, ClientTls, Identity, ServerTls, TlsError},
    upstream::Server,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const KIB: u64 = 1024;
const GIB: u64 = 1024 * 1024 * 1024;

impl Config {
    /// Read the configuration file, and every certificate that it names. Paths in it are taken from its
    /// directory.
    ///
    /// # Errors
    ///
    /// Every mistake in it.
    pub fn read(path: &Path) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::new();
        let config = document::read_one(path, &mut mistakes)
            .and_then(|document| config(&document.root(), &mut mistakes));
        match config {
            Some(config) => mistakes.into_result(config),
            None => Err(mistakes.into_result(()).err().unwrap_or_default()),
        }
    }
}

fn config(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<Config> {
    let mut fields = root.object(mistakes)?;
    let listen = section(fields.optional("listen"), mistakes, listen);
    let admin = match fields.optional("admin") {
        Some(node) => admin(&node, mistakes).map(Some),
        None => Some(None),
    };
    let front = front(&mut fields, mistakes);
    let limits = section(fields.optional("limits"), mistakes, limits);
    let definitions = match fields.optional("definitions") {
        Some(node) => node
            .list(mistakes)
            .map(|entries| entries.iter().filter_map(|entry| entry.file(mistakes)).collect()),
        None => Some(Vec::new()),
    };
    let cache = match fields.optional("cache") {
        Some(node) => only(&node, "directory", "name a directory", mistakes)
            .and_then(|node| node.file(mistakes))
            .map(Some),
        None => Some(None),
    };
    let sandbox = section(fields.optional("sandbox"), mistakes, sandbox);
    let namespaces = namespaces(&mut fields, mistakes);
    let cluster = match fields.optional("cluster") {
        Some(node) => cluster(&node, mistakes).map(Some),
        None => Some(None),
    };
    let resolve = section(fields.optional("webhooks"), mistakes, resolve);
    let log = section(fields.optional("log"), mistakes, log);
    fields.finish(mistakes);
    Some(Config {
        listen: listen?,
        admin: admin?,
        front: front?,
        limits: limits?,
        definitions: definitions?,
        cache: cache?,
        sandbox: sandbox?,
        namespaces: namespaces?,
        cluster: cluster?,
        resolve: resolve?,
        log: log?,
    })
}

/// A part of the file that has a default when it is absent.
fn section<T: Default>(
    node: Option<Node<'_>>,
    mistakes: &mut Mistakes,
    read: impl FnOnce(&Node<'_>, &mut Mistakes) -> Option<T>,
) -> Option<T> {
    match node {
        None => Some(T::default()),
        Some(node) => read(&node, mistakes),
    }
}

/// An object with one field, which must be there.
fn only<'a>(node: &Node<'a>, name: &'static str, fix: &str, mistakes: &mut Mistakes) -> Option<Node<'a>> {
    let mut fields = node.object(mistakes)?;
    let value = fields.required(name, fix, mistakes);
    fields.finish(mistakes);
    value
}

fn address(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let text = node.text(mistakes)?;
    let address = text.parse().ok();
    if address.is_none() {
        node.wrong(
            format!("{text:?} is no address to listen on"),
            "write an IP address and a port, 127.0.0.1:8080",
            mistakes,
        );
    }
    address
}

fn listen(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ListenConfig> {
    let mut fields = node.object(mistakes)?;
    let mut config = ListenConfig::default();
    if let Some(address) = fields
        .optional("address")
        .and_then(|node| address(&node, mistakes))
    {
        config.address = address;
    }
    if let Some(node) = fields.optional("tls") {
        config.tls = listen_tls(&node, mistakes);
    }
    fields.finish(mistakes);
    Some(config)
}

fn listen_tls(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ServerTls> {
    let mut fields = node.object(mistakes)?;
    let certificate = fields
        .required("certificate", "name a PEM file", mistakes)
        .and_then(|node| pem_file(&node, tls::certificates, mistakes));
    let key = fields
        .required("key", "name a PEM file", mistakes)
        .and_then(|node| pem_file(&node, tls::private_key, mistakes));
    let client_ca = fields
        .optional("clientCa")
        .map(|node| pem_file(&node, tls::certificates, mistakes));
    fields.finish(mistakes);
    let identity = Identity {
        certificate: certificate?,
        key: key?,
    };
    let client_ca = match client_ca {
        // Without the authority that was meant, everybody would be let in.
        Some(None) => return None,
        Some(Some(path)) => Some(path),
        None => None,
    };
    good(ServerTls::of_files(identity, client_ca), node, mistakes)
}

/// A file that holds what is read from it, so that each wrong file is told at its own field. Whether they
/// go together is seen later.
fn pem_file<T>(
    node: &Node<'_>,
    read: fn(&Path) -> Result<T, TlsError>,
    mistakes: &mut Mistakes,
) -> Option<PathBuf> {
    let path = node.file(mistakes)?;
    good(read(&path), node, mistakes)?;
    Some(path)
}

fn good<T>(result: Result<T, impl std::fmt::Display>, node: &Node<'_>, mistakes: &mut Mistakes) -> Option<T> {
    result
        .map_err(|error| node.wrong(error.to_string(), "", mistakes))
        .ok()
}

fn admin(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    only(node, "address", "write 127.0.0.1:9090", mistakes).and_then(|node| address(&node, mistakes))
}

/// What `dialect` says: of a proxy, or of a webhook server.
enum DialectConfig {
    Proxy(Arc<dyn Dialect>),
    Kubernetes,
}

fn front(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<FrontConfig> {
    let dialect = fields
        .required(
            "dialect",
            "write `dialect: { bcs: { cluster: ... } }`, `rest: ...` or `kubernetes: {}`",
            mistakes,
        )
        .and_then(|node| dialect(&node, mistakes));
    if let Some(DialectConfig::Kubernetes) = dialect {
        fields.refuse(
            "upstream",
            "the dialect `kubernetes` answers kube-apiserver and has no upstream",
            "remove it",
            mistakes,
        );
        return Some(FrontConfig::Reviews);
    }
    let upstream = fields
        .required(
            "upstream",
            "write `upstream: { servers: [ \"http://127.0.0.1:8081\" ] }`",
            mistakes,
        )
        .and_then(|node| upstream(&node, mistakes));
    match dialect? {
        DialectConfig::Kubernetes => Some(FrontConfig::Reviews),
        DialectConfig::Proxy(dialect) => Some(FrontConfig::Proxy {
            dialect,
            upstream: upstream?,
        }),
    }
}

fn dialect(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<DialectConfig> {
    let mut fields = node.object(mistakes)?;
    let (bcs, rest, kubernetes) = (
        fields.optional("bcs"),
        fields.optional("rest"),
        fields.optional("kubernetes"),
    );
    fields.finish(mistakes);
    match (bcs, rest, kubernetes) {
        (Some(bcs), None, None) => {
            let cluster = only(&bcs, "cluster", "name the cluster, BCS-MESOS-10001", mistakes)?;
            let cluster = cluster.parse_with(Cluster::new, mistakes)?;
            Some(DialectConfig::Proxy(Arc::new(Bcs::new(cluster))))
        }
        (None, Some(rest), None) => Some(DialectConfig::Proxy(Arc::new(rest_dialect(&rest, mistakes)?))),
        (None, None, Some(kubernetes)) => {
            kubernetes.object(mistakes)?.finish(mistakes);
            Some(DialectConfig::Kubernetes)
        }
        (None, None, None) => {
            node.wrong(
                "there is no dialect",
                "write `bcs: { cluster: ... }`, `rest: { routes: [ ... ] }` or `kubernetes: {}`",
                mistakes,
            );
            None
        }
        _ => {
            node.wrong(
                "there are several dialects",
                "keep one of `bcs`, `rest` and `kubernetes`",
                mistakes,
            );
            None
        }
    }
}

fn rest_dialect(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Rest> {
    const FIX: &str = "list the routes that chains may be for";
    let mut fields = node.object(mistakes)?;
    // Those of every route, so that they need not be repeated.
    let spellings: Option<Vec<Pattern>> = section(fields.optional("spellings"), mistakes, parsed_list);
    let nodes = fields
        .required("routes", FIX, mistakes)
        .and_then(|list| list.filled_list(FIX, mistakes));
    fields.finish(mistakes);
    let nodes = nodes?;
    let routes: Vec<Option<Route>> = nodes.iter().map(|node| route(node, mistakes)).collect();
    let mut routes = routes.into_iter().collect::<Option<Vec<_>>>()?;
    let spellings = spellings?;
    for route in &mut routes {
        route.spellings.extend(spellings.iter().cloned());
    }
    match Rest::new(RestConfig { routes }) {
        Ok(rest) => Some(rest),
        Err(errors) => {
            for error in errors {
                if let Some(node) = nodes.get(error.route) {
                    node.wrong(format!("{}: {}", error.field, error.problem), "", mistakes);
                }
            }
            None
        }
    }
}

fn route(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Route> {
    let mut fields = node.object(mistakes)?;
    let methods = fields
        .required("method", "write [PUT, POST]", mistakes)
        .and_then(|node| methods(&node, mistakes));
    let path = fields
        .required("path", "write /v1/jobs or /v1/job/{id}", mistakes)
        .and_then(|node| node.text(mistakes).map(str::to_owned));
    let operation = fields
        .required("operation", "write CREATE, UPDATE, DELETE or CONNECT", mistakes)
        .and_then(|node| node.parse::<Operation>(mistakes));
    let resource = fields
        .required("resource", "name the collection as rules do, `jobs`", mistakes)
        .and_then(|node| resource(&node, mistakes));
    let kind = fields
        .required("kind", "write the kind, `Job`, or `{ pointer: /Type }`", mistakes)
        .and_then(|node| kind(&node, mistakes));
    let subresource = fields
        .optional("subresource")
        .and_then(|node| node.text(mistakes).map(str::to_owned));
    let namespace = sources(fields.optional("namespace"), mistakes);
    let name = sources(fields.optional("name"), mistakes);
    let object = section(fields.optional("object"), mistakes, |node, mistakes| {
        node.parse::<Pointer>(mistakes)
    });
    let optional = flag(&mut fields, "optional", mistakes);
    let dry_run = flag(&mut fields, "dryRun", mistakes);
    let identity = match fields.optional("identity") {
        Some(node) => parsed_list(&node, mistakes).map(Some),
        None => Some(None),
    };
    let spellings = section(fields.optional("spellings"), mistakes, parsed_list);
    fields.finish(mistakes);
    let mut route = Route::new(methods?, path?, operation?, resource?, kind?);
    route.subresource = subresource;
    route.namespace = namespace?;
    route.name = name?;
    route.object = object?;
    route.optional = optional?;
    route.dry_run = dry_run?;
    route.identity = identity?;
    route.spellings = spellings?;
    Some(route)
}

fn flag(fields: &mut Fields<'_>, name: &'static str, mistakes: &mut Mistakes) -> Option<bool> {
    match fields.optional(name) {
        Some(node) => node.boolean(mistakes),
        None => Some(false),
    }
}

/// A list of texts of one type; none when one of them is wrong.
fn parsed_list<T>(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<T>>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let values: Vec<Option<T>> = node
        .list(mistakes)?
        .iter()
        .map(|entry| entry.parse(mistakes))
        .collect();
    values.into_iter().collect()
}

fn methods(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<Method>> {
    let entries = node.filled_list("write [PUT, POST]", mistakes)?;
    let methods: Vec<_> = entries
        .iter()
        .map(|entry| {
            // `put` would be another method, which nobody sends.
            let read = |text: &str| {
                let upper = text.bytes().all(|byte| byte.is_ascii_uppercase());
                let method = upper.then(|| text.parse::<Method>().ok()).flatten();
                method.ok_or_else(|| format!("{text:?} is no method: write it in capitals, PUT"))
            };
            entry.parse_with(read, mistakes)
        })
        .collect();
    methods.into_iter().collect()
}

fn resource(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<GroupVersionResource> {
    // `jobs` is short for `{ resource: jobs }`.
    if node.json().is_string() {
        return Some(GroupVersionResource {
            resource: node.text(mistakes)?.to_owned(),
            ..GroupVersionResource::default()
        });
    }
    let mut fields = node.object(mistakes)?;
    let mut part = |name: &'static str, mistakes: &mut Mistakes| match fields.optional(name) {
        Some(node) => node.string(mistakes).map(str::to_owned),
        None => Some(String::new()),
    };
    let (group, version) = (part("group", mistakes), part("version", mistakes));
    let resource = fields
        .required("resource", "name the collection, `jobs`", mistakes)
        .and_then(|node| node.text(mistakes).map(str::to_owned));
    fields.finish(mistakes);
    Some(GroupVersionResource {
        group: group?,
        version: version?,
        resource: resource?,
    })
}

fn kind(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<KindSource> {
    if node.json().is_string() {
        return node.text(mistakes).map(|kind| KindSource::Fixed(kind.to_owned()));
    }
    let pointer = only(
        node,
        "pointer",
        "write the kind, `Job`, or `{ pointer: /Type }`",
        mistakes,
    )?;
    pointer.parse(mistakes).map(KindSource::Pointer)
}

/// One source, or a list of them.
fn sources(node: Option<Node<'_>>, mistakes: &mut Mistakes) -> Option<Vec<ValueSource>> {
    let Some(node) = node else {
        return Some(Vec::new());
    };
    if node.json().is_array() {
        let sources: Vec<_> = node
            .list(mistakes)?
            .iter()
            .map(|entry| source(entry, mistakes))
            .collect();
        return sources.into_iter().collect();
    }
    source(&node, mistakes).map(|source| vec![source])
}

fn source(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ValueSource> {
    let mut fields = node.object(mistakes)?;
    let (value, path, query, header, pointer) = (
        fields.optional("value"),
        fields.optional("path"),
        fields.optional("query"),
        fields.optional("header"),
        fields.optional("pointer"),
    );
    fields.finish(mistakes);
    let text = |node: Node<'_>, mistakes: &mut Mistakes| node.text(mistakes).map(str::to_owned);
    match (value, path, query, header, pointer) {
        (Some(node), None, None, None, None) => text(node, mistakes).map(ValueSource::Fixed),
        (None, Some(node), None, None, None) => text(node, mistakes).map(ValueSource::Path),
        (None, None, Some(node), None, None) => text(node, mistakes).map(ValueSource::Query),
        (None, None, None, Some(node), None) => node.parse::<HeaderName>(mistakes).map(ValueSource::Header),
        (None, None, None, None, Some(node)) => node.parse(mistakes).map(ValueSource::Pointer),
        _ => {
            node.wrong(
                "this is not one source",
                "write one of `value`, `path`, `query`, `header` and `pointer`",
                mistakes,
            );
            None
        }
    }
}

fn upstream(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<UpstreamConfig> {
    let mut fields = node.object(mistakes)?;
    let servers = fields
        .required("servers", "write [ \"http://127.0.0.1:8081\" ]", mistakes)
        .and_then(|node| {
            node.filled_list("write [ \"http://127.0.0.1:8081\" ]", mistakes)?;
            parsed_list::<Server>(&node, mistakes)
        });
    let tls = match fields.optional("tls") {
        Some(node) => upstream_tls(&node, mistakes),
        // Without a server that needs them, the system's authorities need not be there.
        None if servers.iter().flatten().any(Server::is_tls) => {
            good(tls::client(None, None).map(ClientTls::from), node, mistakes)
        }
        None => good(
            tls::client(None, None)
                .or_else(|_| tls::no_client())
                .map(ClientTls::from),
            node,
            mistakes,
        ),
    };
    let connect_timeout = duration(
        &mut fields,
        "connectTimeout",
        UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
        mistakes,
    );
    let response_timeout = duration(
        &mut fields,
        "responseTimeout",
        UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
        mistakes,
    );
    let health = match fields.optional("health") {
        Some(node) => health(&node, mistakes).map(Some),
        None => Some(None),
    };
    fields.finish(mistakes);
    Some(UpstreamConfig {
        servers: servers?,
        tls: tls?,
        connect_timeout: connect_timeout?,
        response_timeout: response_timeout?,
        health: health?,
    })
}

fn upstream_tls(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClientTls> {
    let mut fields = node.object(mistakes)?;
    let ca = fields
        .optional("ca")
        .map(|node| pem_file(&node, tls::certificates, mistakes));
    let certificate = fields
        .optional("certificate")
        .map(|node| pem_file(&node, tls::certificates, mistakes));
    let key = fields
        .optional("key")
        .map(|node| pem_file(&node, tls::private_key, mistakes));
    fields.finish(mistakes);
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: certificate?,
            key: key?,
        }),
        (None, None) => None,
        _ => {
            node.wrong(
                "a certificate is of no use without its key, nor the key without the certificate",
                "name both, or neither",
                mistakes,
            );
            return None;
        }
    };
    // An authority that cannot be read must not become the system's own.
    let ca = match ca {
        Some(path) => Some(path?),
        None => None,
    };
    good(ClientTls::of_files(ca, identity), node, mistakes)
}

fn health(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HealthCheck> {
    let mut fields = node.object(mistakes)?;
    let path = fields
        .required("path", "write the path to GET, /healthz", mistakes)
        .and_then(|node| {
            let read = |text: &str| match text.parse::<PathAndQuery>() {
                Ok(path) if text.starts_with('/') => Ok(path),
                _ => Err(format!("{text:?} is no path: write /healthz")),
            };
            node.parse_with(read, mistakes)
        });
    let interval = duration(&mut fields, "interval", HealthCheck::DEFAULT_INTERVAL, mistakes);
    let timeout = duration(&mut fields, "timeout", HealthCheck::DEFAULT_TIMEOUT, mistakes);
    fields.finish(mistakes);
    Some(HealthCheck {
        path: path?,
        interval: interval?,
        timeout: timeout?,
    })
}

fn duration(
    fields: &mut Fields<'_>,
    name: &'static str,
    default: Duration,
    mistakes: &mut Mistakes,
) -> Option<Duration> {
    match fields.optional(name) {
        Some(node) => node.duration(MILLISECOND..=HOUR, mistakes),
        None => Some(default),
    }
}

fn limits(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Limits> {
    let default = Limits::default();
    let mut fields = node.object(mistakes)?;
    let body = match fields.optional("body") {
        Some(node) => node
            .size(KIB..=GIB, mistakes)
            .and_then(|size| usize::try_from(size).ok()),
        None => Some(default.body),
    };
    let concurrency = match fields.optional("concurrency") {
        Some(node) => node.integer(1..=1_000_000_usize, mistakes),
        None => Some(default.concurrency),
    };
    let body_timeout = duration(&mut fields, "bodyTimeout", default.body_timeout, mistakes);
    let header_timeout = duration(&mut fields, "headerTimeout", default.header_timeout, mistakes);
    let request_timeout = duration(&mut fields, "requestTimeout", default.request_timeout, mistakes);
    let shutdown_delay = match fields.optional("shutdownDelay") {
        Some(node) => node.duration(Duration::ZERO..=HOUR, mistakes),
        None => Some(default.shutdown_delay),
    };
    let shutdown_timeout = duration(&mut fields, "shutdownTimeout", default.shutdown_timeout, mistakes);
    fields.finish(mistakes);
    Some(Limits {
        body: body?,
        body_timeout: body_timeout?,
        header_timeout: header_timeout?,
        concurrency: concurrency?,
        request_timeout: request_timeout?,
        shutdown_delay: shutdown_delay?,
        shutdown_timeout: shutdown_timeout?,
    })
}

fn sandbox(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SandboxConfig> {
    let mut config = SandboxConfig::default();
    let mut fields = node.object(mistakes)?;
    if let Some(node) = fields.optional("callsInFlight") {
        config.calls_in_flight = node.integer(1..=10_000, mistakes)?;
    }
    if let Some(node) = fields.optional("memory") {
        // The largest limit that a stage may set.
        config.memory_limit_max = usize::try_from(node.size(1024 * KIB..=4 * GIB, mistakes)?).ok()?;
    }
    fields.finish(mistakes);
    Some(config)
}

fn namespaces(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<NamespacesConfig> {
    let (list, file) = (fields.optional("namespaces"), fields.optional("namespacesFile"));
    if fields.has("cluster") {
        for node in [&list, &file].into_iter().flatten() {
            let message = "namespaces are read from the cluster, and cannot be listed too";
            node.wrong(message, "remove it, or remove `cluster`", mistakes);
        }
    }
    match (list, file) {
        (None, None) => Some(NamespacesConfig::default()),
        (Some(node), None) => {
            let listed = namespaces::listed(&node, mistakes)?;
            Some(NamespacesConfig::Listed(StaticNamespaces::new(listed)))
        }
        (None, Some(node)) => match FileNamespaces::read(&node.file(mistakes)?) {
            Ok(file) => Some(NamespacesConfig::File(file)),
            Err(found) => {
                for mistake in found.iter() {
                    mistakes.push(mistake.clone());
                }
                None
            }
        },
        (Some(_), Some(node)) => {
            let message = "namespaces are listed twice";
            node.wrong(message, "keep `namespaces` or `namespacesFile`", mistakes);
            None
        }
    }
}

fn cluster(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClusterConfig> {
    let mut fields = node.object(mistakes)?;
    let kubeconfig = match fields.optional("kubeconfig") {
        Some(node) => Some(node.file(mistakes)?),
        None => None,
    };
    let context = match fields.optional("context") {
        Some(node) => Some(node.text(mistakes)?.to_owned()),
        None => None,
    };
    fields.finish(mistakes);
    let source = match (kubeconfig, context) {
        (None, None) => ClusterSource::Infer,
        (path, context) => ClusterSource::Kubeconfig { path, context },
    };
    Some(ClusterConfig { source })
}

fn resolve(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<(String, String)>> {
    let node = only(
        node,
        "resolve",
        "write `resolve: { \"name.namespace\": \"127.0.0.1:9443\" }`",
        mistakes,
    )?;
    node.string_map(mistakes).map(|map| map.into_iter().collect())
}

fn log(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<LogConfig> {
    let levels = LogLevel::ALL.map(|level| (level.as_str(), level));
    let formats = LogFormat::ALL.map(|format| (format.as_str(), format));
    let mut config = LogConfig::default();
    let mut fields = node.object(mistakes)?;
    if let Some(node) = fields.optional("level") {
        config.level = node.one_of("log level", &levels, mistakes)?;
    }
    if let Some(node) = fields.optional("format") {
        config.format = node.one_of("log format", &formats, mistakes)?;
    }
    fields.finish(mistakes);
    Some(config)
}

#[cfg(test)]
mod tests;
