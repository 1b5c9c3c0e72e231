//! Lets the session of another client expire.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Ends a session as if ZooKeeper had not heard from its client for too long. `address` may belong to any server of the
/// ensemble.
///
/// The function connects to the server with the id of this session, and closes the session. ZooKeeper requires the
/// password of the session, and derives it from the number of the session (`generatePasswd` in ZooKeeper's
/// `ZooKeeperServer`).
pub(crate) fn expire(address: &str, session: i64) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes()); // The protocol's version.
    connect.extend(0_i64.to_be_bytes()); // The last change that was seen.
    connect.extend(10_000_i32.to_be_bytes()); // The timeout, in milliseconds.
    connect.extend(session.to_be_bytes());
    let password = session_password(session);
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password);
    connect.push(0); // Not only for reading.
    send(&mut stream, &connect);
    let reply = receive(&mut stream);
    assert_eq!(reply[8..16], session.to_be_bytes(), "there is no session {session:#x}");
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
    send(&mut stream, &close);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.is_empty(), "the session {session:#x} was not closed");
}

/// Returns the password that ZooKeeper gives to the session with this ID: 16 bytes of Java's `Random`, with a seed that
/// ZooKeeper makes from the ID.
fn session_password(session: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ 0xB341_5C00).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for bytes in password.chunks_exact_mut(4) {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        bytes.copy_from_slice(&((seed >> 16) as u32).to_le_bytes());
    }
    password
}

fn send(stream: &mut TcpStream, body: &[u8]) {
    let length = i32::try_from(body.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], body].concat()).unwrap();
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}
