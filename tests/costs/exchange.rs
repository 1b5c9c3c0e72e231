//! An HTTP client and an upstream server that allocate no memory while the driver's allocations are counted.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) struct MeasuredConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl MeasuredConnection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: vec![0; 1 << 16],
        }
    }

    pub(crate) fn send(&mut self, request: &[u8], times: usize) {
        for _ in 0..times {
            self.stream.write_all(request).unwrap();
            let length = read_message(&mut self.stream, &mut self.buffer).unwrap();
            let reply = self.buffer.get(..length).unwrap();
            assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(reply));
        }
    }
}

/// Starts an upstream server that answers every request with a small object, until this process ends.
pub(crate) fn start_upstream() -> SocketAddr {
    const REPLY: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"kind\": \"Pod\"}";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while read_message(&mut stream, &mut buffer).is_some() && stream.write_all(REPLY).is_ok() {}
            });
        }
    });
    address
}

/// Reads an HTTP message into the buffer, and returns its length, or `None` at the end of the connection.
fn read_message(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        match stream.read(buffer.get_mut(length..)?).ok()? {
            0 => return None,
            more => length += more,
        }
        let text = buffer.get(..length)?;
        if let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n")
            && length >= end + 4 + content_length(text.get(..end)?)
        {
            return Some(length);
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).unwrap();
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then_some(value.trim())
    });
    value.map_or(0, |value| value.parse().unwrap())
}
