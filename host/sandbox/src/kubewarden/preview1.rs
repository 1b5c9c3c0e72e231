//! The part of WASI preview 1 that policies need: arguments, environment, clocks, randomness and standard streams.
//!
//! Policies have no files and no sockets. If a policy calls a function that needs them, the call of the policy fails
//! with `capability-denied`. A few of these functions, such as `fd_prestat_get`, are called by the start-up code of
//! many languages. They return the usual error of WASI instead, so that the policy can start.

use std::time::{Duration, UNIX_EPOCH};

use admittance_admission::Moment;
use wasmtime::{Caller, FuncType, Linker};
use wasmtime_wasi::{I32Exit, p2::bindings::random::random::Host as _, random::WasiRandomView as _};

use super::exchange::{check_size_limit, memory_and_state, put, read_u32, slice};
use crate::{
    capabilities::{denied_error, logging::Stream},
    store::CallState,
};

pub(super) const MODULE_NAME: &str = "wasi_snapshot_preview1";

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
const MAX_VECTORS: u32 = 1024;

/// The maximum size of one write to the log, in bytes; a program writes the rest with its next write.
const MAX_LOG_WRITE: usize = 16 << 10;

const STREAM_STATUS_SIZE: usize = 24;
const FILE_STATUS_SIZE: usize = 64;
const SUBSCRIPTION_SIZE: u32 = 48;
const EVENT_SIZE: u32 = 32;

type Address = u32;
type PolicyCaller<'a> = Caller<'a, CallState>;

pub(super) fn define_denied(linker: &mut Linker<CallState>, name: &str, function: FuncType) -> wasmtime::Result<()> {
    let message = format!(
        "the plugin called `{MODULE_NAME}.{name}`; policies have no files and no sockets, and no stage can grant them"
    );
    linker.func_new(MODULE_NAME, name, function, move |_, _, _| {
        Err(denied_error(message.clone()))
    })?;
    Ok(())
}

pub(super) fn define_functions(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker
        .func_wrap(
            MODULE_NAME,
            "args_sizes_get",
            |mut guest: PolicyCaller<'_>, count_address: Address, size_address: Address| {
                let arguments = guest.data().exchange.arguments.clone();
                put_sizes(&mut guest, &arguments, count_address, size_address)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "args_get",
            |mut guest: PolicyCaller<'_>, pointers_address: Address, texts_address: Address| {
                let arguments = guest.data().exchange.arguments.clone();
                put_texts(&mut guest, &arguments, pointers_address, texts_address)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "environ_sizes_get",
            |mut guest: PolicyCaller<'_>, count: Address, size: Address| {
                let environment = environment_texts(guest.data());
                put_sizes(&mut guest, &environment, count, size)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "environ_get",
            |mut guest: PolicyCaller<'_>, pointers: Address, texts: Address| {
                let environment = environment_texts(guest.data());
                put_texts(&mut guest, &environment, pointers, texts)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "clock_res_get",
            |mut guest: PolicyCaller<'_>, clock: u32, address: Address| {
                put_value(&mut guest, clock_time(clock, Duration::ZERO).map(|_| 1_u64), address)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "clock_time_get",
            |mut guest: PolicyCaller<'_>, clock: u32, _precision: u64, at: Address| {
                let time = clock_time(clock, guest.data().elapsed());
                put_value(&mut guest, time, at)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "random_get",
            |mut guest: PolicyCaller<'_>, at: Address, length: u32| {
                let (memory, state) = memory_and_state(&mut guest)?;
                put(memory, at, &state.random().get_random_bytes(length.into())?)?;
                wasmtime::Result::Ok(SUCCESS)
            },
        )?
        .func_wrap(MODULE_NAME, "sched_yield", || SUCCESS)?
        .func_wrap(MODULE_NAME, "proc_exit", |code: u32| -> wasmtime::Result<()> {
            Err(wasmtime::Error::new(I32Exit(code.cast_signed())))
        })?;
    define_streams(linker)?;
    linker.func_wrap_async(
        MODULE_NAME,
        "poll_oneoff",
        |mut guest, (subscriptions, events, count, event_count_address): (Address, Address, u32, Address)| {
            Box::new(async move { poll(&mut guest, subscriptions, events, count, event_count_address).await })
        },
    )?;
    Ok(())
}

fn define_streams(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker
        .func_wrap(MODULE_NAME, "fd_read", read_input)?
        .func_wrap(MODULE_NAME, "fd_write", write)?
        .func_wrap(MODULE_NAME, "fd_close", check_stream)?
        .func_wrap(MODULE_NAME, "fd_fdstat_set_flags", |descriptor: u32, _flags: u32| {
            check_stream(descriptor)
        })?
        .func_wrap(
            MODULE_NAME,
            "fd_seek",
            |descriptor: u32, _offset: u64, _from: u32, _at: Address| match check_stream(descriptor) {
                SUCCESS => NOT_A_FILE,
                error => error,
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "fd_fdstat_get",
            |mut guest: PolicyCaller<'_>, descriptor: u32, address: Address| {
                let mut status = [0; STREAM_STATUS_SIZE];
                status[0] = CHARACTER_DEVICE;
                // The status claims all rights for the stream, and for files that are opened from it. This is harmless,
                // because a policy can open no files.
                status[8..].fill(0xff);
                put_stream_status(&mut guest, descriptor, address, &status)
            },
        )?
        .func_wrap(
            MODULE_NAME,
            "fd_filestat_get",
            |mut guest: PolicyCaller<'_>, descriptor: u32, at: Address| {
                let mut status = [0; FILE_STATUS_SIZE];
                status[16] = CHARACTER_DEVICE;
                put_stream_status(&mut guest, descriptor, at, &status)
            },
        )?
        // Start-up code asks for one pre-opened directory after the other until it gets an error.
        .func_wrap(MODULE_NAME, "fd_prestat_get", |_descriptor: u32, _at: Address| {
            BAD_DESCRIPTOR
        })?
        .func_wrap(
            MODULE_NAME,
            "fd_prestat_dir_name",
            |_descriptor: u32, _at: Address, _length: u32| BAD_DESCRIPTOR,
        )?;
    Ok(())
}

fn check_stream(descriptor: u32) -> Errno {
    if descriptor <= ERROR { SUCCESS } else { BAD_DESCRIPTOR }
}

fn put_stream_status(
    guest: &mut PolicyCaller<'_>,
    descriptor: u32,
    address: Address,
    status: &[u8],
) -> wasmtime::Result<Errno> {
    let errno = check_stream(descriptor);
    if errno == SUCCESS {
        put(memory_and_state(guest)?.0, address, status)?;
    }
    Ok(errno)
}

fn environment_texts(state: &CallState) -> Vec<String> {
    if state.preparing {
        return Vec::new();
    }
    let values = state.grants.environment.iter();
    values.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Writes into the guest's memory the number of strings, and their total size with the terminating zeros.
fn put_sizes(
    guest: &mut PolicyCaller<'_>,
    texts: &[impl AsRef<str>],
    count_address: Address,
    size_address: Address,
) -> wasmtime::Result<Errno> {
    let (memory, _) = memory_and_state(guest)?;
    let total: usize = texts.iter().map(|text| text.as_ref().len() + 1).sum();
    put(memory, count_address, &u32::try_from(texts.len())?.to_le_bytes())?;
    put(memory, size_address, &u32::try_from(total)?.to_le_bytes())?;
    Ok(SUCCESS)
}

/// Writes into the guest's memory the strings with their terminating zeros, and a pointer to each string.
fn put_texts(
    guest: &mut PolicyCaller<'_>,
    texts: &[impl AsRef<str>],
    mut pointers: Address,
    mut text_address: Address,
) -> wasmtime::Result<Errno> {
    let (memory, _) = memory_and_state(guest)?;
    for text in texts {
        let text: &str = text.as_ref();
        put(memory, pointers, &text_address.to_le_bytes())?;
        put(memory, text_address, text.as_bytes())?;
        let end = text_address.saturating_add(u32::try_from(text.len())?);
        put(memory, end, &[0])?;
        (pointers, text_address) = (pointers.saturating_add(4), end.saturating_add(1));
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

fn put_value(guest: &mut PolicyCaller<'_>, value: Result<u64, Errno>, address: Address) -> wasmtime::Result<Errno> {
    match value {
        Ok(value) => put(memory_and_state(guest)?.0, address, &value.to_le_bytes()).map(|()| SUCCESS),
        Err(errno) => Ok(errno),
    }
}

fn read_vectors(memory: &[u8], address: Address, count: u32) -> wasmtime::Result<Vec<(Address, u32)>> {
    (0..count.min(MAX_VECTORS))
        .map(|index| {
            let vector = address.saturating_add(index * 8);
            Ok((read_u32(memory, vector)?, read_u32(memory, vector.saturating_add(4))?))
        })
        .collect()
}

fn read_input(
    mut guest: PolicyCaller<'_>,
    descriptor: u32,
    vectors_address: Address,
    count: u32,
    size_address: Address,
) -> wasmtime::Result<Errno> {
    if descriptor != INPUT {
        return Ok(BAD_DESCRIPTOR);
    }
    let (memory, state) = memory_and_state(&mut guest)?;
    let mut total = 0_u32;
    for (buffer, length) in read_vectors(memory, vectors_address, count)? {
        let input = &mut state.exchange.input;
        let part = input.split_to(input.len().min(length as usize));
        put(memory, buffer, &part)?;
        total = total.saturating_add(u32::try_from(part.len())?);
    }
    put(memory, size_address, &total.to_le_bytes())?;
    Ok(SUCCESS)
}

fn write(
    mut guest: PolicyCaller<'_>,
    descriptor: u32,
    vectors_address: Address,
    count: u32,
    size_address: Address,
) -> wasmtime::Result<Errno> {
    let stream = match descriptor {
        OUTPUT => Stream::Out,
        ERROR => Stream::Err,
        _ => return Ok(BAD_DESCRIPTOR),
    };
    let (memory, state) = memory_and_state(&mut guest)?;
    let mut total = 0_usize;
    for (buffer, length) in read_vectors(memory, vectors_address, count)? {
        let bytes = slice(memory, buffer, length)?;
        match &mut state.exchange.output {
            Some(output) if stream == Stream::Out => {
                check_size_limit(output.len().saturating_add(bytes.len()), state.output)?;
                output.extend_from_slice(bytes);
                total = total.saturating_add(bytes.len());
            }
            _ => {
                let part = bytes.get(..MAX_LOG_WRITE.saturating_sub(total)).unwrap_or(bytes);
                state.log.write(stream, part);
                total = total.saturating_add(part.len());
                if total >= MAX_LOG_WRITE {
                    break;
                }
            }
        }
    }
    put(memory, size_address, &u32::try_from(total)?.to_le_bytes())?;
    Ok(SUCCESS)
}

/// Waits until the first of the events occurs. Standard streams are always ready, so only clocks need a wait.
async fn poll(
    guest: &mut PolicyCaller<'_>,
    subscriptions: Address,
    events: Address,
    count: u32,
    event_count_address: Address,
) -> wasmtime::Result<Errno> {
    if count == 0 || count > MAX_VECTORS {
        return Ok(INVALID);
    }
    let (memory, state) = memory_and_state(guest)?;
    let mut waits = Vec::new();
    for index in 0..count {
        let address = subscriptions.saturating_add(index * SUBSCRIPTION_SIZE);
        let record = slice(memory, address, SUBSCRIPTION_SIZE)?;
        let read_word = |offset: usize| {
            record
                .get(offset..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        let kind = record.get(8).copied().unwrap_or_default();
        let wait = match kind {
            0 => {
                let (clock, timeout, is_absolute) = (read_word(16) as u32, read_word(24), read_word(40) & 1 == 1);
                let now = if is_absolute {
                    clock_time(clock, state.elapsed()).unwrap_or_default()
                } else {
                    0
                };
                Duration::from_nanos(timeout.saturating_sub(now))
            }
            _ => Duration::ZERO,
        };
        waits.push((wait, read_word(0), kind));
    }
    let shortest_wait = waits.iter().map(|(wait, ..)| *wait).min().unwrap_or_default();
    if !shortest_wait.is_zero() {
        // If the deadline of the call passes during this wait, the call is ended here.
        tokio::time::sleep(shortest_wait).await;
    }
    let (memory, _) = memory_and_state(guest)?;
    let mut occurred_count = 0_u32;
    for (_, user_data, kind) in waits.iter().filter(|(wait, ..)| *wait <= shortest_wait) {
        let mut event = [0; EVENT_SIZE as usize];
        event[..8].copy_from_slice(&user_data.to_le_bytes());
        event[10] = *kind;
        put(memory, events.saturating_add(occurred_count * EVENT_SIZE), &event)?;
        occurred_count += 1;
    }
    put(memory, event_count_address, &occurred_count.to_le_bytes())?;
    Ok(SUCCESS)
}
