//! Runs Kubewarden policies, which are core modules for WASI preview 1.
//!
//! A policy speaks [waPC](wapc), or is a [WASI program](program) that reads standard input and writes standard output;
//! the messages are the same. The custom section [`metadata`] describes it. Policies have the same engine, limits,
//! deadlines, slots and grants as components. The crate treats them differently only when a guest is linked, prepared
//! or called.

mod cache;
mod certificates;
mod exchange;
mod fields;
mod host_calls;
mod images;
mod inspect;
mod messages;
mod metadata;
mod prepare;
mod preview1;
mod program;
mod wapc;

use std::sync::Arc;

use admittance_admission::{FailureKind, Request};
use serde::{Deserialize, Serialize};
use wasmtime::{Engine, ExternType, InstancePre, Linker, Module, Store, UnknownImportError};

pub(crate) use self::{cache::PolicyCache, exchange::MessageExchange};
use crate::{
    Error,
    contract::bindings::admittance::plugin::types,
    engine::{SandboxInner, error_chain, per_call},
    imports::check_count,
    store::{CallState, Violation},
};

pub(crate) const CORE_MODULE_MAGIC: &[u8] = b"\0asm\x01\0\0\0";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PolicyMode {
    /// The mode waPC: host and policy exchange messages by calling functions.
    Wapc,
    /// The mode of a WASI program, which is started once for each call.
    Program,
}

pub(crate) struct LoadedPolicy {
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) mode: PolicyMode,
    /// Whether the policy's module is a snapshot of an instance that was already started.
    pub(crate) is_started: bool,
    pub(crate) mutates: bool,
    /// The settings of the policy in JSON, which every message to it contains.
    pub(crate) settings: String,
}

impl LoadedPolicy {
    /// Calls the policy for a verdict on a request. The inner error is the text that the policy returned as its error.
    pub(crate) async fn admit(
        &self,
        store: &mut Store<CallState>,
        request: &Request,
        cache: &Arc<PolicyCache>,
    ) -> wasmtime::Result<Result<types::Response, String>> {
        store.data_mut().cache = Arc::clone(cache);
        let message = messages::policy_message(request, &self.settings);
        let answer = match self.mode {
            PolicyMode::Wapc => {
                let instance = wapc::new_instance(store, &self.pre, self.is_started).await?;
                wapc::call_operation(store, instance, "validate", message).await?
            }
            PolicyMode::Program => Ok(program::run_program(store, &self.pre, "validate", message).await?),
        };
        match answer {
            Ok(answer) => messages::response_from_answer(&answer, request, self.mutates).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }
}

pub(crate) fn link(sandbox: &SandboxInner, module: &Module, mode: PolicyMode) -> Result<InstancePre<CallState>, Error> {
    let required = module.resources_required();
    check_count("memories", required.num_memories, per_call::MEMORIES)?;
    check_count("tables", required.num_tables, per_call::TABLES)?;
    let (function, meaning) = match mode {
        PolicyMode::Wapc => (wapc::GUEST_CALL, "by which a waPC policy is called"),
        PolicyMode::Program => (wapc::START_FUNCTION, "with which a WASI policy begins"),
    };
    if !matches!(module.get_export(function), Some(ExternType::Func(_))) {
        return Err(Error::Policy(format!(
            "it does not export the function `{function}`, {meaning}"
        )));
    }
    if !matches!(module.get_export(exchange::MEMORY_EXPORT), Some(ExternType::Memory(_))) {
        return Err(Error::Policy("it does not export its memory as `memory`".to_owned()));
    }
    create_linker(&sandbox.engine, module)
        .map_err(|error| Error::WrongImport(error_chain(&error)))?
        .instantiate_pre(module)
        .map_err(|error| match error.downcast_ref::<UnknownImportError>() {
            Some(unknown) => Error::UnknownImport(format!("`{}.{}`", unknown.module(), unknown.name())),
            None => Error::WrongImport(error_chain(&error)),
        })
}

fn create_linker(engine: &Engine, module: &Module) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    // Each import of WASI is first defined as a function that fails the call. If this host provides the function, it is
    // then defined a second time, and the second definition counts.
    linker.allow_shadowing(true);
    for import in module.imports() {
        if let ExternType::Func(function) = import.ty() {
            match import.module() {
                preview1::MODULE_NAME => preview1::define_denied(&mut linker, import.name(), function)?,
                from => program::define_host_call(&mut linker, from, import.name(), function)?,
            }
        }
    }
    define_provided_functions(&mut linker)?;
    Ok(linker)
}

fn define_provided_functions(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    preview1::define_functions(linker)?;
    wapc::define_functions(linker)
}

fn invalid_response(message: impl Into<String>) -> wasmtime::Error {
    Violation::error(
        FailureKind::InvalidResponse,
        format!("the policy's response is not valid: {}", message.into()),
    )
}
