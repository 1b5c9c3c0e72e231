use super::*;

fn connect(cluster: Option<&str>, address: &str) -> Content {
    Content::Connect(TunnelDestination {
        cluster: cluster.map(ToOwned::to_owned),
        address: address.to_owned(),
    })
}

#[test]
fn frames_have_the_format_of_bcs_api() {
    for (frame, number, bytes) in [
        (
            Frame::new(1, Content::Data(Bytes::from_static(b"ab"))),
            2,
            &b"\x04\x02\x02\x00ab"[..],
        ),
        (
            Frame::new(300, connect(None, "h:1")),
            -1,
            b"\x01\xd8\x04\x04\xb0\xea\x01tcp/h:1",
        ),
        (
            Frame::new(300, connect(Some("plain-a"), "[::1]:1")),
            -1,
            b"\x01\xd8\x04\x04\xb0\xea\x01plain-a::tcp/[::1]:1",
        ),
        (
            Frame::new(300, connect(None, "[::1]:1")),
            -1,
            b"\x01\xd8\x04\x04\xb0\xea\x01tcp/[::1]:1",
        ),
        (
            Frame::new(
                0,
                Content::Announcement(TunnelAnnouncement::Added(Bytes::from_static(b"plain-a"))),
            ),
            0,
            b"\x00\x00\x08plain-a",
        ),
        (
            Frame::new(
                0,
                Content::Announcement(TunnelAnnouncement::Removed("plain-a".to_owned())),
            ),
            0,
            b"\x00\x00\x0aplain-a",
        ),
        (Frame::new(1, Content::Error(EOF.to_owned())), 0, b"\x00\x02\x06EOF"),
        (Frame::new(1, Content::Pause), 0, b"\x00\x02\x0c"),
        (Frame::new(1, Content::Resume), 0, b"\x00\x02\x0e"),
    ] {
        assert_eq!(frame.encode(number), bytes, "{frame:?}");
        assert_eq!(Frame::decode(Bytes::from_static(bytes)), Ok(frame));
    }
    for value in [0, 1, -1, 63, 64, -65, i64::MAX, i64::MIN] {
        let mut bytes = BytesMut::new();
        put_varint(&mut bytes, value);
        assert_eq!(take_varint(&mut bytes.freeze()), Ok(value));
    }
}

#[test]
fn invalid_frames_are_refused() {
    for message in [
        &b""[..],
        b"\x04",
        b"\x04\x02\x02",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x02\x04\x00udp/h:1",
        b"\x00\x02\x04\x00tcp/\xff",
        b"\x00\x02\x04\x00::tcp/h:1",
        b"\x00\x02\x04\x00a::b::tcp/h:1",
    ] {
        assert!(Frame::decode(Bytes::copy_from_slice(message)).is_err(), "{message:?}");
    }
    let long = [&b"\x00\x02\x04\x00tcp/"[..], &[b'a'; 100]].concat();
    assert!(Frame::decode(Bytes::from(long)).is_err());
    let other = Frame::decode(Bytes::from_static(b"\x00\x02\x10x")).unwrap();
    assert_eq!(other.content, Content::Other);
}
