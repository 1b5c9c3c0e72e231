//! A load generator that uses little CPU time, and a server that gives every request the same answer.

use std::{
    fmt, fs,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// Requests to a server: each of several connections sends one after another, and the answers are checked.
#[derive(Clone)]
pub(crate) struct GeneratedLoad {
    address: SocketAddr,
    request: Arc<[u8]>,
    expected_text: &'static str,
    status: &'static str,
}

impl GeneratedLoad {
    pub(crate) fn new(address: SocketAddr, request: Vec<u8>, expected: &'static str) -> Self {
        Self {
            address,
            request: request.into(),
            expected_text: expected,
            status: "HTTP/1.1 200",
        }
    }

    /// Returns requests to a path that the server does not have, so that the server must answer with 404.
    pub(crate) fn not_found(address: SocketAddr, request: Vec<u8>) -> Self {
        Self {
            status: "HTTP/1.1 404",
            ..Self::new(address, request, "")
        }
    }

    /// Sends requests for `time`, after a warm-up of a fifth of `time`. Blocks the calling thread meanwhile.
    pub(crate) fn run(&self, connections: usize, time: Duration, processes: &[u32]) -> LoadFigures {
        let load = self.clone();
        let processes = processes.to_vec();
        let thread = thread::spawn(move || {
            runtime().block_on(async move {
                load.send_all(connections, time / 5).await;
                let before: u64 = processes.iter().map(|id| cpu_ticks(*id)).sum();
                let started = Instant::now();
                let mut times = load.send_all(connections, time).await;
                let took = started.elapsed();
                let ticks = processes.iter().map(|id| cpu_ticks(*id)).sum::<u64>() - before;
                times.sort_unstable();
                let count = times.len();
                let at = |share: f64| times.get((count as f64 * share) as usize).copied().unwrap_or_default();
                LoadFigures {
                    rate: count as f64 / took.as_secs_f64(),
                    p50: at(0.5),
                    p99: at(0.99),
                    p999: at(0.999),
                    // Linux counts CPU time in ticks of 10 ms.
                    cpu: (!processes.is_empty())
                        .then(|| Duration::from_millis(10 * ticks) / u32::try_from(count.max(1)).unwrap()),
                }
            })
        });
        thread.join().unwrap()
    }

    async fn send_all(&self, connections: usize, time: Duration) -> Vec<Duration> {
        let end = Instant::now() + time;
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            tasks.spawn(self.clone().send_until(end));
        }
        tasks.join_all().await.concat()
    }

    async fn send_until(self, end: Instant) -> Vec<Duration> {
        let mut stream = connect(self.address).await;
        let mut buffer = Vec::new();
        let mut times = Vec::new();
        loop {
            let started = Instant::now();
            if started >= end && !times.is_empty() {
                return times;
            }
            stream.write_all(&self.request).await.unwrap();
            let length = read_message(&mut stream, &mut buffer).await.unwrap();
            times.push(started.elapsed());
            let answer = &buffer[..length];
            let is_right =
                answer.starts_with(self.status.as_bytes()) && contains(answer, self.expected_text.as_bytes());
            assert!(is_right, "{}", String::from_utf8_lossy(answer));
            buffer.drain(..length);
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads until the buffer starts with a complete HTTP message, and returns its length. `None` if the connection is
/// closed.
async fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(length) = message_length(buffer)
            && buffer.len() >= length
        {
            return Some(length);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn message_length(buffer: &[u8]) -> Option<usize> {
    let head = 4 + buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&buffer[..head]).unwrap();
    let body = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().unwrap())
    });
    Some(head + body.unwrap_or(0))
}

#[derive(Clone, Copy)]
pub(crate) struct LoadFigures {
    pub(crate) rate: f64,
    p50: Duration,
    p99: Duration,
    p999: Duration,
    /// The CPU time that the measured processes spend on a request. `None` if no processes are measured.
    pub(crate) cpu: Option<Duration>,
}

impl LoadFigures {
    pub(crate) fn median(rounds: &[Self]) -> Self {
        fn middle<T: PartialOrd>(values: impl Iterator<Item = T>) -> T {
            let mut values: Vec<T> = values.collect();
            values.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap());
            values.swap_remove(values.len() / 2)
        }
        Self {
            rate: middle(rounds.iter().map(|round| round.rate)),
            p50: middle(rounds.iter().map(|round| round.p50)),
            p99: middle(rounds.iter().map(|round| round.p99)),
            p999: middle(rounds.iter().map(|round| round.p999)),
            cpu: middle(rounds.iter().map(|round| round.cpu)),
        }
    }
}

impl fmt::Display for LoadFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            p50,
            p99,
            p999,
            cpu,
        } = self;
        let cpu = cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1?}"));
        write!(f, "{rate:>9.0}  {p50:>9.1?}  {p99:>9.1?}  {p999:>9.1?}  {cpu:>11}")
    }
}

fn cpu_ticks(id: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // The second field of `/proc/PID/stat` is the program's name, which may contain spaces but ends with `)`.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts a server on its own thread that answers every request with 200 and a small body, until the program ends.
pub(crate) fn start_server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer_all(stream));
            }
        });
    });
    address
}

async fn answer_all(mut stream: TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"kind\": \"Pod\"}";
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(length) = read_message(&mut stream, &mut buffer).await {
        buffer.drain(..length);
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
    }
}
