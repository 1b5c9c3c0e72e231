use tokio::net::TcpListener;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use super::*;
use crate::tunnel::{LARGEST_AGENT_MESSAGE, connection::MAX_HELD_BYTES, websocket_config};

async fn socket_pair() -> [WebSocketStream<DuplexStream>; 2] {
    let (server_stream, client_stream) = tokio::io::duplex(64 << 10);
    let config = Some(websocket_config(LARGEST_AGENT_MESSAGE));
    [
        WebSocketStream::from_raw_socket(server_stream, Role::Server, config).await,
        WebSocketStream::from_raw_socket(client_stream, Role::Client, config).await,
    ]
}

fn run_gateway(budget: &Arc<Budget>, socket: WebSocketStream<DuplexStream>) -> TunnelSession {
    let (session, outgoing) = TunnelSession::new(budget.clone());
    let running = session.clone();
    tokio::spawn(async move { running.run(socket, outgoing, &AllowedConnections::Nothing).await });
    session
}

async fn open(session: &TunnelSession, to: TunnelDestination) -> io::Result<DuplexStream> {
    session.open(to, session.budget()).await
}

/// Returns the gateway's side of a tunnel, and the task of its agent, which connects only to this address.
async fn open_tunnel(allowed: String) -> (TunnelSession, tokio::task::JoinHandle<String>) {
    let [ours, theirs] = socket_pair().await;
    let agent = tokio::spawn(serve_agent(theirs, vec![allowed]));
    (run_gateway(&Budget::new(TUNNEL_LIMIT), ours), agent)
}

fn destination_of(address: &str) -> TunnelDestination {
    TunnelDestination {
        cluster: None,
        address: address.to_owned(),
    }
}

async fn serve_echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn connections_through_a_tunnel_carry_data_and_end_on_both_sides() {
    let address = serve_echo().await;
    let (session, agent) = open_tunnel(address.clone()).await;
    let mut streams = Vec::new();
    for number in 0..3_u8 {
        let mut stream = open(&session, destination_of(&address)).await.unwrap();
        stream.write_all(&[number; 3]).await.unwrap();
        streams.push(stream);
    }
    for (number, stream) in (0..3_u8).zip(&mut streams) {
        let mut received_bytes = [9; 3];
        stream.read_exact(&mut received_bytes).await.unwrap();
        assert_eq!(received_bytes, [number; 3]);
    }
    drop(streams);
    while !session.0.connections.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let (mut reader, mut writer) = tokio::io::split(open(&session, destination_of(&address)).await.unwrap());
    let length = 5 << 20;
    let writing = tokio::spawn(async move {
        writer.write_all(&vec![7; length]).await.unwrap();
        writer
    });
    let mut all = vec![0; length];
    reader.read_exact(&mut all).await.unwrap();
    assert!(all.iter().all(|byte| *byte == 7));
    let _write = writing.await.unwrap();
    session.0.end_token.cancel();
    assert!(open(&session, destination_of("a:1")).await.is_err());
    assert!(!agent.await.unwrap().is_empty());
}

#[tokio::test]
async fn an_agent_connects_only_to_allowed_addresses() {
    let (address, other) = (serve_echo().await, serve_echo().await);
    let (session, _agent) = open_tunnel(address).await;
    for refused in [other, "169.254.169.254:80".to_owned()] {
        let mut stream = open(&session, destination_of(&refused)).await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_gateway_opens_no_connections_for_an_agent() {
    let address = serve_echo().await;
    let [ours, theirs] = socket_pair().await;
    let new = || TunnelSession::new(Budget::new(TUNNEL_LIMIT));
    let ((gateway, to_agent), (agent, to_gateway)) = (new(), new());
    let running = (gateway.clone(), agent.clone());
    tokio::spawn(async move { running.0.run(ours, to_agent, &AllowedConnections::Nothing).await });
    let allowed = AllowedConnections::Only(vec![address.clone()]);
    tokio::spawn(async move { running.1.run(theirs, to_gateway, &allowed).await });
    let mut stream = open(&agent, destination_of(&address)).await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    let mut stream = open(&gateway, destination_of(&address)).await.unwrap();
    stream.write_all(b"a").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
}

#[tokio::test]
async fn an_address_too_long_for_a_frame_leaves_the_tunnel_open() {
    let address = serve_echo().await;
    let (session, _agent) = open_tunnel(address.clone()).await;
    assert!(open(&session, destination_of(&"a".repeat(100))).await.is_err());
    let mut stream = open(&session, destination_of(&address)).await.unwrap();
    stream.write_all(b"a").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
}

struct Attacker(WebSocketStream<DuplexStream>);

impl Attacker {
    async fn send(&mut self, connection: i64, content: Content) {
        let frame = Frame::new(connection, content).encode(1);
        self.0.send(Message::Binary(frame)).await.unwrap();
    }

    /// Returns the next frame that ends a connection or asks to pause one. Skips other frames.
    async fn next_answer(&mut self) -> Frame {
        loop {
            if let Message::Binary(bytes) = self.0.next().await.unwrap().unwrap() {
                let frame = Frame::decode(bytes).unwrap();
                if matches!(frame.content, Content::Error(_) | Content::Pause) {
                    return frame;
                }
            }
        }
    }

    /// Waits until the gateway has handled everything that was sent. It handles frames in order, so this sends data for
    /// a connection that does not exist, and waits for the answer.
    async fn wait_until_handled(&mut self) {
        let unknown = 1 << 40;
        self.send(unknown, Content::Data(Bytes::new())).await;
        while self.next_answer().await.connection != unknown {}
    }
}

#[tokio::test]
async fn frames_without_data_take_no_memory() {
    let [ours, theirs] = socket_pair().await;
    let budget = Budget::new(TUNNEL_LIMIT);
    let session = run_gateway(&budget, ours);
    let mut attacker = Attacker(theirs);
    let unread = open(&session, destination_of("a:1")).await.unwrap();
    let idle = budget.charged_bytes();
    for _ in 0..20_000 {
        attacker.send(1, Content::Data(Bytes::new())).await;
    }
    attacker.wait_until_handled().await;
    assert_eq!(budget.charged_bytes(), idle);
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_if_the_other_side_ignores_a_pause() {
    let [ours, theirs] = socket_pair().await;
    let budget = Budget::new(TUNNEL_LIMIT);
    let session = run_gateway(&budget, ours);
    let mut attacker = Attacker(theirs);
    let mut unread = open(&session, destination_of("a:1")).await.unwrap();
    let chunk = Bytes::from(vec![7; LARGEST_CHUNK]);
    for _ in 0..=MAX_HELD_BYTES / LARGEST_CHUNK {
        attacker.send(1, Content::Data(chunk.clone())).await;
    }
    assert_eq!(attacker.next_answer().await, Frame::new(1, Content::Pause));
    let Content::Error(why) = attacker.next_answer().await.content else {
        panic!("it is not ended");
    };
    assert!(why.contains("goes on sending"), "{why}");
    let mut all = Vec::new();
    unread.read_to_end(&mut all).await.unwrap();
    assert!(all.len() <= BUFFER_SIZE, "{}", all.len());
    attacker.wait_until_handled().await;
    assert_eq!(budget.charged_bytes(), 0);
}

#[tokio::test]
async fn slow_readers_together_stay_within_the_limit_of_a_tunnel() {
    let [ours, theirs] = socket_pair().await;
    let budget = Budget::new(8 << 20).part(4 << 20);
    let session = run_gateway(&budget, ours);
    let mut attacker = Attacker(theirs);
    let chunk = Bytes::from(vec![7; LARGEST_CHUNK]);
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(open(&session, destination_of("a:1")).await.unwrap());
    }
    let mut healthy = open(&session, destination_of("a:1")).await.unwrap();
    for _ in 0..64 {
        for connection in 1..=8 {
            attacker.send(connection, Content::Data(chunk.clone())).await;
            assert!(budget.charged_bytes() <= 4 << 20);
        }
        attacker.send(9, Content::Data(chunk.clone())).await;
        let mut received_bytes = vec![0; LARGEST_CHUNK];
        healthy.read_exact(&mut received_bytes).await.unwrap();
    }
    attacker.wait_until_handled().await;
    let open_count = session.0.connections.lock().len();
    assert!(open_count < 9, "slow readers are ended");
    drop((unread, healthy));
    session.0.end_token.cancel();
    while budget.charged_bytes() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_is_charged_until_its_reader_has_read_everything() {
    let [ours, theirs] = socket_pair().await;
    let budget = Budget::new(8 << 20).part(1 << 20);
    let session = run_gateway(&budget, ours);
    let mut attacker = Attacker(theirs);
    let (mut ended_stream, mut open_stream) = (
        open(&session, destination_of("a:1")).await.unwrap(),
        open(&session, destination_of("a:1")).await.unwrap(),
    );
    let chunk = Bytes::from(vec![7; LARGEST_CHUNK]);
    for _ in 0..10 {
        attacker.send(1, Content::Data(chunk.clone())).await;
    }
    attacker.send(1, Content::Error(EOF.to_owned())).await;
    attacker.wait_until_handled().await;
    assert!(session.is_used());
    for _ in 0..30 {
        attacker.send(2, Content::Data(chunk.clone())).await;
        let mut received_bytes = vec![0; LARGEST_CHUNK];
        open_stream.read_exact(&mut received_bytes).await.unwrap();
    }
    // The other side has ended `ended_stream` before anything was read from it. All bytes that have arrived can
    // still be read, and the connection is removed after the last of them.
    let mut all = Vec::new();
    ended_stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 10 * LARGEST_CHUNK);
    while session.0.connections.lock().len() > 1 {
        tokio::task::yield_now().await;
    }
}
