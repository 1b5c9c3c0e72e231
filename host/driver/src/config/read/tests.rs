use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc};

use admittance_admission::{GroupVersionResource, Operation, Outline};
use admittance_bcs::SchedulersConfig;
use admittance_cluster::{ClusterConfig, ClusterSource};
use admittance_dialect::{BodyReading, Class, Dialect};
use admittance_net::upstream::{HealthCheck, UpstreamConfig};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use super::*;
use crate::{HistoryConfig, Limits, LogFormat, LogLevel, NamespacesConfig, ProxyConfig, ReviewsConfig, StoreConfig};

mod admin;
mod bcs;
mod console;
mod decisions;
mod lists;
mod modules;
mod observability;
mod reviews;
mod signatures;

fn read(text: &str) -> Result<Config, Vec<String>> {
    read_in(&tempfile::tempdir().unwrap(), text)
}

fn read_in(directory: &TempDir, text: &str) -> Result<Config, Vec<String>> {
    let path = directory.path().join("admittance.yaml");
    std::fs::write(&path, text).unwrap();
    Config::read(&path).map_err(|mistakes| {
        mistakes
            .iter()
            .map(|mistake| format!("{}: {}", mistake.path, mistake.message))
            .collect()
    })
}

fn dialect_and_upstream(config: &Config) -> (Arc<dyn Dialect>, &UpstreamConfig) {
    let front = &config.front;
    (front.dialect().unwrap(), front.upstream().unwrap())
}

fn servers(config: &Config) -> Vec<String> {
    let proxy = config.front.downcast_ref::<ProxyConfig>();
    let servers = match proxy {
        Some(proxy) => &proxy.servers,
        None => match &bcs::bcs_config(config).servers {
            SchedulersConfig::Listed(servers) => servers,
            SchedulersConfig::Discovered(_) => panic!("no servers are listed: {config:?}"),
        },
    };
    servers.iter().map(ToString::to_string).collect()
}

const MINIMAL: &str = r#"
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: ["http://127.0.0.1:8081"] }
"#;

#[test]
fn a_minimal_configuration_has_the_documented_defaults() {
    let config = read(MINIMAL).unwrap();
    assert_eq!(config.listen.address, "127.0.0.1:8080".parse().unwrap());
    assert!(config.admin.is_none());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(dialect_and_upstream(&config).1.connect_timeout, Duration::from_secs(2));
    assert_eq!(
        dialect_and_upstream(&config).1.response_timeout,
        Duration::from_secs(60)
    );
    assert_eq!(config.log, LogConfig::default());
    assert!(config.definitions.is_empty());
}

#[test]
fn a_webhook_server_has_no_upstream() {
    let config = read("dialect: { kubernetes: {} }").unwrap();
    assert!(config.front.downcast_ref::<ReviewsConfig>().is_some());
    // kube-apiserver keeps sending reviews until it notices that the endpoint is gone. So a webhook server that is
    // stopping serves for 5 s longer by default.
    assert_eq!(config.limits.shutdown_delay, Duration::from_secs(5));
    for (limits, delay) in [("requestTimeout: 1s", 5), ("shutdownDelay: 0s", 0)] {
        let text = format!("dialect: {{ kubernetes: {{}} }}\nlimits: {{ {limits} }}");
        assert_eq!(
            read(&text).unwrap().limits.shutdown_delay,
            Duration::from_secs(delay),
            "{limits}"
        );
    }
    let webhook_server_with_upstream = "dialect: { kubernetes: {} }\nupstream: { servers: [\"http://127.0.0.1:1\"] }";
    assert_eq!(
        read(webhook_server_with_upstream).unwrap_err(),
        ["upstream: the dialect `kubernetes` answers kube-apiserver and has no upstream"]
    );
    assert_eq!(
        read("dialect: { kubernetes: { paths: [] } }").unwrap_err(),
        ["dialect.kubernetes.paths: unknown field"]
    );
}

#[test]
fn namespace_labels_come_from_exactly_one_source() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("namespaces.yaml"), "prod: { team: a }\n").unwrap();
    std::fs::write(directory.path().join("broken.yaml"), "prod: a\n").unwrap();
    // (text of the configuration, expected mistakes)
    let table: [(&str, &[&str]); 6] = [
        ("namespacesFile: namespaces.yaml", &[]),
        ("cluster: {}", &[]),
        ("cluster: { kubeconfig: admin.conf, context: prod }", &[]),
        (
            "namespacesFile: broken.yaml",
            &["prod: a string where an object is expected"],
        ),
        (
            "namespaces: {}\nnamespacesFile: namespaces.yaml",
            &["namespacesFile: namespaces are listed twice"],
        ),
        (
            "namespaces: {}\ncluster: {}",
            &["namespaces: namespaces are read from the cluster, and cannot be listed too"],
        ),
    ];
    for (text, expected) in table {
        let mistakes = read_in(&directory, &format!("{MINIMAL}{text}"))
            .err()
            .unwrap_or_default();
        assert_eq!(mistakes, expected, "{text}");
    }
    let config = read_in(&directory, &format!("{MINIMAL}cluster: {{ kubeconfig: admin.conf }}")).unwrap();
    let expected = ClusterSource::Kubeconfig {
        path: Some(directory.path().join("admin.conf")),
        context: None,
    };
    assert_eq!(config.cluster, Some(ClusterConfig { source: expected }));
}

#[test]
fn world_readable_private_keys_cause_warnings() {
    let directory = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: &str, mode| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    write("a.pem", &cert.pem(), 0o644);
    write("own.key", &signing_key.serialize_pem(), 0o640);
    write("open.key", &signing_key.serialize_pem(), 0o644);
    write("peers", "0123456789abcdef0123456789abcdef\n", 0o600);
    let tls = |key: &str| format!("tls: {{ certificate: a.pem, key: {key} }}");
    let gateway = |part: &str| {
        format!(
            "zookeeper: {{ service: {{ servers: [\"127.0.0.1:2181\"] }} }}\nregistration: {{ ip: 10.0.0.5 }}\n\
             dialect: {{ gateway: {{ accounts: {{ sqlite: accounts.db }}, {part} }} }}"
        )
    };
    type MakeText<'a> = &'a dyn Fn(&str) -> String;
    let table: [(&str, MakeText<'_>); 7] = [
        ("listen", &|key| format!("{MINIMAL}listen: {{ {} }}", tls(key))),
        ("admin", &|key| {
            format!("{MINIMAL}admin: {{ address: \"127.0.0.1:0\", {} }}", tls(key))
        }),
        ("upstream", &|key| {
            MINIMAL.replace("upstream: {", &format!("upstream: {{ {},", tls(key)))
        }),
        ("drivers", &|key| gateway(&tls(key))),
        ("tokens", &|key| {
            let endpoint = format!("{{ url: \"http://127.0.0.1:1\", {} }}", tls(key));
            gateway(&format!("tokens: {{ endpoint: {endpoint} }}"))
        }),
        ("peers", &|key| {
            gateway(&format!("peers: {{ secretFile: peers, {} }}", tls(key)))
        }),
        ("tracing", &|key| {
            format!("{MINIMAL}tracing: {{ endpoint: \"http://127.0.0.1:1\", {} }}", tls(key))
        }),
    ];
    for (name, make_text) in table {
        let warnings = |key: &str| read_in(&directory, &make_text(key)).unwrap().warnings();
        assert_eq!(warnings("own.key"), [""; 0], "{name}");
        let key_warnings = warnings("open.key");
        assert!(
            matches!(key_warnings.as_slice(), [warning] if warning.contains("open.key: the private key is readable by every user")),
            "{name}: {key_warnings:?}"
        );
    }
}

#[test]
fn every_key_of_the_configuration_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.path().join("server.pem"), cert.pem()).unwrap();
    std::fs::write(directory.path().join("server.key"), signing_key.serialize_pem()).unwrap();
    let config = read_in(
        &directory,
        r#"
listen:
  address: 127.0.0.2:1
  tls: { certificate: server.pem, key: server.key, clientCa: server.pem }
admin: { address: "127.0.0.1:9090" }
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream:
  servers: ["http://127.0.0.1:8081", "https://scheduler:8082"]
  tls: { ca: server.pem, certificate: server.pem, key: server.key }
  connectTimeout: 1s
  responseTimeout: 3s
  health: { path: /healthz?x=1, interval: 4s, timeout: 250ms }
limits:
  body: 1MiB
  bodyMemory: 3MiB
  bodyTimeout: 5s
  headerTimeout: 6s
  idleTimeout: 10s
  minimumRate: 1KiB
  concurrency: 7
  streams: 8
  streamIdleTimeout: 11m
  connections: 9
  requestTimeout: 8s
  shutdownDelay: 500ms
  shutdownTimeout: 9s
definitions: [chains/, /etc/one.yaml]
store: { directory: store, sizeLimit: 2GiB }
history: { directory: /var/lib/admittance, keep: 3 }
modules:
  ca: server.pem
  proxy: http://proxy.example.com:3128
  dockerConfig: docker
  insecureRegistries: [registry.local:5000, registry.local]
  sizeLimit: 8MiB
  timeout: 5s
  attempts: 2
signatures: [{ source: "**", accept: Unsigned }]
sandbox: { callsInFlight: 10, memory: 11MiB }
pluginHttp:
  responseLimit: 2MiB
  cacheSize: 0
  credentials: { scanner: { file: scanner.token, origins: ["https://scanner.example.com"], header: X-Api-Key } }
  resolve: { scanner.example.com: "10.0.0.7" }
namespaces: { prod: { team: a } }
webhooks: { resolve: { "sidecar.ns": "127.0.0.1:9443" }, acceptShortKeys: true }
log: { level: debug, format: json }
"#,
    )
    .unwrap();
    assert!(config.listen.tls.is_some());
    let admin = config.admin.as_ref().unwrap();
    assert_eq!(admin.address(), "127.0.0.1:9090".parse().unwrap());
    assert!(admin.tls().is_none() && admin.tokens().is_empty());
    assert_eq!(servers(&config), ["http://127.0.0.1:8081", "https://scheduler:8082"]);
    assert_eq!(dialect_and_upstream(&config).1.connect_timeout, Duration::from_secs(1));
    assert_eq!(dialect_and_upstream(&config).1.response_timeout, Duration::from_secs(3));
    assert_eq!(
        dialect_and_upstream(&config).1.health,
        Some(HealthCheck {
            path: "/healthz?x=1".parse().unwrap(),
            interval: Duration::from_secs(4),
            timeout: Duration::from_millis(250),
            authorization: None,
        })
    );
    assert_eq!(
        config.limits,
        Limits {
            body: 1 << 20,
            body_memory: Some(3 << 20),
            body_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(6),
            idle_timeout: Duration::from_secs(10),
            minimum_rate: 1024,
            concurrency: 7,
            streams: 8,
            stream_idle_timeout: Duration::from_secs(11 * 60),
            connections: Some(9),
            request_timeout: Duration::from_secs(8),
            shutdown_delay: Duration::from_millis(500),
            shutdown_timeout: Duration::from_secs(9),
        }
    );
    let files: Vec<_> = config.definition_files().collect();
    assert_eq!(files, [&directory.path().join("chains/"), Path::new("/etc/one.yaml")]);
    assert_eq!(
        config.store,
        StoreConfig {
            directory: Some(directory.path().join("store")),
            size_limit: 2 << 30,
        }
    );
    assert_eq!(
        config.history,
        HistoryConfig {
            directory: Some("/var/lib/admittance".into()),
            max_revisions: 3,
        }
    );
    let network = &config.catalog.network;
    assert_eq!(network.ca, Some(directory.path().join("server.pem")));
    assert_eq!(network.proxy, Some("http://proxy.example.com:3128".parse().unwrap()));
    assert_eq!(network.docker_config, Some(directory.path().join("docker")));
    assert_eq!(network.insecure_registries, ["registry.local:5000", "registry.local"]);
    assert_eq!(network.read_timeout, Duration::from_secs(5));
    assert_eq!(network.attempts, 2);
    assert_eq!(config.catalog.size_limit, 8 << 20);
    assert_eq!(config.catalog.signatures.rules().len(), 1);
    assert_eq!(config.sandbox.calls_in_flight, 10);
    assert_eq!(config.sandbox.max_memory_limit, 11 << 20);
    assert_eq!(config.plugin_http.response_limit, 2 << 20);
    assert_eq!(config.plugin_http.cache_size, 0);
    let credential = &config.plugin_http.credentials["scanner"];
    assert!(credential.file.is_absolute() && credential.file.ends_with("scanner.token"));
    assert_eq!(credential.header.as_ref().unwrap(), "x-api-key");
    assert_eq!(
        config.plugin_http.resolve["scanner.example.com"].to_string(),
        "10.0.0.7"
    );
    assert!(matches!(config.namespaces, NamespacesConfig::Listed(_)));
    assert_eq!(config.cluster, None);
    assert_eq!(
        config.webhook_addresses,
        [("sidecar.ns".to_owned(), "127.0.0.1:9443".to_owned())]
    );
    assert!(config.accepts_short_keys);
    assert_eq!(
        (config.log.level, config.log.format),
        (LogLevel::Debug, LogFormat::Json)
    );
}

#[test]
fn all_mistakes_in_a_configuration_are_reported_at_once() {
    let mistakes = read(
        r#"
listen:
  address: localhost
  tls: { certificate: server.pem, key: server.key }
admin: {}
dialect: { bcs: { cluster: "a b" }, rest: { routes: [] } }
upstream:
  servers: ["http://127.0.0.1:8081", "127.0.0.1"]
  tls: { certificate: server.pem }
  connectTimeout: 5
  health: { path: healthz }
limits: { body: 1, bodyMemory: 13MiB, concurrency: 0, headerTimeout: forever, other: 1 }
sandbox: { callsInFlight: -1 }
pluginHttp: { responseLimit: 1, credentials: { a: { origins: [], header: "a b" } }, resolve: { b: "10.0.0.7:1" } }
log: { level: loud }
listening: {}
"#,
    )
    .unwrap_err();
    for expected in [
        "listen.address: \"localhost\" is not a valid address to listen on",
        "listen.tls.certificate: ",
        "listen.tls.key: ",
        "admin.address: missing",
        "dialect: several dialects are configured",
        "upstream.servers[1]: `127.0.0.1` is not a valid server",
        "upstream.tls.certificate: ",
        "upstream.tls: a certificate and its key are only used together",
        "upstream.connectTimeout: 5 has no unit",
        "upstream.health.path: \"healthz\" is not a valid path",
        "limits.body: 1 is out of range",
        "limits.bodyMemory: ",
        "limits.concurrency: ",
        "limits.headerTimeout: \"forever\" is not a valid duration",
        "limits.other: unknown field",
        "sandbox.callsInFlight: ",
        "pluginHttp.responseLimit: 1 is out of range",
        "pluginHttp.credentials.a.file: missing",
        "pluginHttp.credentials.a.origins: the list is empty",
        "pluginHttp.credentials.a.header: \"a b\" is not a valid name of a header",
        "pluginHttp.resolve.b: \"10.0.0.7:1\" is not an IP address",
        "log.level: \"loud\" is not a valid log level",
        "listening: unknown field",
    ] {
        assert!(
            mistakes.iter().any(|mistake| mistake.starts_with(expected)),
            "{expected} is not in {mistakes:#?}"
        );
    }
    assert_eq!(mistakes.len(), 23, "{mistakes:#?}");
}

#[test]
fn missing_required_keys_are_reported() {
    assert_eq!(read("{}").unwrap_err(), ["dialect: missing", "upstream: missing"]);
    assert_eq!(
        read("dialect: {}\nupstream: { servers: [] }").unwrap_err(),
        [
            "dialect: no dialect is configured",
            "upstream.servers: the list is empty"
        ]
    );
    assert_eq!(
        read("dialect: { rset: {} }\nupstream: { servers: [] }").unwrap_err(),
        ["dialect.rset: unknown field", "upstream.servers: the list is empty"]
    );
    let missing = Config::read(Path::new("nowhere/admittance.yaml")).unwrap_err();
    assert!(missing.to_string().contains("nowhere/admittance.yaml"), "{missing}");
}

#[test]
fn requests_match_the_configured_routes() {
    let read_route = |route: &str| {
        read(&format!(
            "upstream: {{ servers: [\"http://127.0.0.1:1\"] }}\ndialect: {{ rest: {{ routes: [{route}] }} }}"
        ))
    };
    let minimal_route = r#"method: [PUT], path: "/a/{b}", operation: create, resource: jobs, kind: Job"#;
    let dialect = read_route(&format!("{{ {minimal_route} }}"))
        .unwrap()
        .front
        .dialect()
        .unwrap();
    // None of these requests matches the route. A request that only reads, such as a GET, is forwarded nevertheless. A
    // request that may change something is refused, which is the default of `unmatched`.
    for (method, path, passes) in [("GET", "/b", true), ("PUT", "/b", false), ("DELETE", "/a/b", false)] {
        let request = http::Request::builder().method(method).uri(path);
        let class = dialect.classify(&request.body(()).unwrap().into_parts().0);
        assert_eq!(matches!(class, Class::Pass), passes, "{method} {path}: {class:?}");
        assert_eq!(matches!(class, Class::Refuse(_)), !passes, "{method} {path}: {class:?}");
    }
    for (change, expected) in [
        ("name: { path: c }", ": name: the path has no parameter `c`"),
        ("name: b", ".name: "),
        ("name: { path: b, query: c }", ".name: exactly one source is expected"),
        (
            "namespace: [{ pointer: a }]",
            ".namespace[0].pointer: `a` is not a JSON Pointer",
        ),
        ("namespace: { header: \"a b\" }", ".namespace.header: "),
        ("object: Job", ".object: `Job` is not a JSON Pointer"),
        ("optional: maybe", ".optional: "),
        (
            "identity: [/Job/ID], object: /Task",
            ": identity: `/Job/ID` is not in the object at `/Task`",
        ),
        ("spellings: [\"/a/~3\"]", ".spellings[0]: "),
        (
            "get: { headers: [X-Token, If-None-Match] }",
            ".get.headers[1]: `If-None-Match` can select another version",
        ),
        ("get: { headers: [Range] }", ".get.headers[0]: `Range` can select"),
        ("methods: [GET]", ".methods: unknown field"),
    ] {
        let mistakes = read_route(&format!("{{ {minimal_route}, {change} }}")).unwrap_err();
        let expected = format!("dialect.rest.routes[0]{expected}");
        assert!(
            matches!(mistakes.as_slice(), [mistake] if mistake.starts_with(&expected)),
            "{change}: {mistakes:?}"
        );
    }
    for (method, expected) in [
        ("PUTT", Some("\"PUTT\" is not a known method: did you mean PUT?")),
        ("DELET", Some("\"DELET\" is not a known method: did you mean DELETE?")),
        ("UNLOCK", None),
        ("PROPFIND", None),
    ] {
        let mistakes = read_route(&format!(
            "{{ {} }}",
            minimal_route.replace("[PUT]", &format!("[{method}]"))
        ))
        .err()
        .unwrap_or_default()
        .join("\n");
        let expected = expected.map(|expected| format!("dialect.rest.routes[0].method[0]: {expected}"));
        assert_eq!(mistakes, expected.unwrap_or_default(), "{method}");
    }
    let mistakes =
        read_route("{ method: [put], path: a, operation: MAKE, resource: { group: g }, kind: {} }").unwrap_err();
    for expected in [
        ".method[0]: ",
        ".operation: ",
        ".resource.resource: missing",
        ".kind.pointer: missing",
    ] {
        let expected = format!("dialect.rest.routes[0]{expected}");
        assert!(
            mistakes.iter().any(|mistake| mistake.starts_with(&expected)),
            "{mistakes:?}"
        );
    }
}

#[test]
fn a_definition_in_place_of_a_configuration_is_reported_as_one_mistake() {
    let mistakes = read("apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: a }\n");
    let expected = ": this is a definition or another object, not a configuration of `admittance serve`";
    assert_eq!(mistakes.unwrap_err(), [expected]);
}

#[test]
fn a_driver_cannot_use_an_address_twice() {
    for (listen, admin, upstream, expected) in [
        ("127.0.0.1:8080", "127.0.0.1:9090", "127.0.0.1:8081", None),
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:8081", None),
        ("127.0.0.1:9090", "127.0.0.2:9090", "127.0.0.1:8081", None),
        (
            "127.0.0.1:9090",
            "127.0.0.1:9090",
            "127.0.0.1:8081",
            Some("admin.address: 127.0.0.1:9090 is `listen.address` too"),
        ),
        (
            "0.0.0.0:9090",
            "127.0.0.1:9090",
            "127.0.0.1:8081",
            Some("admin.address: 127.0.0.1:9090 is `listen.address` too"),
        ),
        (
            "0.0.0.0:8080",
            "127.0.0.1:9090",
            "localhost:8080",
            Some("upstream.servers: http://localhost:8080 is `listen.address`, a port of this program itself"),
        ),
        (
            "127.0.0.1:8080",
            "127.0.0.1:9090",
            "127.0.0.1:9090",
            Some("upstream.servers: http://127.0.0.1:9090 is `admin.address`, a port of this program itself"),
        ),
    ] {
        let text = format!(
            "listen: {{ address: '{listen}' }}\nadmin: {{ address: '{admin}' }}\n{}",
            MINIMAL.replace("127.0.0.1:8081", upstream)
        );
        let mistake = read(&text).unwrap().own_address_mistake(Path::new("a.yaml"));
        let expected = expected.map(|expected| format!("a.yaml: {expected}; write another address"));
        assert_eq!(mistake.map(|mistake| mistake.to_string()), expected, "{text}");
    }
}

#[test]
fn requests_match_the_routes_of_the_nomad_example() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/nomad/admittance.yaml");
    let config = Config::read(&path).unwrap();
    let describe_request = |method: &str, uri: &str, body: &str| {
        let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
        let head = request.into_parts().0;
        let Class::Inspect(inspection) = dialect_and_upstream(&config).0.classify(&head) else {
            return "pass".to_owned();
        };
        match dialect_and_upstream(&config)
            .0
            .read_body(&head, &inspection, &body.to_owned().into())
        {
            Ok(BodyReading::Nothing) => "nothing".to_owned(),
            Ok(BodyReading::Admit { request, .. } | BodyReading::Fixed { request, .. }) => format!(
                "{} {} {}/{}{} {}",
                request.operation,
                request.resource,
                request.namespace.unwrap_or_default(),
                request.name,
                if request.dry_run { " dry" } else { "" },
                request.object.unwrap().text()
            ),
            Err(rejection) => rejection.to_string(),
        }
    };
    let job = r#"{"Job":{"ID":"web","Namespace":"apps"}}"#;
    let object = r#"{"ID":"web","Namespace":"apps"}"#;
    for (method, uri, body, expected) in [
        ("PUT", "/v1/jobs", job, format!("CREATE v1/jobs apps/web {object}")),
        (
            "PUT",
            "/v1/jobs?namespace=x",
            job,
            format!("CREATE v1/jobs x/web {object}"),
        ),
        ("POST", "/v1/job/web", job, format!("UPDATE v1/jobs apps/web {object}")),
        (
            "POST",
            "/v1/job/a/web",
            job,
            format!("UPDATE v1/jobs apps/web {object}"),
        ),
        (
            "POST",
            "/v1/job/web/plan",
            job,
            format!("UPDATE v1/jobs apps/web dry {object}"),
        ),
        ("POST", "/v1/job/web/scale", r#"{"Count":3}"#, "nothing".to_owned()),
        (
            "PUT",
            "/v1/jobs",
            r#"{"job":{"id":"web","taskgroups":[{"tasks":[{"driver":"exec"}]}]}}"#,
            r#"CREATE v1/jobs default/web {"ID":"web","TaskGroups":[{"Tasks":[{"Driver":"exec"}]}]}"#.to_owned(),
        ),
        (
            "PUT",
            "/v1/jobs",
            r#"{"JOB":{"id":"web","taskgroups":[{"volumes":{"Data":{"source":"/"}},"tasks":[{"resources":{"memorymb":9},"env":{"A":"1","a":"2"}}]}]}}"#,
            concat!(
                r#"CREATE v1/jobs default/web {"ID":"web","TaskGroups":[{"Volumes":{"Data":{"Source":"/"}},"#,
                r#""Tasks":[{"Resources":{"MemoryMB":9},"Env":{"A":"1","a":"2"}}]}]}"#
            )
            .to_owned(),
        ),
        ("GET", "/v1/jobs", "", "pass".to_owned()),
        ("DELETE", "/v1/job/web", "", "pass".to_owned()),
    ] {
        assert_eq!(describe_request(method, uri, body), expected, "{method} {uri}");
    }

    let files: Vec<PathBuf> = config.definition_files().map(Path::to_owned).collect();
    let chains = admittance_definitions::load(&files).unwrap();
    let [chain] = chains.as_slice() else {
        panic!("there is one chain, not {}", chains.len());
    };
    let jobs = GroupVersionResource {
        version: "v1".into(),
        resource: "jobs".into(),
        ..Default::default()
    };
    let outline = |resource| Outline {
        operation: Operation::Create,
        resource: Some(resource),
        kind: Some("Job"),
    };
    assert!(chain.rules.iter().any(|rule| rule.may_match(&outline(&jobs))));
    let nodes = GroupVersionResource {
        resource: "nodes".into(),
        ..jobs.clone()
    };
    assert!(!chain.rules.iter().any(|rule| rule.may_match(&outline(&nodes))));
}
