//! The whole program under load, as a process of its own: many requests at once on connections that are kept,
//! compared with nginx and haproxy where they are installed.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use admittance_tests::{Admittance, Artifacts, Serve};
use serde_json::{Value, json};

use crate::{
    generator::{Figures, Load, start_server},
    objects,
};

/// Each target is measured this often, in turns, so that noise of the machine affects all of them.
const ROUNDS: usize = 5;

/// The number of chains of a large configuration that do not match a request.
const CHAINS: usize = 10_000;

/// A build of the program.
struct Build {
    program: PathBuf,
    /// The end of the names of its rows.
    suffix: String,
}

impl Build {
    /// This build, and the one to compare it with, if `cargo task bench --compare` has made one.
    fn all() -> Vec<Self> {
        let here = Self {
            program: crate::program(),
            suffix: String::new(),
        };
        let other = std::env::var_os("ADMITTANCE_BENCH_COMPARE").map(|program| Self {
            program: program.into(),
            suffix: ", before".to_owned(),
        });
        [here].into_iter().chain(other).collect()
    }
}

/// One server to measure.
struct Target {
    name: String,
    load: Load,
    /// Its processes, whose CPU time is counted.
    processes: Vec<u32>,
    connections: &'static [usize],
}

pub(crate) async fn measure(directory: &Path, time: Duration) {
    let builds = Build::all();
    reviews(directory, time, &builds).await;
    proxies(directory, time, &builds).await;
}

/// AdmissionReviews over plain HTTP.
async fn reviews(directory: &Path, time: Duration, builds: &[Build]) {
    const CONFIG: &str = "dialect: { kubernetes: {} }";
    const NO_DECISIONS: &str = "dialect: { kubernetes: {} }\ndecisions: { memory: { count: 0 } }";
    let review = |object: &str| post("/admit", &crate::reviews::review(object));
    let variable = |index| json!({"name": format!("VARIABLE_{index}"), "value": "something"});
    let variables: Vec<_> = (0..20_000).map(variable).collect();
    let (mut programs, mut targets) = (Vec::new(), Vec::new());
    for build in builds {
        let inspects = build.serve(directory, CONFIG, &image_policy()).await;
        // An older build may not know this key.
        let silent = match build.suffix.as_str() {
            "" => Some(build.serve(directory, NO_DECISIONS, &image_policy()).await),
            _ => None,
        };
        let bare = build.serve(directory, CONFIG, "").await;
        let many = image_policy() + &(1..=CHAINS).map(unmatched_chain).collect::<String>();
        let many = build.serve(directory, CONFIG, &many).await;
        for (name, program, object, connections) in [
            (
                "1 kB Pod, one plugin that allows",
                &inspects,
                objects::pod(2),
                &[8, 1][..],
            ),
            (
                "5 kB Pod, one plugin that allows",
                &inspects,
                objects::pod(16),
                &[8, 1],
            ),
            ("5 kB Pod, no chain", &bare, objects::pod(16), &[8, 1]),
            (
                "1 kB Pod, the same beside 10,000 chains",
                &many,
                objects::pod(2),
                &[8, 1],
            ),
            (
                "20,000 variables, one plugin",
                &inspects,
                pod_with(&json!({"env": variables})),
                &[1],
            ),
            (
                "a string of 6.5 MB, one plugin",
                &inspects,
                pod_with(&json!({"args": ["x".repeat(6_500_000)]})),
                &[1],
            ),
        ] {
            targets.push(Target {
                name: format!("{name}{}", build.suffix),
                load: Load::new(address(program), review(&object), r#""allowed":true"#),
                processes: vec![program.id().unwrap()],
                connections,
            });
        }
        if let Some(silent) = &silent {
            targets.push(Target {
                name: "1 kB Pod, one plugin that allows, without decisions".to_owned(),
                load: Load::new(address(silent), review(&objects::pod(2)), r#""allowed":true"#),
                processes: vec![silent.id().unwrap()],
                connections: &[8, 1],
            });
        }
        programs.push((build, inspects, (silent, bare, many)));
    }
    compare("reviews over plain HTTP", time, &targets);
    for (build, program, _) in &programs {
        let resident = program.resident_memory().unwrap() / 1_000_000;
        println!(
            "resident memory with one plugin, after this load{}: {resident} MB",
            build.suffix
        );
    }
}

/// A POST of a 1 kB Pod through proxies to a server that always answers the same.
async fn proxies(directory: &Path, time: Duration, builds: &[Build]) {
    let upstream = start_server();
    let config = format!(
        "dialect:
  rest:
    routes:
      - {{method: [POST], path: /api/v1/pods, operation: CREATE, resource: pods, kind: {{pointer: /kind}}, name: {{pointer: /metadata/name}}}}
upstream: {{ servers: ['http://{upstream}'] }}
"
    );
    let request = post("/api/v1/pods", &objects::pod(2));
    let target = |name: String, address, processes| Target {
        name,
        load: Load::new(address, request.clone(), ""),
        processes,
        connections: &[8, 1],
    };
    let mut targets = vec![target("the upstream itself".to_owned(), upstream, Vec::new())];
    let peers: Vec<Peer> = [
        Peer::nginx(directory, upstream),
        Peer::haproxy(directory, upstream),
    ]
    .into_iter()
    .flatten()
    .collect();
    targets.extend(
        peers
            .iter()
            .map(|peer| target(peer.name.to_owned(), peer.address, peer.processes())),
    );
    let mut programs = Vec::new();
    for build in builds {
        for (name, chain) in [
            ("no chain", String::new()),
            ("one plugin that allows", image_policy()),
        ] {
            let program = build.serve(directory, &config, &chain).await;
            let name = format!("{name}{}", build.suffix);
            targets.push(target(name, address(&program), vec![program.id().unwrap()]));
            programs.push(program);
        }
    }
    compare("the proxy: POST of a 1 kB Pod", time, &targets);
}

/// Measures all targets in turns, and prints a row for each and each number of connections.
fn compare(title: &str, time: Duration, targets: &[Target]) {
    println!("\n{title}: {ROUNDS} rounds of {time:?}, with the load generator on the same machine");
    let width = targets
        .iter()
        .map(|target| target.name.len())
        .max()
        .unwrap_or_default();
    println!(
        "{:width$}  {:>5}  {:>9}  {:>9}  {:>9}  {:>9}  {:>11}",
        "", "conns", "req/s", "p50", "p99", "p99.9", "CPU/request"
    );
    for connections in [8, 1] {
        let has = |target: &&Target| target.connections.contains(&connections);
        let measured: Vec<&Target> = targets.iter().filter(has).collect();
        let mut rounds: Vec<Vec<Figures>> = measured.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (target, figures) in measured.iter().zip(&mut rounds) {
                figures.push(target.load.run(connections, time, &target.processes));
            }
        }
        for (target, figures) in measured.iter().zip(&rounds) {
            println!(
                "{:width$}  {connections:>5}  {}",
                target.name,
                Figures::median(figures)
            );
        }
        for (target, figures) in measured.iter().zip(&rounds) {
            let before = format!("{}, before", target.name);
            let before = measured
                .iter()
                .zip(&rounds)
                .find(|(target, _)| target.name == before);
            if let Some((_, before)) = before {
                println!(
                    "{}, {connections} connections: {}",
                    target.name,
                    Figures::verdict(before, figures)
                );
            }
        }
    }
}

impl Build {
    /// Starts the program with this configuration and chain.
    async fn serve(&self, directory: &Path, config: &str, chain: &str) -> Admittance {
        let directory = tempfile::tempdir_in(directory).unwrap().keep();
        let definitions = directory.join("definitions");
        fs::create_dir(&definitions).unwrap();
        fs::write(definitions.join("chain.yaml"), chain).unwrap();
        let path = directory.join("admittance.yaml");
        fs::write(&path, format!("definitions: [definitions]\n{config}")).unwrap();
        let serve = Serve::of(&self.program, &path).store(directory.join("store"));
        // Without the access log, which nginx and haproxy do not write here either.
        let log = "error,admittance=info,admittance::access=off";
        serve.arguments(["--log", log]).start().await.unwrap()
    }
}

fn address(program: &Admittance) -> SocketAddr {
    program.url("").trim_start_matches("http://").parse().unwrap()
}

/// A chain of one stage that allows the objects of the benchmark.
fn image_policy() -> String {
    chain("images", "pods")
}

/// Returns the chain for another resource.
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

fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Another proxy. It is killed when it is dropped.
struct Peer {
    name: &'static str,
    address: SocketAddr,
    child: Child,
}

impl Peer {
    /// `None` if it is not installed.
    fn nginx(directory: &Path, upstream: SocketAddr) -> Option<Self> {
        let address = free_address();
        let path = directory.join("nginx.conf");
        let at = directory.display();
        let config = format!(
            "daemon off; worker_processes 2; error_log stderr error; pid {at}/nginx.pid;
events {{}}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {at}/body;
  upstream servers {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {address} reuseport;
    location / {{ proxy_pass http://servers; proxy_http_version 1.1; proxy_set_header Connection ''; }}
  }}
}}
"
        );
        fs::write(&path, config).unwrap();
        Self::start(
            "nginx",
            address,
            Command::new("/usr/sbin/nginx").arg("-c").arg(path),
        )
    }

    /// `None` if it is not installed.
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
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            println!("{name} is not installed: not measured");
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

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM, because nginx ends its workers then.
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
