//! One side of a tunnel: the connections in it, and the WebSocket that carries them.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf},
    sync::{Notify, mpsc, watch},
};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    PING_INTERVAL, SILENCE,
    accepts::{Accepts, Wanted, connect},
    frame::{Announcement, Content, Destination, EOF, Frame},
};
use crate::lock::lock;

/// Data frames that wait to be written.
const DATA_QUEUE: usize = 16;
/// Other frames that wait to be written. More is an attack.
const CONTROL_QUEUE: usize = 4096;
/// The connections of one tunnel.
const MOST_CONNECTIONS: usize = 4096;
/// Of one frame of data.
const CHUNK: usize = 32 << 10;
/// What is held for a connection until the other side is asked to pause it, and until it resumes.
const HIGH: usize = 1 << 20;
const LOW: usize = 256 << 10;
/// What is held for a connection at most. Then nothing more is read of the tunnel, up to a time.
const MOST_HELD: usize = 8 << 20;
const SLOW_READER: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// One side of a tunnel. Cheap to clone. The tunnel ends when [`run`](Self::run) does.
#[derive(Clone, Debug)]
pub(crate) struct Session(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    data: mpsc::Sender<Frame>,
    control: mpsc::Sender<Frame>,
    connections: Mutex<HashMap<i64, Arc<Connection>>>,
    next: AtomicI64,
    ended: CancellationToken,
}

/// What arrives for a connection.
#[derive(Debug)]
struct Connection {
    arriving: mpsc::UnboundedSender<Bytes>,
    /// Bytes that have arrived and are not taken yet: bounded by [`MOST_HELD`].
    held: AtomicUsize,
    taken: Notify,
    /// Whether the other side was asked to pause.
    pause_requested: AtomicBool,
    /// Whether the other side asks to pause.
    paused: watch::Sender<bool>,
    /// The connection has ended, from whatever side.
    ended: CancellationToken,
}

/// Frames to be written to the WebSocket.
pub(crate) struct Outgoing {
    data: mpsc::Receiver<Frame>,
    control: mpsc::Receiver<Frame>,
}

impl Session {
    pub(crate) fn new() -> (Self, Outgoing) {
        let (data, data_queue) = mpsc::channel(DATA_QUEUE);
        let (control, control_queue) = mpsc::channel(CONTROL_QUEUE);
        let shared = Shared {
            data,
            control,
            connections: Mutex::default(),
            next: AtomicI64::new(1),
            ended: CancellationToken::new(),
        };
        let outgoing = Outgoing {
            data: data_queue,
            control: control_queue,
        };
        (Self(Arc::new(shared)), outgoing)
    }

    /// A connection, as the other side sees its destination. If the other side cannot connect, it ends at once.
    pub(crate) async fn open(&self, to: Destination) -> io::Result<DuplexStream> {
        let closed = || io::Error::new(io::ErrorKind::NotConnected, "the tunnel has ended");
        if !to.fits() {
            return Err(io::Error::other("the address is too long for a tunnel"));
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        // Before the connection is added: nothing is left to remove if this future is dropped while it waits.
        let permit = tokio::select! {
            permit = self.0.data.reserve() => permit.map_err(|_| closed())?,
            () = self.0.ended.cancelled() => return Err(closed()),
        };
        let (connection, arriving) = self
            .0
            .add(number)
            .ok_or_else(|| io::Error::other("the tunnel is full or has ended"))?;
        // Before its data, so in the same queue.
        permit.send(Frame::new(number, Content::Connect(to)));
        let (own, stream) = tokio::io::duplex(CHUNK * 2);
        tokio::spawn(self.0.clone().carry(number, connection, arriving, own));
        Ok(stream)
    }

    /// Sends an announcement to another gateway. Waits until there is room in the queue.
    pub(crate) async fn announce(&self, announcement: Announcement) {
        // An error: the tunnel has ended.
        let _ = self
            .0
            .data
            .send(Frame::new(0, Content::Announcement(announcement)))
            .await;
    }

    /// Whether there are connections.
    pub(crate) fn is_used(&self) -> bool {
        !lock(&self.0.connections).is_empty()
    }

    /// Carries the connections over the WebSocket, until it ends. Returns why.
    pub(crate) async fn run<S>(&self, socket: S, outgoing: Outgoing, accepts: &Accepts) -> String
    where
        S: Stream<Item = Result<Message, WsError>> + Sink<Message, Error = WsError> + Send,
    {
        let _ended: DropGuard = self.0.ended.clone().drop_guard();
        let (sink, stream) = socket.split();
        let why = tokio::select! {
            why = self.0.receive(stream, accepts) => why,
            why = send(sink, outgoing) => why,
            () = self.0.ended.cancelled() => "it was closed".to_owned(),
        };
        for (_, connection) in lock(&self.0.connections).drain() {
            connection.ended.cancel();
        }
        why
    }
}

/// Serves the agent's side of a WebSocket until it ends. Connects only to these addresses, each `host:port`. Returns why
/// it ended.
pub(super) async fn serve_agent<S>(socket: S, addresses: Vec<String>) -> String
where
    S: Stream<Item = Result<Message, WsError>> + Sink<Message, Error = WsError> + Send,
{
    let (session, outgoing) = Session::new();
    session.run(socket, outgoing, &Accepts::Only(addresses)).await
}

/// Writes frames and pings.
async fn send<S>(mut sink: S, mut outgoing: Outgoing) -> String
where
    S: Sink<Message, Error = WsError> + Unpin,
{
    let mut pings = tokio::time::interval(PING_INTERVAL);
    for number in 1.. {
        let message = tokio::select! {
            biased;
            _ = pings.tick() => Message::Ping(Bytes::new()),
            Some(frame) = outgoing.control.recv() => Message::Binary(frame.write(number)),
            Some(frame) = outgoing.data.recv() => Message::Binary(frame.write(number)),
        };
        match tokio::time::timeout(WRITE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the other side read nothing for {WRITE_TIMEOUT:?}"),
        }
    }
    String::new()
}

impl Shared {
    /// Reads frames until the WebSocket ends. Returns why.
    async fn receive<S>(self: &Arc<Self>, mut stream: S, accepts: &Accepts) -> String
    where
        S: Stream<Item = Result<Message, WsError>> + Unpin,
    {
        loop {
            let message = match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return error.to_string(),
                Ok(None) => return "the other side closed it".to_owned(),
                Err(_) => return format!("nothing arrived for {SILENCE:?}"),
            };
            let frame = match message {
                Message::Binary(bytes) => Frame::read(bytes),
                Message::Close(_) => return "the other side closed it".to_owned(),
                _ => continue,
            };
            let result = match frame {
                Ok(frame) => self.take(frame, accepts).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = result {
                return why;
            }
        }
    }

    /// Handles a frame. An error ends the tunnel.
    async fn take(self: &Arc<Self>, frame: Frame, accepts: &Accepts) -> Result<(), String> {
        let number = frame.connection;
        let connection = lock(&self.connections).get(&number).cloned();
        match (frame.content, connection) {
            (Content::Connect(to), known) => {
                let wanted = accepts.wanted(to);
                match (wanted, known) {
                    (Ok(wanted), None) => match self.add(number) {
                        Some((connection, arriving)) => {
                            tokio::spawn(self.clone().dial(number, wanted, connection, arriving));
                        }
                        None => self.tell(number, Content::Error("the tunnel is full".to_owned()))?,
                    },
                    (Ok(_), Some(_)) => {
                        self.tell(number, Content::Error("the number is in use".to_owned()))?
                    }
                    (Err(why), _) => {
                        tracing::warn!(
                            why,
                            "the other side of a tunnel asked for a connection that it cannot have"
                        );
                        self.tell(number, Content::Error(why))?;
                    }
                }
            }
            (Content::Announcement(announcement), _) => accepts.announced(announcement)?,
            (Content::Data(bytes), Some(connection)) => self.arrived(number, &connection, bytes).await?,
            // It has ended here, and the other side may not know yet.
            (Content::Data(_), None) => self.tell(number, Content::Error(EOF.to_owned()))?,
            (Content::Error(text), Some(connection)) => {
                if text != EOF {
                    tracing::debug!(number, text, "the other side of a tunnel ended a connection");
                }
                // Dropping the sender lets its reader take what has arrived before it ends.
                drop(connection);
                self.remove(number);
            }
            (Content::Pause, Some(connection)) => drop(connection.paused.send_replace(true)),
            (Content::Resume, Some(connection)) => drop(connection.paused.send_replace(false)),
            (Content::Error(_) | Content::Pause | Content::Resume | Content::Other, _) => {}
        }
        Ok(())
    }

    /// Queues what arrived. Waits for a moment if its reader is slow and the other side does not pause.
    async fn arrived(&self, number: i64, connection: &Connection, bytes: Bytes) -> Result<(), String> {
        let held = connection.held.fetch_add(bytes.len(), Ordering::AcqRel) + bytes.len();
        // An error: its reader has gone.
        let _ = connection.arriving.send(bytes);
        if held > HIGH && !connection.pause_requested.swap(true, Ordering::AcqRel) {
            self.tell(number, Content::Pause)?;
        }
        if held <= MOST_HELD {
            return Ok(());
        }
        let drained = async {
            loop {
                let taken = connection.taken.notified();
                if connection.held.load(Ordering::Acquire) <= MOST_HELD {
                    break;
                }
                taken.await;
            }
        };
        tokio::select! {
            () = drained => {}
            () = connection.ended.cancelled() => {}
            () = tokio::time::sleep(SLOW_READER) => {
                tracing::info!(number, "a connection in a tunnel is ended: its reader is too slow");
                connection.ended.cancel();
                self.remove(number);
                self.tell(number, Content::Error("its reader is too slow".to_owned()))?;
            }
        }
        Ok(())
    }

    /// Queues a frame that waits for nothing.
    fn tell(&self, number: i64, content: Content) -> Result<(), String> {
        let sent = self.control.try_send(Frame::new(number, content));
        sent.map_err(|_| "the other side does not read what it is sent".to_owned())
    }

    fn add(&self, number: i64) -> Option<(Arc<Connection>, mpsc::UnboundedReceiver<Bytes>)> {
        let mut connections = lock(&self.connections);
        if connections.len() >= MOST_CONNECTIONS || self.ended.is_cancelled() {
            return None;
        }
        let (arriving, queue) = mpsc::unbounded_channel();
        let connection = Arc::new(Connection {
            arriving,
            held: AtomicUsize::new(0),
            taken: Notify::new(),
            pause_requested: AtomicBool::new(false),
            paused: watch::Sender::new(false),
            ended: CancellationToken::new(),
        });
        connections.insert(number, connection.clone());
        Some((connection, queue))
    }

    fn remove(&self, number: i64) {
        lock(&self.connections).remove(&number);
    }

    /// Opens a connection for the other side, and carries it.
    async fn dial(
        self: Arc<Self>,
        number: i64,
        wanted: Wanted,
        connection: Arc<Connection>,
        arriving: mpsc::UnboundedReceiver<Bytes>,
    ) {
        let ended = connection.ended.clone();
        let unwanted = async {
            tokio::select! {
                () = ended.cancelled() => {}
                () = self.ended.cancelled() => {}
            }
        };
        let why = match wanted {
            Wanted::Tcp(address) => {
                let connected = tokio::select! {
                    connected = connect(&address) => connected,
                    () = unwanted => return,
                };
                match connected {
                    Ok(stream) => return self.carry(number, connection, arriving, stream).await,
                    Err(why) => why,
                }
            }
            Wanted::Tunnel(session, _guard, to) => {
                let opened = tokio::select! {
                    opened = session.open(to) => opened,
                    () = unwanted => return,
                };
                match opened {
                    Ok(stream) => return self.carry(number, connection, arriving, stream).await,
                    Err(error) => error.to_string(),
                }
            }
        };
        self.remove(number);
        // An error: the tunnel ends.
        let _ = self.data.send(Frame::new(number, Content::Error(why))).await;
    }

    /// Carries bytes both ways between a stream and the tunnel, until either ends.
    async fn carry<S>(
        self: Arc<Self>,
        number: i64,
        connection: Arc<Connection>,
        arriving: mpsc::UnboundedReceiver<Bytes>,
        stream: S,
    ) where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(stream);
        let weak = Arc::downgrade(&connection);
        let (ended, paused) = (connection.ended.clone(), connection.paused.subscribe());
        // The queue ends when the connection is removed from the table.
        drop(connection);
        let deliver = async {
            let mut write = write;
            let mut arriving = arriving;
            while let Some(bytes) = arriving.recv().await {
                let length = bytes.len();
                if write.write_all(&bytes).await.is_err() {
                    break;
                }
                let Some(connection) = weak.upgrade() else {
                    continue;
                };
                let held = connection.held.fetch_sub(length, Ordering::AcqRel) - length;
                connection.taken.notify_one();
                if held <= LOW && connection.pause_requested.swap(false, Ordering::AcqRel) {
                    // An error: the tunnel ends.
                    let _ = self.control.send(Frame::new(number, Content::Resume)).await;
                }
            }
            let _ = write.shutdown().await;
        };
        let collect = self.collect(number, read, paused);
        tokio::select! {
            // The other side has ended it, and all of its bytes are delivered.
            () = deliver => {}
            () = collect => {}
            () = ended.cancelled() => {}
            () = self.ended.cancelled() => {}
        }
        let was_known = lock(&self.connections).remove(&number).is_some();
        if was_known {
            // After its data, so in the same queue.
            let end = Frame::new(number, Content::Error(EOF.to_owned()));
            tokio::select! {
                _ = self.data.send(end) => {}
                () = self.ended.cancelled() => {}
            }
        }
    }

    /// Sends what is read, to its end.
    async fn collect<S>(&self, number: i64, mut read: ReadHalf<S>, mut paused: watch::Receiver<bool>)
    where
        S: AsyncRead,
    {
        let mut buffer = BytesMut::new();
        loop {
            if paused.wait_for(|paused| !paused).await.is_err() {
                // The other side has ended the connection: what has arrived is delivered before it ends here.
                return std::future::pending().await;
            }
            buffer.reserve(CHUNK);
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let frame = Frame::new(number, Content::Data(buffer.split().freeze()));
            if self.data.send(frame).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
