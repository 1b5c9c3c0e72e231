//! Measures the program as a process of its own under load: concurrent requests on persistent connections. Compares it
//! with nginx and haproxy if they are installed.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use admittance_tests::{Admittance, Artifacts, BuildComparison, BuildVerdict, Serve};
use serde_json::{Value, json};

use crate::{
    generator::{GeneratedLoad, LoadFigures, start_server},
    objects,
};

/// The number of measurements of each server. Servers take turns, so that changes of the machine's speed affect all.
const ROUNDS: usize = 5;

/// The number of measurements of each server if two builds are compared. These measurements are shorter than those of a
/// single build, so there are more of them.
const ROUNDS_OF_TWO: usize = 12;

/// The number of chains in the configuration with many chains. No request matches any of them.
const CHAINS: usize = 10_000;

struct Build {
    program: PathBuf,
    /// In the table, this text follows the name of each row about this build, so that the rows of two builds can be
    /// told apart. For the build under test, the text is empty.
    suffix: &'static str,
}

struct MeasuredTarget {
    name: String,
    suffix: &'static str,
    load: GeneratedLoad,
    processes: Vec<u32>,
    connections: &'static [usize],
    /// Whether the ratios in the table compare other rows with this one.
    is_base: bool,
}

/// Measures this build of the program, and another build if given. Returns false if this one is slower in any row.
pub(crate) async fn measure(directory: &Path, time: Duration, other: Option<PathBuf>) -> bool {
    let this_build = Build {
        program: crate::program(),
        suffix: "",
    };
    let other = other.map(|program| Build {
        program,
        suffix: OTHER_SUFFIX,
    });
    let time = if other.is_some() { time / 3 } else { time };
    let builds: Vec<Build> = [this_build].into_iter().chain(other).collect();
    let reviews_pass = measure_reviews(directory, time, &builds).await;
    let proxies_pass = measure_proxies(directory, time, &builds).await;
    reviews_pass && proxies_pass
}

const OTHER_SUFFIX: &str = ", other build";

const NGINX: &str = "nginx";

async fn measure_reviews(directory: &Path, time: Duration, builds: &[Build]) -> bool {
    const CONFIG: &str = "dialect: { kubernetes: {} }";
    const NO_DECISIONS: &str = "dialect: { kubernetes: {} }\ndecisions: { memory: { count: 0 } }";
    let review = |object: &str| post_request("/admit", &crate::reviews::review(object));
    let variable = |index| json!({"name": format!("VARIABLE_{index}"), "value": "something"});
    let variables: Vec<_> = (0..20_000).map(variable).collect();
    let (mut programs, mut targets) = (Vec::new(), Vec::new());
    for build in builds {
        let one_plugin = build.serve(directory, CONFIG, &image_policy_chain()).await;
        // The configuration `NO_DECISIONS` has a key that an older build may not know. So only the build under test is
        // measured with this configuration. Its suffix is empty.
        let silent = match build.suffix {
            "" => Some(build.serve(directory, NO_DECISIONS, &image_policy_chain()).await),
            _ => None,
        };
        let bare = build.serve(directory, CONFIG, "").await;
        let chain_text = image_policy_chain() + &(1..=CHAINS).map(unmatched_chain).collect::<String>();
        let many_chains = build.serve(directory, CONFIG, &chain_text).await;
        targets.push(MeasuredTarget {
            name: "a path that is not found (404)".to_owned(),
            suffix: build.suffix,
            load: GeneratedLoad::not_found(
                address(&bare),
                b"GET /nothing HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".to_vec(),
            ),
            processes: vec![bare.id().unwrap()],
            connections: &[8, 1],
            is_base: true,
        });
        for (name, program, object, connections) in [
            (
                "1 kB Pod, one plugin that allows",
                &one_plugin,
                objects::pod(2),
                &[8, 1][..],
            ),
            (
                "5 kB Pod, one plugin that allows",
                &one_plugin,
                objects::pod(16),
                &[8, 1],
            ),
            ("5 kB Pod, no chain", &bare, objects::pod(16), &[8, 1]),
            (
                "1 kB Pod, the same beside 10,000 chains",
                &many_chains,
                objects::pod(2),
                &[8, 1],
            ),
            (
                "20,000 variables, one plugin",
                &one_plugin,
                pod_with(&json!({"env": variables})),
                &[1],
            ),
            (
                "a string of 6.5 MB, one plugin",
                &one_plugin,
                pod_with(&json!({"args": ["x".repeat(6_500_000)]})),
                &[1],
            ),
        ] {
            targets.push(MeasuredTarget {
                name: name.to_owned(),
                suffix: build.suffix,
                load: GeneratedLoad::new(address(program), review(&object), r#""allowed":true"#),
                processes: vec![program.id().unwrap()],
                connections,
                is_base: false,
            });
        }
        if let Some(silent) = &silent {
            targets.push(MeasuredTarget {
                name: "1 kB Pod, one plugin that allows, without decisions".to_owned(),
                suffix: build.suffix,
                load: GeneratedLoad::new(address(silent), review(&objects::pod(2)), r#""allowed":true"#),
                processes: vec![silent.id().unwrap()],
                connections: &[8, 1],
                is_base: false,
            });
        }
        programs.push((build, one_plugin, (silent, bare, many_chains)));
    }
    let has_kept_all = compare("reviews over plain HTTP", time, &targets);
    for (build, program, _) in &programs {
        let resident = program.resident_memory().unwrap() / 1_000_000;
        println!(
            "resident memory with one plugin, after this load{}: {resident} MB",
            build.suffix
        );
    }
    has_kept_all
}

/// Measures creations of a 1 kB Pod through proxies, in front of a server that always gives the same answer.
async fn measure_proxies(directory: &Path, time: Duration, builds: &[Build]) -> bool {
    let upstream = start_server();
    let config = format!(
        "dialect:
  rest:
    routes:
      - {{method: [POST], path: /api/v1/pods, operation: CREATE, resource: pods, kind: {{pointer: /kind}}, name: {{pointer: /metadata/name}}}}
upstream: {{ servers: ['http://{upstream}'] }}
"
    );
    let request = post_request("/api/v1/pods", &objects::pod(2));
    let target = |name: &str, suffix, address, processes| MeasuredTarget {
        name: name.to_owned(),
        suffix,
        load: GeneratedLoad::new(address, request.clone(), ""),
        processes,
        connections: &[8, 1],
        is_base: name == NGINX,
    };
    let mut targets = vec![target("the upstream itself", "", upstream, Vec::new())];
    let peers: Vec<PeerProxy> = [
        PeerProxy::nginx(directory, upstream),
        PeerProxy::haproxy(directory, upstream),
    ]
    .into_iter()
    .flatten()
    .collect();
    targets.extend(
        peers
            .iter()
            .map(|peer| target(peer.name, "", peer.address, peer.processes())),
    );
    let mut programs = Vec::new();
    for build in builds {
        for (name, chain) in [
            ("no chain", String::new()),
            ("one plugin that allows", image_policy_chain()),
        ] {
            let program = build.serve(directory, &config, &chain).await;
            let processes = vec![program.id().unwrap()];
            targets.push(target(name, build.suffix, address(&program), processes));
            programs.push(program);
        }
    }
    compare("the proxy: POST of a 1 kB Pod", time, &targets)
}

/// Measures all servers in turns, and prints the rows. Returns false if this build is slower than the other one.
fn compare(title: &str, time: Duration, targets: &[MeasuredTarget]) -> bool {
    let is_compared = targets.iter().any(|target| target.suffix == OTHER_SUFFIX);
    let count = if is_compared { ROUNDS_OF_TWO } else { ROUNDS };
    println!("\n{title}: {count} rounds of {time:?}, with the load generator on the same machine");
    let base = targets.iter().find(|target| target.is_base);
    if let Some(base) = base {
        println!("ratio: requests per second compared with {}", base.name);
    }
    let names = targets.iter().map(|target| target.name.len() + target.suffix.len());
    let width = names.max().unwrap_or_default();
    println!(
        "{:width$}  {:>5}  {:>9}  {:>9}  {:>9}  {:>9}  {:>11}  {:>5}",
        "", "conns", "req/s", "p50", "p99", "p99.9", "CPU/request", "ratio"
    );
    let mut verdicts = Vec::new();
    for connections in [8, 1] {
        let rows = measure_in_turns(targets, connections, count, time);
        for (target, rounds) in &rows {
            let figures = LoadFigures::median(rounds);
            let mut bases = rows
                .iter()
                .filter(|(base, _)| base.is_base && (base.suffix == target.suffix || base.name == NGINX));
            let ratio = bases.next().map_or_else(
                || "-".to_owned(),
                |(_, base)| format!("{:.2}", figures.rate / LoadFigures::median(base).rate),
            );
            let name = format!("{}{}", target.name, target.suffix);
            println!("{name:width$}  {connections:>5}  {figures}  {ratio:>5}");
        }
        for (target, this) in rows.iter().filter(|(target, _)| target.suffix.is_empty()) {
            let mut all_rows = rows.iter();
            if let Some((_, other)) =
                all_rows.find(|(other, _)| other.suffix == OTHER_SUFFIX && other.name == target.name)
            {
                verdicts.extend(judge(
                    &format!("{}, {connections} connections", target.name),
                    this,
                    other,
                ));
            }
        }
    }
    verdicts.iter().all(|verdict| *verdict != BuildVerdict::Lost)
}

/// Measures the servers in turns. The order alternates, so that no server is always measured after the same one.
fn measure_in_turns(
    targets: &[MeasuredTarget],
    connections: usize,
    count: usize,
    time: Duration,
) -> Vec<(&MeasuredTarget, Vec<LoadFigures>)> {
    let uses_connections = |target: &&MeasuredTarget| target.connections.contains(&connections);
    let mut rows: Vec<_> = targets
        .iter()
        .filter(uses_connections)
        .map(|target| (target, Vec::new()))
        .collect();
    for _ in 0..count {
        for (target, rounds) in &mut rows {
            rounds.push(target.load.run(connections, time, &target.processes));
        }
        rows.reverse();
    }
    if count % 2 == 1 {
        rows.reverse();
    }
    rows
}

fn judge(row: &str, this: &[LoadFigures], other: &[LoadFigures]) -> Vec<BuildVerdict> {
    let rates = |rounds: &[LoadFigures]| rounds.iter().map(|round| round.rate).collect::<Vec<_>>();
    let per_cpu = |rounds: &[LoadFigures]| {
        let times = rounds.iter().filter_map(|round| round.cpu);
        times.map(|time| 1.0 / time.as_secs_f64()).collect::<Vec<_>>()
    };
    let mut verdicts = Vec::new();
    for (unit, this, other) in [
        ("requests per second", rates(this), rates(other)),
        ("requests per CPU time", per_cpu(this), per_cpu(other)),
    ] {
        let Some(comparison) = BuildComparison::from_rounds(&this, &other) else {
            continue;
        };
        let verdict = comparison.verdict();
        let (ratio, (minimum, maximum)) = (comparison.ratio, comparison.range);
        println!("{verdict:?}: {row}: {ratio:.3} of the other build's {unit} ({minimum:.3} to {maximum:.3})");
        verdicts.push(verdict);
    }
    verdicts
}

impl Build {
    async fn serve(&self, directory: &Path, config: &str, chain: &str) -> Admittance {
        let directory = tempfile::tempdir_in(directory).unwrap().keep();
        let definitions = directory.join("definitions");
        fs::create_dir(&definitions).unwrap();
        // The program would reject a file without definitions. So if there is no chain, no file is written.
        if !chain.is_empty() {
            fs::write(definitions.join("chain.yaml"), chain).unwrap();
        }
        let path = directory.join("admittance.yaml");
        fs::write(&path, format!("definitions: [definitions]\n{config}")).unwrap();
        let serve = Serve::with_program(&self.program, &path).store(directory.join("store"));
        // The program writes no access log, because nginx and haproxy write none here.
        let log = "error,admittance=info,admittance::access=off";
        serve.arguments(["--log", log]).start().await.unwrap()
    }
}

fn address(program: &Admittance) -> SocketAddr {
    program.url("").trim_start_matches("http://").parse().unwrap()
}

fn image_policy_chain() -> String {
    chain("images", "pods")
}

fn unmatched_chain(number: usize) -> String {
    format!(
        "\n---\n{}",
        chain(&format!("chain-{number}"), &format!("resource{number}"))
    )
}

fn chain(name: &str, resource: &str) -> String {
    let module = Artifacts::find().unwrap().component("image-policy").unwrap();
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": name},
        "spec": {
            "rules": [{"operations": ["CREATE"], "resources": [resource]}],
            "stages": [{
                "name": "images",
                "plugin": {"source": format!("file:{}", module.display()), "settings": {"allowedRegistries": ["registry.example.com"]}},
            }],
        },
    })
    .to_string()
}

fn pod_with(fields: &Value) -> String {
    let mut pod: Value = serde_json::from_str(&objects::pod(1)).unwrap();
    let container = pod["spec"]["containers"][0].as_object_mut().unwrap();
    container.extend(fields.as_object().unwrap().clone());
    pod.to_string()
}

fn post_request(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A proxy of another project, such as nginx, with which the program is compared. It is killed when this is dropped.
struct PeerProxy {
    name: &'static str,
    address: SocketAddr,
    child: Child,
}

impl PeerProxy {
    fn nginx(directory: &Path, upstream: SocketAddr) -> Option<Self> {
        let address = free_address();
        let path = directory.join("nginx.conf");
        let directory_path = directory.display();
        let config = format!(
            "daemon off; worker_processes 2; error_log stderr error; pid {directory_path}/nginx.pid;
events {{}}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {directory_path}/body;
  upstream servers {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {address} reuseport;
    location / {{ proxy_pass http://servers; proxy_http_version 1.1; proxy_set_header Connection ''; }}
  }}
}}
"
        );
        fs::write(&path, config).unwrap();
        Self::start(NGINX, address, Command::new("/usr/sbin/nginx").arg("-c").arg(path))
    }

    fn haproxy(directory: &Path, upstream: SocketAddr) -> Option<Self> {
        let address = free_address();
        let path = directory.join("haproxy.cfg");
        let config = format!(
            "global
  nbthread 2
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend clients
  bind {address}
  default_backend servers
backend servers
  server one {upstream}
"
        );
        fs::write(&path, config).unwrap();
        Self::start(
            "haproxy",
            address,
            Command::new("/usr/sbin/haproxy").arg("-f").arg(path),
        )
    }

    fn start(name: &'static str, address: SocketAddr, command: &mut Command) -> Option<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            println!("\n{name} is left out: it is not installed");
            return None;
        };
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { name, address, child })
    }

    fn processes(&self) -> Vec<u32> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        children
            .split_whitespace()
            .map(|child| child.parse().unwrap())
            .chain([id])
            .collect()
    }
}

impl Drop for PeerProxy {
    fn drop(&mut self) {
        // On SIGTERM, nginx stops its worker processes. SIGKILL would leave them running.
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
