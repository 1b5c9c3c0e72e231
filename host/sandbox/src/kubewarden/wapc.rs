//! waPC 2: the host calls one function of the guest, and each side fetches messages by calling the other's functions.

use tracing::Level;
use wasmtime::{Caller, Instance, InstancePre, Linker, Store};
use wasmtime_wasi::I32Exit;

use super::{
    exchange::{MessageExchange, copy_bytes, copy_text, memory_and_state, put},
    host_calls,
};
use crate::store::CallState;

pub(super) const MODULE_NAME: &str = "wapc";

pub(super) const GUEST_CALL: &str = "__guest_call";

pub(super) const START_FUNCTION: &str = "_start";

/// The names of an instance's start-up functions, in the order in which they are called. All are optional.
const START_FUNCTIONS: [&str; 3] = ["_initialize", START_FUNCTION, "wapc_init"];

type Pointer = u32;
type Length = u32;

pub(super) fn define_functions(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE_NAME,
        "__guest_request",
        |mut caller: Caller<'_, CallState>, operation: Pointer, message: Pointer| {
            let (memory, state) = memory_and_state(&mut caller)?;
            put(memory, operation, state.exchange.operation.as_bytes())?;
            put(memory, message, &state.exchange.message)
        },
    )?;
    linker.func_wrap(
        MODULE_NAME,
        "__guest_response",
        |mut caller: Caller<'_, CallState>, at: Pointer, length: Length| -> wasmtime::Result<()> {
            caller.data_mut().exchange.response = Some(copy_bytes(&mut caller, at, length)?);
            Ok(())
        },
    )?;
    linker.func_wrap(
        MODULE_NAME,
        "__guest_error",
        |mut caller: Caller<'_, CallState>, at: Pointer, length: Length| -> wasmtime::Result<()> {
            caller.data_mut().exchange.error = Some(copy_text(&mut caller, at, length)?);
            Ok(())
        },
    )?;
    linker.func_wrap(
        MODULE_NAME,
        "__console_log",
        |mut caller: Caller<'_, CallState>, at: Pointer, length: Length| -> wasmtime::Result<()> {
            let message = copy_text(&mut caller, at, length)?;
            caller.data().log.log_line(Level::INFO, "console", &message);
            Ok(())
        },
    )?;
    linker.func_wrap_async(MODULE_NAME, "__host_call", |mut caller, arguments| {
        Box::new(async move { host_calls::answer_call(&mut caller, arguments).await.map(u32::from) })
    })?;
    for (length, copy, is_error) in [
        ("__host_response_len", "__host_response", false),
        ("__host_error_len", "__host_error", true),
    ] {
        linker.func_wrap(MODULE_NAME, length, move |caller: Caller<'_, CallState>| -> Length {
            u32::try_from(host_answer(&caller.data().exchange, is_error).len()).unwrap_or(u32::MAX)
        })?;
        linker.func_wrap(
            MODULE_NAME,
            copy,
            move |mut caller: Caller<'_, CallState>, at: Pointer| {
                let (memory, state) = memory_and_state(&mut caller)?;
                put(memory, at, host_answer(&state.exchange, is_error))
            },
        )?;
    }
    Ok(())
}

fn host_answer(exchange: &MessageExchange, is_error: bool) -> &[u8] {
    if exchange.host_failed == is_error {
        &exchange.host_answer
    } else {
        &[]
    }
}

pub(super) async fn new_instance(
    store: &mut Store<CallState>,
    pre: &InstancePre<CallState>,
    is_started: bool,
) -> wasmtime::Result<Instance> {
    let instance = pre.instantiate_async(&mut *store).await?;
    store.data_mut().record_guest_start();
    if !is_started {
        run_start_functions(store, instance).await?;
    }
    Ok(instance)
}

async fn run_start_functions(store: &mut Store<CallState>, instance: Instance) -> wasmtime::Result<()> {
    for name in START_FUNCTIONS {
        let Some(function) = instance.get_func(&mut *store, name) else {
            continue;
        };
        let function = function.typed::<(), ()>(&*store)?;
        match function.call_async(&mut *store, ()).await {
            // TinyGo's start-up code ends with the exit code 0. This is not a failure, because the functions of the
            // instance can be called nevertheless.
            Err(error) if error.downcast_ref().is_some_and(|I32Exit(code)| *code == 0) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Calls an operation of the policy. The inner result is what the policy returns: its response, or its own error. An
/// outer error means that the call failed.
pub(super) async fn call_operation(
    store: &mut Store<CallState>,
    instance: Instance,
    operation: &'static str,
    message: Vec<u8>,
) -> wasmtime::Result<Result<Vec<u8>, String>> {
    let function = instance.get_typed_func::<(Length, Length), i32>(&mut *store, GUEST_CALL)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len());
    let lengths = (length(operation.as_bytes())?, length(&message)?);
    store.data_mut().exchange = MessageExchange {
        operation,
        message,
        ..MessageExchange::default()
    };
    let succeeded = function.call_async(&mut *store, lengths).await? == 1;
    let exchange = std::mem::take(&mut store.data_mut().exchange);
    Ok(if succeeded {
        Ok(exchange.response.unwrap_or_default())
    } else {
        Err(exchange
            .error
            .unwrap_or_else(|| format!("`{operation}` failed without a message")))
    })
}
