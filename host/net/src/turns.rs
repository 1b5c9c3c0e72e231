//! Limits how much a connection reads or writes before other connections of its thread get their turn.
//!
//! A peer that reads as fast as the program writes, or the other way round, never makes a connection wait. Without these
//! limits a body of 16 MiB would keep the thread for several milliseconds.

use std::{
    io::IoSlice,
    task::{Context, Poll},
};

use tokio::task::coop;

/// The bytes that cost a unit of tokio's cooperative budget, in addition to the unit of each operation. A task has 128 units
/// until it yields: 256 KiB, which takes some 0.1 ms.
const BYTES_PER_UNIT: usize = 2 << 10;

/// The most that one system call writes, in bytes. The kernel would take up to the size of its buffer, which is several MiB.
const LARGEST_WRITE: usize = 128 << 10;

/// The most slices that one system call writes.
const SLICES: usize = 16;

/// Uses up units of the task's budget. The operation that follows waits when there are none left.
pub(crate) fn spend(cx: &mut Context<'_>, units: usize) {
    for _ in 0..units {
        match coop::poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            Poll::Pending => break,
        }
    }
}

/// Uses up what this many bytes cost.
pub(crate) fn spend_bytes(cx: &mut Context<'_>, bytes: usize) {
    spend(cx, bytes / BYTES_PER_UNIT);
}

/// The part of these bytes that one call writes.
pub(crate) fn one_write(bytes: &[u8]) -> &[u8] {
    bytes.get(..LARGEST_WRITE).unwrap_or(bytes)
}

/// The part of these slices that one call writes, in an array and its used length.
pub(crate) fn one_vectored_write<'a>(slices: &'a [IoSlice<'_>]) -> ([IoSlice<'a>; SLICES], usize) {
    let mut limited = [IoSlice::new(&[]); SLICES];
    let (mut used, mut rest) = (0, LARGEST_WRITE);
    for (to, from) in limited.iter_mut().zip(slices) {
        if rest == 0 {
            break;
        }
        let part = from.get(..rest).unwrap_or(from);
        rest -= part.len();
        *to = IoSlice::new(part);
        used += 1;
    }
    (limited, used)
}
