use std::time::{Duration, Instant};

use admittance_tests::{Client, Error};
use futures_util::FutureExt as _;
use http::Method;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::MissedTickBehavior,
};

/// The time from the start of a request to the start of the next, unless a request takes longer.
const REQUEST_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct Latency {
    sorted: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

impl Latency {
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get(last * percent / 100).copied().unwrap_or(Duration::MAX)
    }
}

pub(crate) struct Requests {
    /// The base URL of the driver. For each request, the client sends `object` by POST to this URL with `path`
    /// appended.
    pub(crate) front: String,
    pub(crate) path: String,
    pub(crate) object: String,
    /// The URL of the admin port, if the attack is aimed at the admin port. After each of its requests, the client then
    /// sends a probe to this port.
    pub(crate) probed: Option<String>,
}

impl Requests {
    pub(crate) async fn send(&self, time: Duration) -> Result<Latency, Error> {
        let client = Client::new()?;
        let url = format!("{}{}", self.front, self.path);
        let mut latency = Latency::default();
        let mut turns = tokio::time::interval(REQUEST_INTERVAL);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        while started.elapsed() < time {
            turns.tick().await;
            match &self.probed {
                None => {
                    let reply = client.send_bcs(Method::POST, &url, self.object.clone());
                    latency
                        .measure(reply.map(|reply| match reply {
                            Ok(reply) if reply.status == 200 => Ok(()),
                            Ok(reply) => Err(format!("{}: {}", reply.status, reply.text())),
                            Err(error) => Err(error.to_string()),
                        }))
                        .await;
                }
                Some(admin) => {
                    let headers = "content-type: application/json\r\nbcs-clusterid: BCS-MESOS-10001\r\n";
                    let create = send_on_new_connection(&self.front, "POST", &self.path, headers, &self.object);
                    latency.measure(create).await;
                    latency
                        .measure(send_on_new_connection(admin, "GET", "/healthz", "", ""))
                        .await;
                }
            }
        }
        latency.sorted.sort_unstable();
        Ok(latency)
    }
}

impl Latency {
    async fn measure(&mut self, request: impl Future<Output = Result<(), String>>) {
        let start = Instant::now();
        self.failures.extend(request.await.err());
        self.sorted.push(start.elapsed());
    }
}

async fn send_on_new_connection(url: &str, method: &str, path: &str, headers: &str, body: &str) -> Result<(), String> {
    let address = url.trim_start_matches("http://");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut reply = Vec::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut reply).await
    };
    exchange.await.map_err(|error| error.to_string())?;
    if reply.starts_with(b"HTTP/1.1 200 ") {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&reply).into_owned())
    }
}
