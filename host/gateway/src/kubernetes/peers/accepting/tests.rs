use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role as Side};

use super::{
    super::{
        super::{agents::encode_params, routes::test_credentials},
        PeerSecrets,
    },
    *,
};

#[tokio::test]
async fn announcements_of_an_ended_tunnel_do_not_affect_its_successor() {
    let routes = Arc::new(Routes::default());
    let added = |cluster: &str| {
        let text = format!("{cluster}\n{}", encode_params(&test_credentials()));
        TunnelAnnouncement::Added(Bytes::from(text))
    };
    let gateway_count = || routes.state("a").gateways;
    let (mut before, mut after) = (HashMap::new(), HashMap::new());
    let budget = Budget::new(1 << 20);
    let (old, new) = (
        TunnelSession::new(budget.clone()).0,
        TunnelSession::new(budget.clone()).0,
    );
    let apply_announcement = |announcement, session: &TunnelSession, announced: &mut HashMap<_, _>| {
        apply_announcement(announcement, &routes, session, |_| budget.clone(), announced)
    };
    apply_announcement(added("a"), &old, &mut before).unwrap();
    apply_announcement(added("a"), &old, &mut before).unwrap();
    assert_eq!(gateway_count(), 1);
    // The other gateway has reconnected, and announces the cluster `a` again through its new tunnel. This gateway has
    // not noticed yet that the old tunnel is gone, so it counts the announcement through the old tunnel, too.
    apply_announcement(added("a"), &new, &mut after).unwrap();
    drop(before);
    assert_eq!(gateway_count(), 1);
    apply_announcement(TunnelAnnouncement::Removed("b".to_owned()), &new, &mut after).unwrap();
    assert_eq!(gateway_count(), 1);
    apply_announcement(TunnelAnnouncement::Removed("a".to_owned()), &new, &mut after).unwrap();
    assert_eq!(gateway_count(), 0);

    let broken = TunnelAnnouncement::Added(Bytes::from_static(b"a\n?"));
    assert!(apply_announcement(broken, &new, &mut after).is_ok() && after.is_empty());
    for text in [&b"a"[..], b"\xff\n"] {
        let unreadable = TunnelAnnouncement::Added(Bytes::copy_from_slice(text));
        assert!(apply_announcement(unreadable, &new, &mut after).is_err());
    }
}
#[tokio::test(start_paused = true)]
async fn a_recorded_proof_does_not_answer_a_new_challenge() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    std::fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let secret = PeerSecrets::read(&path).unwrap().first_secret().unwrap();
    let connection = |challenge: &str| ConnectionContext {
        id: "a".to_owned(),
        key: "k".to_owned(),
        server: "https://10.0.0.1:8443".to_owned(),
        challenge: challenge.to_owned(),
    };
    let proof = |step, challenge| secret.proof(step, &connection(challenge));
    for (message, expected) in [
        (Some(Message::text(proof(HandshakeStep::Answers, "now"))), true),
        (Some(Message::binary(proof(HandshakeStep::Answers, "now"))), false),
        // The proof in the next message was made for the challenge `before`, but the current challenge is `now`. The
        // proof in the message after it was made for the step `Accepts`, but the gateway that opens a tunnel must prove
        // `Answers`.
        (Some(Message::text(proof(HandshakeStep::Answers, "before"))), false),
        (Some(Message::text(proof(HandshakeStep::Accepts, "now"))), false),
        (Some(Message::Close(None)), false),
        (None, false),
    ] {
        let (opening, accepting) = tokio::io::duplex(4096);
        let mut opening = WebSocketStream::from_raw_socket(opening, Side::Client, None).await;
        let mut accepting = WebSocketStream::from_raw_socket(accepting, Side::Server, None).await;
        if let Some(message) = message.clone() {
            opening.send(message).await.unwrap();
        }
        let is_answered = is_answered(&mut accepting, &secret, &connection("now")).await;
        assert_eq!(is_answered, expected, "{message:?}");
    }
}
