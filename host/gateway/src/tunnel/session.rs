//! One side of a tunnel, with its connections and the WebSocket that carries them.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf},
    sync::{mpsc, watch},
};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    LARGEST_CHUNK, PING_INTERVAL, SILENCE_TIMEOUT, TUNNEL_LIMIT,
    accepts::{AllowedConnections, ConnectTarget, connect},
    budget::Budget,
    connection::TunnelConnection,
    frame::{Content, EOF, Frame, TunnelAnnouncement, TunnelDestination},
};

/// The maximum number of frames with data that wait to be written to the WebSocket.
const DATA_QUEUE_CAPACITY: usize = 4;
/// The maximum number of frames without data that wait to be written to the WebSocket. Only an attack causes more.
const CONTROL_QUEUE_CAPACITY: usize = 1024;
/// The size of the buffer that a connection has for each direction, in bytes.
const BUFFER_SIZE: usize = 16 << 10;
/// The time that a connection with a full inbox has until it ends, if the other side does not pause it.
const SLOW_READER_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// One side of a tunnel. Cheap to clone. The tunnel ends when [`run`](Self::run) ends.
#[derive(Clone, Debug)]
pub struct TunnelSession(Arc<SharedTunnel>);

#[derive(Debug)]
struct SharedTunnel {
    budget: Arc<Budget>,
    data_sender: mpsc::Sender<Frame>,
    control_sender: mpsc::Sender<Frame>,
    connections: Mutex<HashMap<i64, Arc<TunnelConnection>>>,
    next_number: AtomicI64,
    /// Whether a refused connection was logged. Only the first is logged, because there can be any number of them.
    has_warned: AtomicBool,
    end_token: CancellationToken,
}

/// The frames that wait to be written to the WebSocket.
#[derive(Debug)]
pub struct OutgoingFrames {
    data_receiver: mpsc::Receiver<Frame>,
    control_receiver: mpsc::Receiver<Frame>,
}

impl TunnelSession {
    /// Creates one side of a tunnel. Its connections are charged to `budget`, except for connections that
    /// [`open`](Self::open) charges to another budget.
    pub fn new(budget: Arc<Budget>) -> (Self, OutgoingFrames) {
        let (data_sender, data_receiver) = mpsc::channel(DATA_QUEUE_CAPACITY);
        let (control_sender, control_receiver) = mpsc::channel(CONTROL_QUEUE_CAPACITY);
        let shared = SharedTunnel {
            budget,
            data_sender,
            control_sender,
            connections: Mutex::default(),
            next_number: AtomicI64::new(1),
            has_warned: AtomicBool::new(false),
            end_token: CancellationToken::new(),
        };
        let outgoing = OutgoingFrames {
            data_receiver,
            control_receiver,
        };
        (Self(Arc::new(shared)), outgoing)
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.0.budget
    }

    /// Opens a connection in the tunnel: the other side connects to the destination. The memory of the connection is
    /// charged to `budget`. If the other side cannot connect, the connection ends at once.
    pub async fn open(&self, destination: TunnelDestination, budget: &Arc<Budget>) -> io::Result<DuplexStream> {
        let closed_error = || io::Error::new(io::ErrorKind::NotConnected, "the tunnel has ended");
        if !destination.fits_in_frame() {
            return Err(io::Error::other("the address is too long for a tunnel"));
        }
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        // The connection is added to the table only after the queue has room for a frame. So nothing has to be removed
        // from the table if this future is dropped while it waits.
        let permit = tokio::select! {
            permit = self.0.data_sender.reserve() => permit.map_err(|_| closed_error())?,
            () = self.0.end_token.cancelled() => return Err(closed_error()),
        };
        let connection = self.0.add_connection(number, budget).map_err(io::Error::other)?;
        // The other side must get this frame before the connection's data. So the frame and the data share a queue.
        permit.send(Frame::new(number, Content::Connect(destination)));
        let (local_end, stream) = tokio::io::duplex(BUFFER_SIZE);
        tokio::spawn(self.0.clone().carry_connection(number, connection, local_end));
        Ok(stream)
    }

    /// Sends an announcement to another gateway. Waits until the queue has room for it.
    pub(crate) async fn announce(&self, announcement: TunnelAnnouncement) {
        // `send` fails only if the tunnel has ended. Then the other gateway does not need the announcement any more.
        let _ = self
            .0
            .data_sender
            .send(Frame::new(0, Content::Announcement(announcement)))
            .await;
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.0.connections.lock().is_empty()
    }

    /// Carries the tunnel's connections over the WebSocket until the WebSocket ends. Returns why it ended.
    pub async fn run<S>(&self, socket: S, outgoing: OutgoingFrames, allowed_connections: &AllowedConnections) -> String
    where
        S: Stream<Item = Result<Message, WsError>> + Sink<Message, Error = WsError> + Send,
    {
        let _end_guard: DropGuard = self.0.end_token.clone().drop_guard();
        let (sink, stream) = socket.split();
        let why = tokio::select! {
            why = self.0.receive_frames(stream, allowed_connections) => why,
            why = send_frames(sink, outgoing) => why,
            () = self.0.end_token.cancelled() => "it was closed".to_owned(),
        };
        for (_, connection) in self.0.connections.lock().drain() {
            connection.end_token.cancel();
        }
        why
    }
}

/// Serves the agent's side of a tunnel, and connects only to these addresses (each `host:port`). Returns why it ended.
pub(super) async fn serve_agent<S>(socket: S, addresses: Vec<String>) -> String
where
    S: Stream<Item = Result<Message, WsError>> + Sink<Message, Error = WsError> + Send,
{
    let (session, outgoing) = TunnelSession::new(Budget::new(TUNNEL_LIMIT));
    session
        .run(socket, outgoing, &AllowedConnections::Only(addresses))
        .await
}

async fn send_frames<S>(mut sink: S, mut outgoing: OutgoingFrames) -> String
where
    S: Sink<Message, Error = WsError> + Unpin,
{
    let mut pings = tokio::time::interval(PING_INTERVAL);
    for number in 1.. {
        let message = tokio::select! {
            biased;
            _ = pings.tick() => Message::Ping(Bytes::new()),
            Some(frame) = outgoing.control_receiver.recv() => Message::Binary(frame.encode(number)),
            Some(frame) = outgoing.data_receiver.recv() => Message::Binary(frame.encode(number)),
        };
        match tokio::time::timeout(WRITE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the other side read nothing for {WRITE_TIMEOUT:?}"),
        }
    }
    String::new()
}

impl SharedTunnel {
    async fn receive_frames<S>(self: &Arc<Self>, mut stream: S, allowed_connections: &AllowedConnections) -> String
    where
        S: Stream<Item = Result<Message, WsError>> + Unpin,
    {
        loop {
            let message = match tokio::time::timeout(SILENCE_TIMEOUT, stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return error.to_string(),
                Ok(None) => return "the other side closed it".to_owned(),
                Err(_) => return format!("nothing arrived for {SILENCE_TIMEOUT:?}"),
            };
            let frame = match message {
                Message::Binary(bytes) => Frame::decode(bytes),
                Message::Close(_) => return "the other side closed it".to_owned(),
                _ => continue,
            };
            let result = match frame {
                Ok(frame) => self.handle_frame(frame, allowed_connections).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = result {
                return why;
            }
        }
    }

    async fn handle_frame(
        self: &Arc<Self>,
        frame: Frame,
        allowed_connections: &AllowedConnections,
    ) -> Result<(), String> {
        let number = frame.connection;
        let connection = self.connections.lock().get(&number).cloned();
        match (frame.content, connection) {
            (Content::Connect(destination), existing_connection) => {
                let target = allowed_connections.find_target(destination);
                match (target, existing_connection) {
                    (Ok(target), None) => match self.add_connection(number, target.budget(&self.budget)) {
                        Ok(connection) => drop(tokio::spawn(self.clone().dial(number, target, connection))),
                        Err(why) => self.queue_control(number, Content::Error(why.to_owned()))?,
                    },
                    (Ok(_), Some(_)) => {
                        self.queue_control(number, Content::Error("the number is in use".to_owned()))?
                    }
                    (Err(why), _) => {
                        if !self.has_warned.swap(true, Ordering::Relaxed) {
                            tracing::warn!(
                                why,
                                "the other side of a tunnel asked for a connection that it cannot have"
                            );
                        }
                        self.queue_control(number, Content::Error(why))?;
                    }
                }
            }
            (Content::Announcement(announcement), _) => allowed_connections.take_announcement(announcement)?,
            (Content::Data(bytes), Some(connection)) => self.queue_data(number, &connection, bytes).await?,
            // This side has ended the connection, but the other side still sends data for it. The answer is `EOF`,
            // which tells the other side to stop. No answer is sent while the queue is full.
            (Content::Data(_), None) => drop(self.queue_control(number, Content::Error(EOF.to_owned()))),
            (Content::Error(text), Some(connection)) => {
                if text != EOF {
                    tracing::debug!(number, text, "the other side of a tunnel ended a connection");
                }
                // The bytes that have arrived can still be read. The connection stays in the table, and its memory
                // stays charged, until all of them have been read.
                connection.inbox.close();
            }
            (Content::Pause, Some(connection)) => drop(connection.paused.send_replace(true)),
            (Content::Resume, Some(connection)) => drop(connection.paused.send_replace(false)),
            (Content::Error(_) | Content::Pause | Content::Resume | Content::Other, _) => {}
        }
        Ok(())
    }

    /// Puts bytes that have arrived into the inbox of their connection. If the memory of the tunnel, of the user or of
    /// the gateway is used up, ends the connection that holds the most memory in this tunnel.
    async fn queue_data(&self, number: i64, connection: &Arc<TunnelConnection>, bytes: Bytes) -> Result<(), String> {
        let inbox = &connection.inbox;
        let reader_timeout = tokio::time::sleep(SLOW_READER_TIMEOUT);
        tokio::pin!(reader_timeout);
        loop {
            // The future `next_release` is created before `push` is called. Otherwise, memory could be released between
            // the two calls, and this task would not notice it.
            let next_release = inbox.budget.release_notification();
            match inbox.push(&bytes) {
                Ok(()) => break,
                Err(full_budget) if std::ptr::eq(full_budget, &*inbox.budget) => tokio::select! {
                    () = next_release => {}
                    () = connection.end_token.cancelled() => return Ok(()),
                    () = &mut reader_timeout => {
                        let why = "its reader is too slow, and the other side goes on sending";
                        return self.end_connection(number, connection, why);
                    }
                },
                Err(_) => {
                    let (largest, victim) = self.largest_in_budget(number, connection);
                    self.end_connection(
                        largest,
                        &victim,
                        "its reader is too slow, and no memory is left for tunnels",
                    )?;
                    if Arc::ptr_eq(&victim, connection) {
                        return Ok(());
                    }
                }
            }
        }
        if connection.begin_pause() {
            self.queue_control(number, Content::Pause)?;
        }
        Ok(())
    }

    /// Finds the connection that holds the most memory. Only connections of this tunnel that share a budget with
    /// `connection` are compared.
    fn largest_in_budget(&self, number: i64, connection: &Arc<TunnelConnection>) -> (i64, Arc<TunnelConnection>) {
        let own_budget = &connection.inbox.budget;
        let connections = self.connections.lock();
        let larger = connections.iter().filter(|(_, other)| {
            let budget = &other.inbox.budget;
            budget.shares_budget(own_budget) && budget.charged_bytes() > own_budget.charged_bytes()
        });
        let largest = larger.max_by_key(|(_, other)| other.inbox.budget.charged_bytes());
        let (number, connection) = largest.unwrap_or((&number, connection));
        (*number, connection.clone())
    }

    fn end_connection(&self, number: i64, connection: &TunnelConnection, why: &'static str) -> Result<(), String> {
        tracing::info!(number, why, "a connection in a tunnel is ended");
        connection.end_token.cancel();
        connection.inbox.clear();
        self.remove_connection(number);
        self.queue_control(number, Content::Error(why.to_owned()))
    }

    /// Queues a frame without data, without waiting. Returns an error if the queue is full.
    fn queue_control(&self, number: i64, content: Content) -> Result<(), String> {
        let outcome = self.control_sender.try_send(Frame::new(number, content));
        outcome.map_err(|_| "the other side does not read what it is sent".to_owned())
    }

    fn add_connection(&self, number: i64, budget: &Arc<Budget>) -> Result<Arc<TunnelConnection>, &'static str> {
        let connection = TunnelConnection::new(budget);
        let connection =
            Arc::new(connection.ok_or("the tunnel, or the gateway, has no memory for another connection")?);
        let mut connections = self.connections.lock();
        if self.end_token.is_cancelled() {
            return Err("the tunnel has ended");
        }
        connections.insert(number, connection.clone());
        Ok(connection)
    }

    fn remove_connection(&self, number: i64) {
        self.connections.lock().remove(&number);
    }

    async fn dial(self: Arc<Self>, number: i64, target: ConnectTarget, connection: Arc<TunnelConnection>) {
        let connection_end = connection.end_token.clone();
        let cancellation = async {
            tokio::select! {
                () = connection_end.cancelled() => {}
                () = self.end_token.cancelled() => {}
            }
        };
        let why = match target {
            ConnectTarget::Tcp(address) => {
                let connected = tokio::select! {
                    connected = connect(&address) => connected,
                    () = cancellation => return,
                };
                match connected {
                    Ok(stream) => return self.carry_connection(number, connection, stream).await,
                    Err(why) => why,
                }
            }
            ConnectTarget::Tunnel(session, _guard, to) => {
                let opened = tokio::select! {
                    opened = session.open(to, session.budget()) => opened,
                    () = cancellation => return,
                };
                match opened {
                    Ok(stream) => return self.carry_connection(number, connection, stream).await,
                    Err(error) => error.to_string(),
                }
            }
        };
        self.remove_connection(number);
        // `send` fails only if the tunnel has ended.
        let _ = self.data_sender.send(Frame::new(number, Content::Error(why))).await;
    }

    async fn carry_connection<S>(self: Arc<Self>, number: i64, connection: Arc<TunnelConnection>, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, mut writer) = tokio::io::split(stream);
        let inbox = &connection.inbox;
        let delivery = async {
            while let Some(chunk) = inbox.take().await {
                if writer.write_all(&chunk.bytes).await.is_err() {
                    break;
                }
                inbox.record_delivery(chunk);
                if connection.end_pause() {
                    // `send` fails only if the tunnel has ended.
                    let _ = self.control_sender.send(Frame::new(number, Content::Resume)).await;
                }
            }
            let _ = writer.shutdown().await;
        };
        let collection = self.forward_data(number, reader, connection.paused.subscribe());
        tokio::select! {
            // The future `delivery` passes the bytes that have arrived to the reader. It ends after the other side has
            // ended the connection and the reader has all bytes.
            () = delivery => {}
            () = collection => {}
            () = connection.end_token.cancelled() => {}
            () = self.end_token.cancelled() => {}
        }
        let was_known = self.connections.lock().remove(&number).is_some();
        if was_known && !connection.inbox.is_closed() {
            // The other side must get this frame after the connection's data. So the frame and the data share a queue.
            let end_frame = Frame::new(number, Content::Error(EOF.to_owned()));
            tokio::select! {
                _ = self.data_sender.send(end_frame) => {}
                () = self.end_token.cancelled() => {}
            }
        }
    }

    async fn forward_data<S>(&self, number: i64, mut reader: ReadHalf<S>, mut paused: watch::Receiver<bool>)
    where
        S: AsyncRead,
    {
        let mut buffer = BytesMut::new();
        loop {
            if paused.wait_for(|paused| !paused).await.is_err() {
                // The other side has ended the connection, so there is nothing left to send. But this future must not
                // end: `carry_connection` would end with it, and would not deliver the bytes that have arrived before.
                return std::future::pending().await;
            }
            buffer.reserve(LARGEST_CHUNK);
            match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let frame = Frame::new(number, Content::Data(buffer.split().freeze()));
            if self.data_sender.send(frame).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
