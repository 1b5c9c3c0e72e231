//! The part of WASI preview 1 that policies need: arguments, environment, clocks, randomness and standard streams.
//!
//! Policies have no files and no sockets. If a policy calls a function that needs them, the call of the policy fails
//! with `capability-denied`. A few of these functions, such as `fd_prestat_get`, are called by the start-up code of
//! many languages. They return the usual error of WASI instead, so that the policy can start.

use std::time::{Duration, UNIX_EPOCH};

use admittance_admission::Moment;
use wasmtime::{Caller, FuncType, Linker};
use wasmtime_wasi::{I32Exit, p2::bindings::random::random::Host as _, random::WasiRandomView as _};

use super::exchange::{fits, number, parts, put, slice};
use crate::{
    capabilities::{denied, logging::Stream},
    store::CallState,
};

pub(super) const MODULE: &str = "wasi_snapshot_preview1";

/// The result code of a function of WASI; 0 means success.
type Errno = u32;

const SUCCESS: Errno = 0;
const BAD_DESCRIPTOR: Errno = 8;
const INVALID: Errno = 28;
const NOT_A_FILE: Errno = 70;

const INPUT: u32 = 0;
const OUTPUT: u32 = 1;
const ERROR: u32 = 2;

const CHARACTER_DEVICE: u8 = 2;

/// The maximum number of buffers in one read or write, and of events for which one `poll_oneoff` waits.
const VECTORS_MAX: u32 = 1024;

/// The maximum size of one write to the log, in bytes; a program writes the rest with its next write.
const LOGGED_MAX: usize = 16 << 10;

const STATUS: usize = 24;
const FILE_STATUS: usize = 64;
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

type At = u32;
type PolicyCaller<'a> = Caller<'a, CallState>;

pub(super) fn deny(linker: &mut Linker<CallState>, name: &str, function: FuncType) -> wasmtime::Result<()> {
    let message = format!(
        "the plugin called `{MODULE}.{name}`; policies have no files and no sockets, and no stage can grant them"
    );
    linker.func_new(MODULE, name, function, move |_, _, _| Err(denied(message.clone())))?;
    Ok(())
}

pub(super) fn define(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker
        .func_wrap(
            MODULE,
            "args_sizes_get",
            |mut guest: PolicyCaller<'_>, count: At, size: At| {
                let arguments = guest.data().exchange.arguments.clone();
                put_sizes(&mut guest, &arguments, count, size)
            },
        )?
        .func_wrap(
            MODULE,
            "args_get",
            |mut guest: PolicyCaller<'_>, pointers: At, texts: At| {
                let arguments = guest.data().exchange.arguments.clone();
                put_texts(&mut guest, &arguments, pointers, texts)
            },
        )?
        .func_wrap(
            MODULE,
            "environ_sizes_get",
            |mut guest: PolicyCaller<'_>, count: At, size: At| {
                let environment = environment(guest.data());
                put_sizes(&mut guest, &environment, count, size)
            },
        )?
        .func_wrap(
            MODULE,
            "environ_get",
            |mut guest: PolicyCaller<'_>, pointers: At, texts: At| {
                let environment = environment(guest.data());
                put_texts(&mut guest, &environment, pointers, texts)
            },
        )?
        .func_wrap(
            MODULE,
            "clock_res_get",
            |mut guest: PolicyCaller<'_>, clock: u32, at: At| {
                answer(&mut guest, clock_time(clock, Duration::ZERO).map(|_| 1_u64), at)
            },
        )?
        .func_wrap(
            MODULE,
            "clock_time_get",
            |mut guest: PolicyCaller<'_>, clock: u32, _precision: u64, at: At| {
                let time = clock_time(clock, guest.data().elapsed());
                answer(&mut guest, time, at)
            },
        )?
        .func_wrap(
            MODULE,
            "random_get",
            |mut guest: PolicyCaller<'_>, at: At, length: u32| {
                let (memory, state) = parts(&mut guest)?;
                put(memory, at, &state.random().get_random_bytes(length.into())?)?;
                wasmtime::Result::Ok(SUCCESS)
            },
        )?
        .func_wrap(MODULE, "sched_yield", || SUCCESS)?
        .func_wrap(MODULE, "proc_exit", |code: u32| -> wasmtime::Result<()> {
            Err(wasmtime::Error::new(I32Exit(code.cast_signed())))
        })?;
    define_streams(linker)?;
    linker.func_wrap_async(
        MODULE,
        "poll_oneoff",
        |mut guest, (subscriptions, events, count, written): (At, At, u32, At)| {
            Box::new(async move { poll(&mut guest, subscriptions, events, count, written).await })
        },
    )?;
    Ok(())
}

fn define_streams(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker
        .func_wrap(MODULE, "fd_read", read)?
        .func_wrap(MODULE, "fd_write", write)?
        .func_wrap(MODULE, "fd_close", is_stream)?
        .func_wrap(MODULE, "fd_fdstat_set_flags", |descriptor: u32, _flags: u32| {
            is_stream(descriptor)
        })?
        .func_wrap(
            MODULE,
            "fd_seek",
            |descriptor: u32, _offset: u64, _from: u32, _at: At| match is_stream(descriptor) {
                SUCCESS => NOT_A_FILE,
                error => error,
            },
        )?
        .func_wrap(
            MODULE,
            "fd_fdstat_get",
            |mut guest: PolicyCaller<'_>, descriptor: u32, at: At| {
                let mut status = [0; STATUS];
                status[0] = CHARACTER_DEVICE;
                // The status claims all rights for the stream, and for files that are opened from it. This is harmless,
                // because a policy can open no files.
                status[8..].fill(0xff);
                stream_status(&mut guest, descriptor, at, &status)
            },
        )?
        .func_wrap(
            MODULE,
            "fd_filestat_get",
            |mut guest: PolicyCaller<'_>, descriptor: u32, at: At| {
                let mut status = [0; FILE_STATUS];
                status[16] = CHARACTER_DEVICE;
                stream_status(&mut guest, descriptor, at, &status)
            },
        )?
        // Start-up code asks for one pre-opened directory after the other until it gets an error.
        .func_wrap(MODULE, "fd_prestat_get", |_descriptor: u32, _at: At| BAD_DESCRIPTOR)?
        .func_wrap(
            MODULE,
            "fd_prestat_dir_name",
            |_descriptor: u32, _at: At, _length: u32| BAD_DESCRIPTOR,
        )?;
    Ok(())
}

fn is_stream(descriptor: u32) -> Errno {
    if descriptor <= ERROR { SUCCESS } else { BAD_DESCRIPTOR }
}

fn stream_status(guest: &mut PolicyCaller<'_>, descriptor: u32, at: At, status: &[u8]) -> wasmtime::Result<Errno> {
    let errno = is_stream(descriptor);
    if errno == SUCCESS {
        put(parts(guest)?.0, at, status)?;
    }
    Ok(errno)
}

fn environment(state: &CallState) -> Vec<String> {
    if state.preparing {
        return Vec::new();
    }
    let values = state.grants.environment.iter();
    values.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Writes into the guest's memory the number of strings, and their total size with the terminating zeros.
fn put_sizes(guest: &mut PolicyCaller<'_>, texts: &[impl AsRef<str>], count: At, size: At) -> wasmtime::Result<Errno> {
    let (memory, _) = parts(guest)?;
    let total: usize = texts.iter().map(|text| text.as_ref().len() + 1).sum();
    put(memory, count, &u32::try_from(texts.len())?.to_le_bytes())?;
    put(memory, size, &u32::try_from(total)?.to_le_bytes())?;
    Ok(SUCCESS)
}

/// Writes into the guest's memory the strings with their terminating zeros, and a pointer to each string.
fn put_texts(
    guest: &mut PolicyCaller<'_>,
    texts: &[impl AsRef<str>],
    mut pointers: At,
    mut at: At,
) -> wasmtime::Result<Errno> {
    let (memory, _) = parts(guest)?;
    for text in texts {
        let text: &str = text.as_ref();
        put(memory, pointers, &at.to_le_bytes())?;
        put(memory, at, text.as_bytes())?;
        let end = at.saturating_add(u32::try_from(text.len())?);
        put(memory, end, &[0])?;
        (pointers, at) = (pointers.saturating_add(4), end.saturating_add(1));
    }
    Ok(SUCCESS)
}

/// Returns the time of a clock in nanoseconds. `elapsed` is the time since the start of the call.
fn clock_time(clock: u32, elapsed: Duration) -> Result<u64, Errno> {
    let time = match clock {
        0 => Moment::now().0.duration_since(UNIX_EPOCH).unwrap_or_default(),
        // Clock 1 is monotonic, and starts with the call. Clocks 2 and 3 should measure processor time, but they get
        // the same value as clock 1, which is simpler.
        1..=3 => elapsed,
        _ => return Err(INVALID),
    };
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn answer(guest: &mut PolicyCaller<'_>, value: Result<u64, Errno>, at: At) -> wasmtime::Result<Errno> {
    match value {
        Ok(value) => put(parts(guest)?.0, at, &value.to_le_bytes()).map(|()| SUCCESS),
        Err(errno) => Ok(errno),
    }
}

fn vectors(memory: &[u8], at: At, count: u32) -> wasmtime::Result<Vec<(At, u32)>> {
    (0..count.min(VECTORS_MAX))
        .map(|index| {
            let vector = at.saturating_add(index * 8);
            Ok((number(memory, vector)?, number(memory, vector.saturating_add(4))?))
        })
        .collect()
}

fn read(mut guest: PolicyCaller<'_>, descriptor: u32, at: At, count: u32, size: At) -> wasmtime::Result<Errno> {
    if descriptor != INPUT {
        return Ok(BAD_DESCRIPTOR);
    }
    let (memory, state) = parts(&mut guest)?;
    let mut total = 0_u32;
    for (buffer, length) in vectors(memory, at, count)? {
        let input = &mut state.exchange.input;
        let part = input.split_to(input.len().min(length as usize));
        put(memory, buffer, &part)?;
        total = total.saturating_add(u32::try_from(part.len())?);
    }
    put(memory, size, &total.to_le_bytes())?;
    Ok(SUCCESS)
}

fn write(mut guest: PolicyCaller<'_>, descriptor: u32, at: At, count: u32, size: At) -> wasmtime::Result<Errno> {
    let stream = match descriptor {
        OUTPUT => Stream::Out,
        ERROR => Stream::Err,
        _ => return Ok(BAD_DESCRIPTOR),
    };
    let (memory, state) = parts(&mut guest)?;
    let mut total = 0_usize;
    for (buffer, length) in vectors(memory, at, count)? {
        let bytes = slice(memory, buffer, length)?;
        match &mut state.exchange.output {
            Some(output) if stream == Stream::Out => {
                fits(output.len().saturating_add(bytes.len()), state.output)?;
                output.extend_from_slice(bytes);
                total = total.saturating_add(bytes.len());
            }
            _ => {
                let part = bytes.get(..LOGGED_MAX.saturating_sub(total)).unwrap_or(bytes);
                state.log.write(stream, part);
                total = total.saturating_add(part.len());
                if total >= LOGGED_MAX {
                    break;
                }
            }
        }
    }
    put(memory, size, &u32::try_from(total)?.to_le_bytes())?;
    Ok(SUCCESS)
}

/// Waits until the first of the events occurs. Standard streams are always ready, so only clocks need a wait.
async fn poll(
    guest: &mut PolicyCaller<'_>,
    subscriptions: At,
    events: At,
    count: u32,
    event_count_address: At,
) -> wasmtime::Result<Errno> {
    if count == 0 || count > VECTORS_MAX {
        return Ok(INVALID);
    }
    let (memory, state) = parts(guest)?;
    let mut waits = Vec::new();
    for index in 0..count {
        let address = subscriptions.saturating_add(index * SUBSCRIPTION);
        let record = slice(memory, address, SUBSCRIPTION)?;
        let word = |offset: usize| {
            record
                .get(offset..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        let kind = record.get(8).copied().unwrap_or_default();
        let wait = match kind {
            0 => {
                let (clock, timeout, is_absolute) = (word(16) as u32, word(24), word(40) & 1 == 1);
                let now = if is_absolute {
                    clock_time(clock, state.elapsed()).unwrap_or_default()
                } else {
                    0
                };
                Duration::from_nanos(timeout.saturating_sub(now))
            }
            _ => Duration::ZERO,
        };
        waits.push((wait, word(0), kind));
    }
    let shortest_wait = waits.iter().map(|(wait, ..)| *wait).min().unwrap_or_default();
    if !shortest_wait.is_zero() {
        // If the deadline of the call passes during this wait, the call is ended here.
        tokio::time::sleep(shortest_wait).await;
    }
    let (memory, _) = parts(guest)?;
    let mut occurred_count = 0_u32;
    for (_, user_data, kind) in waits.iter().filter(|(wait, ..)| *wait <= shortest_wait) {
        let mut event = [0; EVENT as usize];
        event[..8].copy_from_slice(&user_data.to_le_bytes());
        event[10] = *kind;
        put(memory, events.saturating_add(occurred_count * EVENT), &event)?;
        occurred_count += 1;
    }
    put(memory, event_count_address, &occurred_count.to_le_bytes())?;
    Ok(SUCCESS)
}
