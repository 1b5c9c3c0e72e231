//! The messages between host and policy during a call, and access to the policy's memory.

use admittance_admission::FailureKind;
use bytes::BytesMut;
use wasmtime::{Caller, Extern, Memory, Trap};

use crate::store::{CallState, Violation};

pub(super) const MEMORY_EXPORT: &str = "memory";

#[derive(Default)]
pub(crate) struct MessageExchange {
    pub(super) operation: &'static str,
    pub(super) message: Vec<u8>,
    pub(super) response: Option<Vec<u8>>,
    pub(super) error: Option<String>,
    pub(super) host_answer: Vec<u8>,
    pub(super) host_failed: bool,
    pub(super) arguments: Vec<&'static str>,
    pub(super) input: BytesMut,
    /// The standard output of a WASI policy; `None` if it goes to the log.
    pub(super) output: Option<Vec<u8>>,
}

fn policy_memory(caller: &mut Caller<'_, CallState>) -> wasmtime::Result<Memory> {
    caller
        .get_export(MEMORY_EXPORT)
        .and_then(Extern::into_memory)
        .ok_or_else(|| wasmtime::format_err!("the policy's memory is not exported"))
}

pub(super) fn memory_and_state<'a>(
    caller: &'a mut Caller<'_, CallState>,
) -> wasmtime::Result<(&'a mut [u8], &'a mut CallState)> {
    Ok(policy_memory(caller)?.data_and_store_mut(caller))
}

fn byte_range(at: u32, length: usize) -> std::ops::Range<usize> {
    at as usize..(at as usize).saturating_add(length)
}

pub(super) fn put(memory: &mut [u8], at: u32, bytes: &[u8]) -> wasmtime::Result<()> {
    memory
        .get_mut(byte_range(at, bytes.len()))
        .ok_or(Trap::MemoryOutOfBounds)?
        .copy_from_slice(bytes);
    Ok(())
}

pub(super) fn slice(memory: &[u8], at: u32, length: u32) -> wasmtime::Result<&[u8]> {
    Ok(memory
        .get(byte_range(at, length as usize))
        .ok_or(Trap::MemoryOutOfBounds)?)
}

pub(super) fn read_u32(memory: &[u8], at: u32) -> wasmtime::Result<u32> {
    let bytes = slice(memory, at, 4)?.first_chunk().ok_or(Trap::MemoryOutOfBounds)?;
    Ok(u32::from_le_bytes(*bytes))
}

/// Copies bytes that a policy passes to the host. Fails if there are more than the limit `output` allows, which is the
/// maximum size of a plugin's response.
pub(super) fn copy_bytes(caller: &mut Caller<'_, CallState>, at: u32, length: u32) -> wasmtime::Result<Vec<u8>> {
    let (memory, state) = memory_and_state(caller)?;
    check_size_limit(length as usize, state.output)?;
    Ok(slice(memory, at, length)?.to_vec())
}

pub(super) fn copy_text(caller: &mut Caller<'_, CallState>, at: u32, length: u32) -> wasmtime::Result<String> {
    Ok(String::from_utf8(copy_bytes(caller, at, length)?)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

pub(super) fn check_size_limit(length: usize, limit: usize) -> wasmtime::Result<()> {
    if length <= limit {
        return Ok(());
    }
    Err(Violation::error(
        FailureKind::OutputTooLarge,
        format!("the plugin passed more than the limit of {limit} bytes to the host"),
    ))
}
