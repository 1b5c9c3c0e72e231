//! A TCP load balancer in front of gateways or of an API server.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A balancer that forwards each connection to the first URL that accepts it. It stops when it is dropped.
pub(super) struct ConnectionBalancer {
    address: SocketAddr,
    gateways: Arc<Mutex<Vec<String>>>,
    _passing: JoinSet<()>,
}

impl ConnectionBalancer {
    pub(super) async fn start() -> Self {
        Self::start_at("127.0.0.1").await
    }

    pub(super) async fn start_at(ip: &str) -> Self {
        // If root runs `cargo task cluster`, this machine gets further IP addresses, and `ip` may be one of them. For
        // other users, `ip` is always a loopback address.
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let gateways: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut passing = JoinSet::new();
        let shared_gateways = gateways.clone();
        passing.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let gateways = shared_gateways.lock().unwrap().clone();
                connections.spawn(pass_connection(stream, gateways));
            }
        });
        Self {
            address,
            gateways,
            _passing: passing,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Sets the servers to which new connections are forwarded. The first that accepts the connection gets it.
    pub(super) fn pass_to(&self, urls: &[String]) {
        let gateways = urls.iter().map(|url| url.replace("https://", ""));
        *self.gateways.lock().unwrap() = gateways.collect();
    }
}

async fn pass_connection(mut stream: TcpStream, gateways: Vec<String>) {
    for gateway in gateways {
        if let Ok(mut gateway) = TcpStream::connect(gateway).await {
            // Copying fails when one side closes the connection, which is its normal end.
            let _ = copy_bidirectional(&mut stream, &mut gateway).await;
            return;
        }
    }
}
