//! Checks, starts and compiles a policy.

use bytes::Bytes;
use wasmtime::{Instance, Module, Store};
use wasmtime_wizer::{InstanceState, ModuleContext, SnapshotVal, ValType, Wizer};

use super::{
    PolicyMode, link, messages,
    metadata::{PROTOCOL_VERSION, PolicyMetadata, unknown_protocol_error},
    program, wapc,
};
use crate::{
    ConfigurationTime, Error, LoadStep, SettingsMistake,
    engine::{Effort, error_chain},
    prepare::{Header, NativeCode, PluginPreparation, Prepared},
    shared::SharedModule,
    snapshot::SnapshotMemory,
    store::CallState,
};

impl PluginPreparation {
    pub(crate) async fn prepare_policy(self, module: Bytes, shared: &SharedModule) -> Result<Prepared, Error> {
        let PolicyMetadata { mode, description, .. } = PolicyMetadata::parse(&module)?;
        let (configured, artifact) = match mode {
            PolicyMode::Wapc => self.prepare_wapc(&module, shared).await?,
            PolicyMode::Program => self.prepare_program(module).await?,
        };
        let header = Header {
            fingerprint: self.fingerprint,
            description,
            configured,
            settings: Some(self.settings),
            policy: Some(mode),
        };
        let code = NativeCode::Memory(artifact);
        Ok(Prepared { header, code })
    }

    async fn prepare_wapc(&self, module: &Bytes, shared: &SharedModule) -> Result<(ConfigurationTime, Bytes), Error> {
        let wizer = Wizer::new();
        let instrumented = match wizer.instrument(module) {
            Ok((context, bytes)) => self
                .compile_instrumented(bytes, shared)
                .await?
                .map(|artifact| (context, artifact)),
            Err(error) => Err(error_chain(&error)),
        };
        match instrumented {
            Ok((context, artifact)) => {
                let (mut store, instance) = self.start_and_validate(&artifact).await?;
                let snapshot = take_snapshot(&wizer, &context, &mut store, instance).await?;
                drop(store);
                match self.compile_checked_policy_snapshot(snapshot, shared).await {
                    Ok(artifact) => Ok((ConfigurationTime::Snapshot, artifact)),
                    Err(reason) => {
                        let artifact = self.compile(module.clone(), Effort::Full).await?;
                        Ok((ConfigurationTime::PerCall { reason }, artifact))
                    }
                }
            }
            Err(reason) => {
                let artifact = self.compile(module.clone(), Effort::Full).await?;
                self.start_and_validate(&artifact).await?;
                Ok((ConfigurationTime::PerCall { reason }, artifact))
            }
        }
    }

    async fn prepare_program(&self, module: Bytes) -> Result<(ConfigurationTime, Bytes), Error> {
        let artifact = self.compile(module, Effort::Full).await?;
        let pre = link(&self.sandbox, &self.load_core_module(&artifact)?, PolicyMode::Program)?;
        let settings = self.settings.clone().into_bytes();
        let mut store = self.new_store();
        let answer = self.run_step(&mut store, LoadStep::ValidateSettings, async |store| {
            program::run_program(store, &pre, "validate-settings", settings).await
        });
        check_settings(Ok(answer.await?))?;
        let reason = "it is a WASI policy, a program that runs from its start for each call".to_owned();
        Ok((ConfigurationTime::PerCall { reason }, artifact))
    }

    async fn start_and_validate(&self, artifact: &Bytes) -> Result<(Store<CallState>, Instance), Error> {
        let (mut store, instance) = self.start(&self.load_core_module(artifact)?, false).await?;
        let settings = self.settings.clone().into_bytes();
        let answer = self.run_step(&mut store, LoadStep::ValidateSettings, async |store| {
            wapc::call_operation(store, instance, "validate_settings", settings).await
        });
        check_settings(answer.await?)?;
        Ok((store, instance))
    }

    /// Starts an instance of a waPC policy, and checks its protocol version.
    pub(super) async fn start(&self, module: &Module, is_started: bool) -> Result<(Store<CallState>, Instance), Error> {
        let pre = link(&self.sandbox, module, PolicyMode::Wapc)?;
        let mut store = self.new_store();
        let instance = self
            .run_step(&mut store, LoadStep::Start, async |store| {
                wapc::new_instance(store, &pre, is_started).await
            })
            .await?;
        self.check_protocol(&mut store, instance).await?;
        Ok((store, instance))
    }

    async fn check_protocol(&self, store: &mut Store<CallState>, instance: Instance) -> Result<(), Error> {
        let answer = self.run_step(store, LoadStep::Start, async |store| {
            wapc::call_operation(store, instance, "protocol_version", Vec::new()).await
        });
        match answer.await? {
            Ok(answer) => match serde_json::from_slice::<String>(&answer) {
                Ok(version) if version == PROTOCOL_VERSION => Ok(()),
                Ok(version) => Err(unknown_protocol_error(&version)),
                Err(error) => Err(Error::Policy(format!(
                    "its answer to `protocol_version` cannot be read: {error}"
                ))),
            },
            Err(_) => Ok(()),
        }
    }

    async fn compile_checked_policy_snapshot(
        &self,
        snapshot: Result<Vec<u8>, String>,
        shared: &SharedModule,
    ) -> Result<Bytes, String> {
        let snapshot = snapshot?;
        let artifact = async {
            let artifact = self.compile_snapshot(snapshot, shared).await?;
            self.start(&self.load_core_module(&artifact)?, true).await?;
            Ok::<_, Error>(artifact)
        };
        artifact
            .await
            .map_err(|error| format!("the snapshot does not run: {error}"))
    }
}

/// Returns the mistake that the policy finds in its settings as an error. If the call of the policy fails, this counts
/// as a mistake in the settings too, because the usual cause is an unknown field.
fn check_settings(answer: Result<Vec<u8>, String>) -> Result<(), Error> {
    let mistake = match answer {
        Ok(answer) => messages::parse_settings_answer(&answer).map_err(|error| {
            Error::Policy(format!(
                "its answer to the validation of its settings cannot be read: {error}"
            ))
        })?,
        Err(error) => Err(error),
    };
    mistake.map_err(|message| {
        Error::Settings(vec![SettingsMistake {
            pointer: String::new(),
            message,
        }])
    })
}

/// Takes a snapshot of the policy. The inner error is the reason why no snapshot is possible; the outer error means
/// that the memory is too large.
async fn take_snapshot(
    wizer: &Wizer,
    context: &ModuleContext<'_>,
    store: &mut Store<CallState>,
    instance: Instance,
) -> Result<Result<Vec<u8>, String>, Error> {
    let mut reader = PolicyInstanceReader {
        store,
        instance,
        snapshot_memory: SnapshotMemory::default(),
        missing_name: None,
    };
    let snapshot = wizer.snapshot(context, &mut reader).await;
    reader.snapshot_memory.check_size()?;
    Ok(match reader.missing_name {
        None => snapshot.map_err(|error| error_chain(&error)),
        Some(name) => Err(format!("`{name}` cannot be read")),
    })
}

struct PolicyInstanceReader<'a> {
    store: &'a mut Store<CallState>,
    instance: Instance,
    snapshot_memory: SnapshotMemory,
    /// The first memory or global that could not be read. If there is one, the snapshot is discarded.
    missing_name: Option<String>,
}

impl InstanceState for PolicyInstanceReader<'_> {
    async fn global_get(&mut self, name: &str, _: ValType) -> SnapshotVal {
        let global = self.instance.get_global(&mut *self.store, name);
        match global.map(|global| global.get(&mut *self.store)) {
            Some(wasmtime::Val::I32(value)) => SnapshotVal::I32(value),
            Some(wasmtime::Val::I64(value)) => SnapshotVal::I64(value),
            Some(wasmtime::Val::F32(value)) => SnapshotVal::F32(value),
            Some(wasmtime::Val::F64(value)) => SnapshotVal::F64(value),
            Some(wasmtime::Val::V128(value)) => SnapshotVal::V128(value.as_u128()),
            _ => {
                self.missing_name.get_or_insert_with(|| name.to_owned());
                SnapshotVal::I32(0)
            }
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        match self.instance.get_memory(&mut *self.store, name) {
            Some(memory) => contents(self.snapshot_memory.content_to_copy(name, memory.data(&*self.store))),
            None => {
                self.missing_name.get_or_insert_with(|| name.to_owned());
                contents(&[]);
            }
        }
    }
}
