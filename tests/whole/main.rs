//! The program as a whole, over real sockets and real TLS.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod house;
