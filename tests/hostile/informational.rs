//! A server that sends informational responses without end.

use std::io;

use admittance_tests::Error;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinSet,
};

const INFORMATIONAL: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
const FINAL: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

/// Serves on these threads, and returns the URL. A request whose head or body contains `attacked` never gets a final
/// response.
pub(crate) async fn serve(threads: &Handle) -> Result<(String, JoinSet<()>), Error> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(Error::io("listening"))?;
    let address = listener.local_addr().map_err(Error::io("an address"))?;
    let accepting = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(respond(stream));
        }
    };
    let mut serving = JoinSet::new();
    serving.spawn_on(accepting, threads);
    Ok((format!("http://{address}"), serving))
}

async fn respond(stream: TcpStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let flood = INFORMATIONAL.repeat(1000);
    loop {
        let (mut request, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or_default();
            }
            if line.trim().is_empty() {
                break;
            }
            request += &line;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        request += &String::from_utf8_lossy(&body);
        while request.contains("attacked") {
            stream.write_all(flood.as_bytes()).await?;
        }
        stream.write_all(FINAL.as_bytes()).await?;
    }
}
