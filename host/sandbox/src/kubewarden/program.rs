//! WASI policies: programs that read a message from standard input and write the response to standard output.

use admittance_admission::FailureKind;
use wasmtime::{Caller, FuncType, InstancePre, Linker, Store, ValType};
use wasmtime_wasi::I32Exit;

use super::{exchange::MessageExchange, host_calls, wapc::START_FUNCTION};
use crate::store::{CallState, Violation};

/// The first argument of the policy's program, which is by convention its own name.
const PROGRAM_NAME: &str = "policy.wasm";

/// The imported functions, as (module, name), with which the SDKs for Go and JavaScript make host calls.
const HOST_CALL_FUNCTIONS: [(&str, &str); 2] = [("host", "call"), ("kubewarden:javy/host", "call")];

pub(super) async fn run_program(
    store: &mut Store<CallState>,
    pre: &InstancePre<CallState>,
    argument: &'static str,
    input: Vec<u8>,
) -> wasmtime::Result<Vec<u8>> {
    store.data_mut().exchange = MessageExchange {
        arguments: vec![PROGRAM_NAME, argument],
        input: bytes::Bytes::from(input).into(),
        output: Some(Vec::new()),
        ..MessageExchange::default()
    };
    let instance = pre.instantiate_async(&mut *store).await?;
    store.data_mut().record_guest_start();
    let start = instance.get_typed_func::<(), ()>(&mut *store, START_FUNCTION)?;
    match start.call_async(&mut *store, ()).await {
        Err(error) if error.downcast_ref().is_some_and(|I32Exit(code)| *code == 0) => {}
        result => result?,
    }
    let exchange = std::mem::take(&mut store.data_mut().exchange);
    Ok(exchange.output.unwrap_or_default())
}

/// Defines the import if it is the function with which a policy calls the host. The host's answer is appended to the
/// policy's standard input.
pub(super) fn define_host_call(
    linker: &mut Linker<CallState>,
    module: &str,
    name: &str,
    function: FuncType,
) -> wasmtime::Result<()> {
    let takes_texts = function.params().len() == 8 && function.params().all(|param| param.matches(&ValType::I32));
    let returns_code = function.results().len() == 1 && function.results().all(|result| result.matches(&ValType::I32));
    if !HOST_CALL_FUNCTIONS.contains(&(module, name)) || !takes_texts || !returns_code {
        // Nothing is defined, so the linker will report the import as unknown.
        return Ok(());
    }
    linker.func_wrap_async(module, name, |mut caller: Caller<'_, CallState>, arguments| {
        Box::new(async move {
            check_unread(caller.data())?;
            let succeeded = host_calls::answer_call(&mut caller, arguments).await?;
            let exchange = &mut caller.data_mut().exchange;
            let answer = std::mem::take(&mut exchange.host_answer);
            exchange.input.extend_from_slice(&answer);
            Ok(u32::from(!succeeded))
        })
    })?;
    Ok(())
}

/// Fails if the policy leaves too many answers of the host unread, because they take memory in this process.
fn check_unread(state: &CallState) -> wasmtime::Result<()> {
    let (unread, limit) = (state.exchange.input.len(), state.memory_limit());
    if unread <= limit {
        return Ok(());
    }
    Err(Violation::error(
        FailureKind::Memory,
        format!("the policy left {unread} bytes of standard input unread; the limit is {limit}"),
    ))
}
