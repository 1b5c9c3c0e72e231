use tokio::net::TcpListener;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use super::*;
use crate::tunnel::websocket_config;

/// A gateway's side of a tunnel to an agent that connects to this address only, and the task of the agent.
async fn tunnel(allowed: String) -> (Session, tokio::task::JoinHandle<String>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let config = Some(websocket_config());
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, config).await;
    let theirs = WebSocketStream::from_raw_socket(theirs, Role::Client, config).await;
    let agent = tokio::spawn(serve_agent(theirs, vec![allowed]));
    let (session, outgoing) = Session::new();
    let running = session.clone();
    tokio::spawn(async move { running.run(ours, outgoing, &Accepts::Nothing).await });
    (session, agent)
}

fn to(address: &str) -> Destination {
    Destination {
        cluster: None,
        address: address.to_owned(),
    }
}

async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn connections_are_carried_and_end_on_both_sides() {
    let address = echo().await;
    let (session, agent) = tunnel(address.clone()).await;
    let mut streams = Vec::new();
    for number in 0..3_u8 {
        let mut stream = session.open(to(&address)).await.unwrap();
        stream.write_all(&[number; 3]).await.unwrap();
        streams.push(stream);
    }
    for (number, stream) in (0..3_u8).zip(&mut streams) {
        let mut read = [9; 3];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(read, [number; 3]);
    }
    drop(streams);
    while !lock(&session.0.connections).is_empty() {
        tokio::task::yield_now().await;
    }
    // What is sent is echoed whole, although only a part of it fits anywhere.
    let (mut read, mut write) = tokio::io::split(session.open(to(&address)).await.unwrap());
    let length = 5 << 20;
    let writing = tokio::spawn(async move {
        write.write_all(&vec![7; length]).await.unwrap();
        write
    });
    let mut all = vec![0; length];
    read.read_exact(&mut all).await.unwrap();
    assert!(all.iter().all(|byte| *byte == 7));
    let _write = writing.await.unwrap();
    session.0.ended.cancel();
    assert!(session.open(to("a:1")).await.is_err());
    assert!(!agent.await.unwrap().is_empty());
}

#[tokio::test]
async fn an_agent_connects_only_where_it_may() {
    let (address, other) = (echo().await, echo().await);
    let (session, _agent) = tunnel(address).await;
    for refused in [other, "169.254.169.254:80".to_owned()] {
        let mut stream = session.open(to(&refused)).await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_gateway_opens_no_connections_for_an_agent() {
    let address = echo().await;
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let config = Some(websocket_config());
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, config).await;
    let theirs = WebSocketStream::from_raw_socket(theirs, Role::Client, config).await;
    let ((gateway, to_agent), (agent, to_gateway)) = (Session::new(), Session::new());
    let running = (gateway.clone(), agent.clone());
    tokio::spawn(async move { running.0.run(ours, to_agent, &Accepts::Nothing).await });
    let allowed = Accepts::Only(vec![address.clone()]);
    tokio::spawn(async move { running.1.run(theirs, to_gateway, &allowed).await });
    let mut stream = agent.open(to(&address)).await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    let mut stream = gateway.open(to(&address)).await.unwrap();
    stream.write_all(b"a").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
}

#[tokio::test]
async fn an_address_that_no_frame_can_hold_leaves_the_tunnel_open() {
    let address = echo().await;
    let (session, _agent) = tunnel(address.clone()).await;
    assert!(session.open(to(&"a".repeat(100))).await.is_err());
    let mut stream = session.open(to(&address)).await.unwrap();
    stream.write_all(b"a").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
}
