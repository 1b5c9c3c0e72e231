use std::io;

use admittance_admission::{Failure, FailureKind};
use rustix::io::Errno;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::store::{CallState, Violation};

const MAX_STDERR_TAIL: usize = 500;

/// The text of wasmtime's error for a guest that passes too much data to the host. The type of the error is private, so
/// only this text identifies the error. A test checks that wasmtime still uses it.
const HOSTCALL_FUEL_ERROR: &str = "fuel allocated for hostcalls has been exhausted";

pub(crate) fn failure_from_error(error: &wasmtime::Error, state: &CallState) -> Failure {
    if let Some(violation) = error.downcast_ref::<Violation>() {
        return Failure::new(violation.kind, violation.message.clone());
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Failure::new(FailureKind::Overloaded, format!("no room for the call: {error}"));
    }
    if let Some(failure) = exhaustion_failure(error) {
        return failure;
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        let message = format!("the plugin exited with exit code {}{}", exit.0, stderr_suffix(state));
        return Failure::new(FailureKind::Trap, message);
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return Failure::new(FailureKind::Trap, trap_message(*trap, state));
    }
    let text = error.root_cause().to_string();
    if text.contains(HOSTCALL_FUEL_ERROR) {
        return Failure::new(
            FailureKind::OutputTooLarge,
            format!(
                "the plugin passed more than the limit of {} bytes to the host",
                state.output
            ),
        );
    }
    if error.is::<WasmBacktrace>() {
        // The error has a backtrace, so it occurred while the guest was running: the guest called a function of the
        // host, which refused the arguments.
        let message = format!("a function of the host failed: {text}{}", stderr_suffix(state));
        return Failure::new(FailureKind::Trap, message);
    }
    // The guest had returned a value that violates the component model, such as a string that is not UTF-8.
    Failure::new(
        FailureKind::InvalidResponse,
        format!("the plugin's response is not valid: {text}"),
    )
}

fn exhaustion_failure(error: &wasmtime::Error) -> Option<Failure> {
    error.chain().find_map(|cause| {
        let errno = cause.downcast_ref::<Errno>().map(|errno| io::Error::from(*errno));
        Failure::of_exhaustion(errno.as_ref().or_else(|| cause.downcast_ref())?)
    })
}

fn trap_message(trap: Trap, state: &CallState) -> String {
    match trap {
        Trap::StackOverflow => "stack overflow in the plugin".to_owned(),
        Trap::UnreachableCodeReached => match stderr_suffix(state) {
            words if words.is_empty() => "the plugin panicked or aborted (`unreachable`) without a message".to_owned(),
            words => format!("the plugin panicked or aborted{words}"),
        },
        // Toolchains put the stack at the start of the memory, and it grows towards address 0. A stack that overflows
        // goes below that address, which is out of bounds.
        Trap::MemoryOutOfBounds => format!(
            "the plugin accessed memory out of bounds, possibly by a stack overflow{}",
            stderr_suffix(state)
        ),
        trap => format!("the plugin trapped: {trap}{}", stderr_suffix(state)),
    }
}

/// Returns a colon and the end of the plugin's standard error, where a panic writes its message.
fn stderr_suffix(state: &CallState) -> String {
    let tail = state.log.stderr_tail();
    // Rust ends a panic message with a hint on `RUST_BACKTRACE`. The hint does not apply to plugins, so it is left out.
    let text = tail
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE"))
        .collect::<Vec<_>>()
        .join("\n");
    let skip = text.chars().count().saturating_sub(MAX_STDERR_TAIL);
    let words: String = text.chars().skip(skip).collect();
    if words.is_empty() { words } else { format!(": {words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_system_resources_are_reported_as_overload() {
        let of = |error: wasmtime::Error| exhaustion_failure(&error).map(|failure| failure.kind);
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let bare = wasmtime::Error::from(errno).context("no memory for the instance");
            assert_eq!(of(bare), Some(FailureKind::Overloaded), "{errno}");
            let wrapped = wasmtime::Error::from(io::Error::from(errno)).context("no memory for the instance");
            assert_eq!(of(wrapped), Some(FailureKind::Overloaded), "{errno}");
        }
        assert_eq!(of(wasmtime::Error::from(Errno::ACCESS)), None);
        assert_eq!(of(wasmtime::format_err!("Too many open files")), None);
    }
}
