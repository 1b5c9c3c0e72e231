use admittance_gateway::tunnel::{
    AllowedConnections, Budget, LARGEST_AGENT_MESSAGE, TunnelDestination, TunnelSession, websocket_config,
};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::block_on;

/// The number of bytes that the gateway may keep in memory for the tunnel. The test opens two connections in the
/// tunnel, which take half of these bytes.
const BUDGET_LIMIT: usize = 256 << 10;

/// Sends messages of an agent to a gateway through a tunnel. The input consists of messages. Each begins with the
/// number of its repetitions and its length, and then has its bytes. In the tunnel, two connections are open: 1 and 2.
/// Nobody reads the data that arrives on connection 1.
pub fn tunnel(input: &[u8]) {
    block_on(async {
        let (gateway_end, agent_end) = tokio::io::duplex(64 << 10);
        let config = Some(websocket_config(LARGEST_AGENT_MESSAGE));
        let gateway_socket = WebSocketStream::from_raw_socket(gateway_end, Role::Server, config).await;
        let agent_socket = WebSocketStream::from_raw_socket(agent_end, Role::Client, config).await;
        let gateway_budget = Budget::new(BUDGET_LIMIT);
        let budget = gateway_budget.part(BUDGET_LIMIT);
        let (session, outgoing) = TunnelSession::new(budget.clone());
        let running_session = session.clone();
        let running = tokio::spawn(async move {
            running_session
                .run(gateway_socket, outgoing, &AllowedConnections::Nothing)
                .await
        });
        let open = async || {
            let cluster = None;
            let address = "a:1".to_owned();
            let opened = session.open(TunnelDestination { cluster, address }, &budget).await;
            opened.expect("there is memory for it")
        };
        let (unread_connection, mut read_connection) = (open().await, open().await);
        let reading = tokio::spawn(async move { tokio::io::copy(&mut read_connection, &mut tokio::io::sink()).await });
        let (mut sink, replies) = agent_socket.split();
        let replies = tokio::spawn(replies.for_each(async |_| {}));
        let mut rest = input;
        'messages: while let [again, length, tail @ ..] = rest {
            let (message, tail) = tail.split_at(usize::from(*length).min(tail.len()));
            rest = tail;
            for _ in 0..=*again {
                // After an invalid message, the gateway ends the tunnel, and then the next message cannot be sent.
                if sink.send(Message::binary(message.to_vec())).await.is_err() {
                    break 'messages;
                }
                assert!(
                    gateway_budget.charged_bytes() <= BUDGET_LIMIT,
                    "{} bytes are held",
                    gateway_budget.charged_bytes()
                );
            }
        }
        let _ = sink.close().await;
        running.await.expect("a tunnel does not panic");
        replies.await.expect("the socket is read to its end");
        drop((unread_connection, session, budget));
        let _ = reading.await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            gateway_budget.charged_bytes(),
            0,
            "the end of a tunnel releases its memory"
        );
    });
}
