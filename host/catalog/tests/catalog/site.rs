//! A real HTTPS server that serves files, and that fails when a test asks for it.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::authority::HttpsAuthority;

#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseFault {
    /// The server closes the connection after this number of bytes of the body.
    Cut(usize),
    /// The server stops sending after this number of bytes of the body, but keeps the connection open.
    Stall(usize),
    /// The response has this error status, and `Retry-After` if a value is given.
    Status(u16, Option<&'static str>),
    /// The response contains the whole body, although a range was requested.
    Whole,
    /// The response contains a range, but it begins at another offset than the requested one.
    WrongPart,
    /// The `Content-Length` of the response has this wrong value.
    Length(u64),
    /// The response has no `Content-Length`, and its body never ends.
    Endless,
    Redirect(&'static str),
    /// The response redirects to the same URL, and sets this cookie.
    Cookie(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) struct SiteRequest {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct SiteState {
    files: BTreeMap<String, (Vec<u8>, Option<String>)>,
    faults: VecDeque<ResponseFault>,
    requests: Vec<SiteRequest>,
}

#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<SiteState>>,
}

impl Site {
    pub(crate) async fn start(authority: &HttpsAuthority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config()));
        let serving = site.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (site, acceptor) = (serving.clone(), acceptor.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // A test may make the client disconnect, so errors are ignored.
                        let _ = site.serve(stream).await;
                    }
                });
            }
        });
        site
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    pub(crate) fn put_file(&self, path: &str, bytes: &[u8], tag: Option<&str>) {
        let file = (bytes.to_vec(), tag.map(str::to_owned));
        self.state.lock().unwrap().files.insert(path.to_owned(), file);
    }

    pub(crate) fn add_faults(&self, faults: impl IntoIterator<Item = ResponseFault>) {
        self.state.lock().unwrap().faults.extend(faults);
    }

    pub(crate) fn requests(&self) -> Vec<SiteRequest> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn requested_ranges(&self) -> Vec<Option<String>> {
        let requests = self.requests();
        requests
            .iter()
            .map(|request| request.headers.get("range").cloned())
            .collect()
    }

    async fn serve(&self, mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
        let Some(request) = read_request_head(&mut stream).await? else {
            return Ok(());
        };
        let (file, fault) = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(request.clone());
            (state.files.get(&request.path).cloned(), state.faults.pop_front())
        };
        let Some((bytes, tag)) = file else {
            return send_and_close(stream, "404 Not Found", &[], b"").await;
        };
        let mut headers = Vec::new();
        if let Some(tag) = &tag {
            headers.push(format!("etag: {tag}"));
        }
        let matches_tag = |name: &str| {
            request
                .headers
                .get(name)
                .is_none_or(|value| Some(value) == tag.as_ref())
        };
        if tag.is_some() && request.headers.get("if-none-match") == tag.as_ref() && fault.is_none() {
            return send_and_close(stream, "304 Not Modified", &headers, b"").await;
        }
        let start: Option<usize> = request
            .headers
            .get("range")
            .filter(|_| matches_tag("if-range"))
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let part = start.filter(|start| *start < bytes.len() && !matches!(fault, Some(ResponseFault::Whole)));
        let (status, body) = match part {
            Some(start) => {
                let declared_start = if matches!(fault, Some(ResponseFault::WrongPart)) {
                    start + 1
                } else {
                    start
                };
                let (end, total_size) = (bytes.len() - 1, bytes.len());
                headers.push(format!("content-range: bytes {declared_start}-{end}/{total_size}"));
                ("206 Partial Content", &bytes[start..])
            }
            None => ("200 OK", bytes.as_slice()),
        };
        match fault {
            None | Some(ResponseFault::Whole | ResponseFault::WrongPart) => {
                send_and_close(stream, status, &headers, body).await
            }
            Some(ResponseFault::Cut(sent)) => {
                send_response(&mut stream, status, &headers, Some(body.len() as u64), &body[..sent]).await
            }
            Some(ResponseFault::Stall(sent)) => {
                send_response(&mut stream, status, &headers, Some(body.len() as u64), &body[..sent]).await?;
                std::future::pending().await
            }
            Some(ResponseFault::Status(status, retry_after)) => {
                headers.extend(retry_after.map(|again| format!("retry-after: {again}")));
                send_and_close(stream, &format!("{status} Trouble"), &headers, b"").await
            }
            Some(ResponseFault::Length(length)) => {
                send_response(&mut stream, status, &headers, Some(length), body).await?;
                stream.shutdown().await
            }
            Some(ResponseFault::Endless) => {
                send_response(&mut stream, status, &headers, None, body).await?;
                loop {
                    stream.write_all(&[0; 4096]).await?;
                }
            }
            Some(ResponseFault::Cookie(cookie)) => {
                headers.extend([format!("set-cookie: {cookie}"), format!("location: {}", request.path)]);
                send_and_close(stream, "302 Found", &headers, b"").await
            }
            Some(ResponseFault::Redirect(location)) => {
                headers.push(format!("location: {location}"));
                send_and_close(stream, "302 Found", &headers, b"").await
            }
        }
    }
}

pub(crate) async fn read_request_head(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<SiteRequest>> {
    let mut head = Vec::new();
    // The header is read byte by byte, so that the body stays in the stream.
    while !head.ends_with(b"\r\n\r\n") {
        if stream.take(1).read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(&head).map_err(std::io::Error::other)?;
    let headers = request.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    });
    Ok(Some(SiteRequest {
        headers: headers.collect(),
        path: request.path.unwrap_or_default().to_owned(),
    }))
}

async fn send_and_close(
    mut stream: TlsStream<TcpStream>,
    status: &str,
    headers: &[String],
    body: &[u8],
) -> std::io::Result<()> {
    send_response(&mut stream, status, headers, Some(body.len() as u64), body).await?;
    stream.shutdown().await
}

pub(crate) async fn send_response(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    headers: &[String],
    length: Option<u64>,
    body: &[u8],
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    if let Some(length) = length {
        head.push_str(&format!("content-length: {length}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}
