//! A server for attacks on the program, which sends informational responses (1xx) without end.

use std::{io, thread::yield_now};

use admittance_tests::{ATTACKING_SEND_BUFFER, Error};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    runtime::Handle,
    task::JoinSet,
};

const INFORMATIONAL_RESPONSE: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
const FINAL_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

/// Starts a server, and returns its URL. If a request contains `attacked`, the server sends informational responses
/// without end instead of an answer, on threads of `attacker_runtime`.
pub(crate) async fn start_endless_server(attackers: &Handle) -> Result<(String, JoinSet<()>), Error> {
    let listening = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_send_buffer_size(ATTACKING_SEND_BUFFER)?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        socket.listen(1024)
    };
    let listener = listening().map_err(Error::io("listening"))?;
    let address = listener.local_addr().map_err(Error::io("an address"))?;
    let attackers = attackers.clone();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(respond(stream, attackers.clone()));
        }
    });
    Ok((format!("http://{address}"), serving))
}

async fn respond(stream: TcpStream, attackers: Handle) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
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
        if request.contains("attacked") {
            attackers.spawn(send_endlessly(stream));
            return Ok(());
        }
        stream.write_all(FINAL_RESPONSE.as_bytes()).await?;
    }
}

/// Sends informational responses (1xx) without end. After each write, it lets other threads run, because a real
/// attacker would not use the CPU of this machine.
async fn send_endlessly(mut stream: BufReader<TcpStream>) -> io::Result<()> {
    let responses = INFORMATIONAL_RESPONSE.repeat(1000);
    loop {
        stream.write_all(responses.as_bytes()).await?;
        yield_now();
    }
}
