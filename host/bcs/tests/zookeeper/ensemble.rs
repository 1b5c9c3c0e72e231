//! Starts real ZooKeeper servers from Debian's package for tests, each on a loopback address of its own.
//!
//! Other crates include this file with `#[path]`; they need `tempfile`, and `rustix` with its feature `process`. All
//! functions block.

#![allow(dead_code, reason = "each program of tests that includes this uses a part of it")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

// `path` is relative to the directory of this file, even if another crate includes the file.
#[path = "expiry.rs"]
mod expiry;

use std::{
    env,
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) use self::expiry::expire;

/// The environment variable with the directory of ZooKeeper's jars. If it is not set, the directory is
/// `DEFAULT_DIRECTORY`.
const DIRECTORY_VARIABLE: &str = "ADMITTANCE_TEST_ZOOKEEPER";
const DEFAULT_DIRECTORY: &str = "/usr/share/java";

const JARS: [&str; 6] = [
    "zookeeper.jar",
    "zookeeper-jute.jar",
    "metrics-core.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "snappy-java.jar",
];

/// Data survives if the server is killed, but not if the machine loses power.
const JAVA_OPTIONS: [&str; 5] = [
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
];

/// A script that runs the program in its arguments, and kills it when the test process ends. It ignores Ctrl-C, so that
/// the test process decides when the server stops.
pub(crate) const KEEPER: &str = r#"
trap '' INT HUP
exec 3<&0 2>/dev/null
"$@" <&- 3<&- >"$LOG" 2>&1 &
program=$!
echo $program
(cat <&3 >/dev/null; kill -9 $program) >/dev/null 2>&1 &
wait $program
if [ -n "$REMOVE" ]; then rm -rf "$REMOVE"; fi
"#;

/// Only a failed test reaches this timeout.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The interval at which a server is asked whether it is ready, because servers do not report this.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The lower bound is small, to make tests fast.
const SESSION_TIMEOUTS: &str = "minSessionTimeout=200\nmaxSessionTimeout=60000\n";

/// A ZooKeeper server that is killed when this is dropped, or when this process ends.
#[derive(Debug)]
pub(crate) struct TestZooKeeper {
    address: String,
    class_path: String,
    configuration: PathBuf,
    log: PathBuf,
    /// Whether the server is kept in a static. A static is never dropped, so the directory of the server is not removed
    /// by a drop, but by the keeper process.
    is_static: bool,
    directory: Option<TempDir>,
    running: Option<RunningServer>,
}

#[derive(Debug)]
struct RunningServer {
    keeper: Child,
    server: Pid,
}

impl TestZooKeeper {
    /// Starts a server that forms an ensemble alone, and waits until it is ready.
    pub(crate) fn start() -> Self {
        let mut server = Self::prepare(free_addresses::<1>()[0], "");
        server.start_again();
        server
    }

    fn prepare(address: SocketAddr, more: &str) -> Self {
        let class_path = class_path();
        let directory = tempfile::Builder::new().prefix("zookeeper").tempdir().unwrap();
        let (configuration, data) = (directory.path().join("zoo.cfg"), directory.path().join("data"));
        fs::create_dir(&data).unwrap();
        let text = format!(
            "tickTime=100\ninitLimit=100\nsyncLimit=50\nmaxClientCnxns=0\n{SESSION_TIMEOUTS}\
             admin.enableServer=false\n4lw.commands.whitelist=*\ndataDir={}\n\
             clientPortAddress={}\nclientPort={}\n{more}",
            data.display(),
            address.ip(),
            address.port(),
        );
        fs::write(&configuration, text).unwrap();
        Self {
            address: address.to_string(),
            class_path,
            configuration,
            log: directory.path().join("log"),
            is_static: false,
            directory: Some(directory),
            running: None,
        }
    }

    /// Returns the server's `host:port`, which stays the same after a restart.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn start_again(&mut self) {
        self.launch();
        self.wait_until_serving();
    }

    fn launch(&mut self) {
        assert!(self.running.is_none(), "it runs");
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", "java"])
            .args(JAVA_OPTIONS)
            .arg("-cp")
            .arg(&self.class_path)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&self.configuration)
            .env("LOG", &self.log)
            .env(
                "REMOVE",
                if self.is_static {
                    self.directory_path()
                } else {
                    Path::new("")
                },
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let server = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        self.running = Some(RunningServer { keeper, server });
    }

    fn directory_path(&self) -> &Path {
        self.configuration.parent().unwrap()
    }

    fn wait_until_serving(&mut self) {
        let begin = Instant::now();
        while server_mode(&self.address).is_none() {
            let running = self.running.as_mut().unwrap();
            let exit_status = running.keeper.try_wait().unwrap();
            assert!(
                exit_status.is_none() && begin.elapsed() < TEST_TIMEOUT,
                "ZooKeeper does not start: {}",
                fs::read_to_string(&self.log).unwrap_or_default()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills the server. Its data remains for a restart.
    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    /// Suspends the process of the server. Its connections stay open but nothing is answered, as after a network
    /// failure.
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.running.as_ref().unwrap().server, signal).unwrap();
    }

    /// Returns the IDs of the sessions whose clients are connected to this server.
    pub(crate) fn sessions(&self) -> Vec<i64> {
        sessions(&self.address)
    }

    pub(crate) fn expire(&self, session: i64) {
        expire(&self.address, session);
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // The keeper process reads its standard input. When the input is closed, the keeper kills the server and exits.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Several ZooKeeper servers that form an ensemble. They are killed when this is dropped, or when this process ends.
#[derive(Debug)]
pub(crate) struct Ensemble {
    servers: Vec<TestZooKeeper>,
}

impl Ensemble {
    /// Starts an ensemble of `count` servers, and waits until they have a leader and all of them are ready.
    pub(crate) fn start(count: usize) -> Self {
        let addresses: Vec<_> = (0..count).map(|_| free_addresses::<3>()).collect();
        let mut peers = String::new();
        for (index, [_, peer, election]) in addresses.iter().enumerate() {
            let (number, ip) = (index + 1, peer.ip());
            writeln!(peers, "server.{number}={ip}:{}:{}", peer.port(), election.port()).unwrap();
        }
        let mut servers = Vec::new();
        for (index, [client, ..]) in addresses.iter().enumerate() {
            let server = TestZooKeeper::prepare(*client, &peers);
            fs::write(server.directory_path().join("data/myid"), (index + 1).to_string()).unwrap();
            servers.push(server);
        }
        // No server becomes ready before a majority of the servers runs. All servers are therefore started before the
        // test waits for one of them.
        servers.iter_mut().for_each(TestZooKeeper::launch);
        servers.iter_mut().for_each(TestZooKeeper::wait_until_serving);
        Self { servers }
    }

    /// Returns the addresses of all servers of the ensemble: `host:port,host:port,...`.
    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(TestZooKeeper::address).collect();
        addresses.join(",")
    }

    pub(crate) fn server(&self, index: usize) -> &TestZooKeeper {
        &self.servers[index]
    }

    /// Waits until the ensemble has a leader, and returns the leader's index.
    pub(crate) fn wait_for_leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            let is_leader = |server: &TestZooKeeper| server_mode(&server.address).as_deref() == Some("leader");
            if let Some(index) = self.servers.iter().position(is_leader) {
                return index;
            }
            assert!(begin.elapsed() < TEST_TIMEOUT, "no leader");
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.servers[index].stop();
    }

    pub(crate) fn start_again(&mut self, index: usize) {
        self.servers[index].start_again();
    }
}

/// Returns the address of the server that all tests of this process share. Each test uses nodes of its own.
pub(crate) fn shared_server_address() -> &'static str {
    static SHARED: OnceLock<TestZooKeeper> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            let mut server = TestZooKeeper::prepare(free_addresses::<1>()[0], "");
            // The server is kept in a static, which is never dropped. The keeper process therefore removes the
            // directory of the server.
            let _stays = server.directory.take().unwrap().keep();
            server.is_static = true;
            server.start_again();
            server
        })
        .address()
}

/// Returns the IDs of the sessions whose clients are connected to the server at this address.
pub(crate) fn sessions(address: &str) -> Vec<i64> {
    let text = send_command(address, "cons").unwrap_or_default();
    text.split("sid=0x")
        .skip(1)
        .filter_map(|rest| u64::from_str_radix(rest.split(',').next()?, 16).ok())
        .map(u64::cast_signed)
        .collect()
}

/// Returns the role of the server: `standalone`, `leader` or `follower`; `None` while the server is not ready.
fn server_mode(address: &str) -> Option<String> {
    let text = send_command(address, "srvr")?;
    let mode = text.lines().find_map(|line| line.strip_prefix("Mode: "));
    mode.map(str::to_owned)
}

/// Returns the reply of the server at this address to one of ZooKeeper's four-letter commands.
fn send_command(address: &str, command: &str) -> Option<String> {
    let address: SocketAddr = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, POLL_INTERVAL * 10).ok()?;
    // A suspended server accepts connections but does not reply, so reading needs a timeout.
    stream.set_read_timeout(Some(POLL_INTERVAL * 10)).ok()?;
    stream.write_all(command.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns addresses with free ports. Each call uses a new loopback address, so that no other test takes the ports.
fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high | 0x80, low, COUNT.fetch_add(1, Ordering::Relaxed));
    // All listeners stay open until every port is chosen, so that no port is chosen twice.
    let listeners = [(); N].map(|()| TcpListener::bind((ip, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

fn class_path() -> String {
    let directory = env::var_os(DIRECTORY_VARIABLE).map_or_else(|| PathBuf::from(DEFAULT_DIRECTORY), PathBuf::from);
    let jars = JARS.map(|jar| directory.join(jar));
    for jar in &jars {
        assert!(
            File::open(jar).is_ok(),
            "there is no {}: run the tests with `cargo task test`, install Debian's package `zookeeper`, or \
             name the directory with its jars in {DIRECTORY_VARIABLE}",
            jar.display()
        );
    }
    jars.map(|jar| jar.display().to_string()).join(":")
}
