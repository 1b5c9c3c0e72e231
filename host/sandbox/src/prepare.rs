mod prepared;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admittance_admission::{
    Deadline, Digest, Failure, FailureKind, Grants, Uid, UserInfo, on_thread_for_long_work, thread_time,
};
use bytes::Bytes;
use tokio::{
    runtime::Builder,
    sync::{OwnedSemaphorePermit, oneshot},
    time::timeout,
};
use wasmtime::{
    Engine, Module, Store,
    component::{Component, Instance},
};

pub use self::prepared::Prepared;
pub(crate) use self::prepared::{Header, NativeCode};
use crate::{
    ConfigurationTime, Description, Error, LoadStep, PluginConfig, Sandbox,
    capabilities::logging::CallLog,
    compiler::{compile_in_child_process, precompile},
    complexity,
    contract::bindings,
    engine::{Effort, SandboxInner, compile_settings, error_chain},
    failure::failure_from_error,
    imports::{LinkedComponent, link},
    kubewarden::{self, CORE_MODULE_MAGIC, LoadedPolicy},
    plugin::{Base, Plugin, PluginGuest, settings_mistakes},
    shared::SharedModule,
    snapshot::InstrumentedComponent,
    snapshot_template::SnapshotTemplate,
    store::{CallState, StoreParameters},
};

/// The version of the format of [`Prepared`], which is part of the fingerprint.
pub(crate) const FORMAT_VERSION: u32 = 3;

/// The wall-clock limit of a step is this many times its limit of processor time. It is higher because other work may
/// occupy the machine.
const WALL_CLOCK_FACTOR: u32 = 10;

const COMPONENT_MAGIC: &[u8] = b"\0asm\x0d\0\x01\0";

impl Sandbox {
    /// Checks a module, calls `describe` and `configure`, and compiles a snapshot of the resulting memory. Preparing
    /// takes tens of milliseconds or more. It runs on a blocking thread; compilation runs in a separate process if a
    /// [`compiler`](crate::SandboxConfig::compiler) is configured. Dropping the future stops both.
    ///
    /// `settings` is JSON text; without settings, it is `{}`. The limits on memory, output and log in `config` apply;
    /// logging is the only available capability.
    ///
    /// # Errors
    ///
    /// Fails when the bytes are not a plugin of an accepted version, when the module has unknown imports or rejects its
    /// settings, or when a step times out.
    pub async fn prepare(
        &self,
        module: impl Into<Bytes>,
        settings: &str,
        config: &PluginConfig,
    ) -> Result<Prepared, Error> {
        let module = module.into();
        check_bytes(&module, self.inner.config.max_module_size)?;
        self.inner.check_limits(config)?;
        let shared = self.share(Digest::of_bytes(&module));
        let work = PluginPreparation::new(self, settings, config).await?;
        on_blocking_thread(async move || work.prepare_module(module, &shared).await).await
    }

    /// Loads a prepared plugin. This takes less than 1 ms and several hundred kilobytes of memory, which plugins with
    /// the same module and settings can share: see [`Plugin::with_config`].
    ///
    /// # Errors
    ///
    /// Fails when the plugin was prepared by another version of this program or for another machine, or when the memory
    /// limit exceeds the sandbox's maximum.
    pub fn load(&self, prepared: &Prepared, config: &PluginConfig) -> Result<Plugin, Error> {
        self.inner.check_limits(config)?;
        let Prepared { header, code } = prepared;
        let fingerprint = self.fingerprint();
        if header.fingerprint != fingerprint {
            return Err(Error::Artifact(format!(
                "it was made for `{}`, but this host is `{fingerprint}`",
                header.fingerprint
            )));
        }
        let guest = match header.policy {
            None => PluginGuest::Component {
                linked: link(&self.inner, &deserialize_component(&self.inner, code)?)?,
                settings: header.settings.clone(),
            },
            Some(mode) => PluginGuest::Policy(LoadedPolicy {
                pre: kubewarden::link(&self.inner, &deserialize_core_module(&self.inner, code)?, mode)?,
                mode,
                is_started: header.configured == ConfigurationTime::Snapshot,
                mutates: header.description.mutates,
                settings: header.settings.clone().unwrap_or_default(),
            }),
        };
        let base = Base {
            guest,
            description: header.description.clone(),
            configuration_time: header.configured.clone(),
            is_warning_logged: AtomicBool::new(false),
        };
        Ok(Plugin::new(&self.inner, Arc::new(base), config))
    }
}

impl SandboxInner {
    pub(crate) fn check_limits(&self, config: &PluginConfig) -> Result<(), Error> {
        let (memory_limit, max_memory_limit) = (config.limits.memory, self.config.max_memory_limit);
        if memory_limit > max_memory_limit {
            Err(Error::Unusable(format!(
                "a memory limit of {memory_limit} bytes is above this host's maximum of {max_memory_limit} bytes for a plugin"
            )))
        } else {
            Ok(())
        }
    }
}

pub(crate) fn check_bytes(module: &[u8], limit: usize) -> Result<(), Error> {
    if module.len() > limit {
        return Err(Error::Unusable(format!(
            "the module has {} bytes; the limit is {limit}; build it for release and without debug symbols",
            module.len()
        )));
    }
    let hint = match module {
        module if module.starts_with(COMPONENT_MAGIC) || module.starts_with(CORE_MODULE_MAGIC) => return Ok(()),
        [] => "; the file is empty",
        module if COMPONENT_MAGIC.starts_with(module) => {
            return Err(Error::Truncated(format!("it has only {} bytes", module.len())));
        }
        module if module.starts_with(b"!<arch>") => {
            "; this is a library of Rust or C: for a plugin in Rust, add `crate-type = [\"cdylib\"]` below `[lib]` \
             in Cargo.toml, and use the .wasm file that Cargo then makes"
        }
        _ => "",
    };
    Err(Error::Unusable(format!(
        "these bytes are not WebAssembly: a component begins with the bytes 00 61 73 6d 0d 00 01 00{hint}"
    )))
}

#[expect(
    unsafe_code,
    reason = "native code from a trusted place is what this function is for"
)]
fn deserialize_component(sandbox: &SandboxInner, code: &NativeCode) -> Result<Component, Error> {
    let engine = &sandbox.engine;
    let component = match code {
        // SAFETY: the code is the unchanged output of a trusted compiler, as `NativeCode` requires it.
        NativeCode::Memory(bytes) => unsafe { Component::deserialize(engine, bytes) },
        // SAFETY: the code is the unchanged output of a trusted compiler, as `NativeCode` requires it.
        NativeCode::File(path) => unsafe { Component::deserialize_file(engine, path) },
    };
    component.map_err(|error| Error::Artifact(error_chain(&error)))
}

#[expect(
    unsafe_code,
    reason = "native code from a trusted place is what this function is for"
)]
fn deserialize_core_module(sandbox: &SandboxInner, code: &NativeCode) -> Result<Module, Error> {
    let engine = &sandbox.engine;
    let module = match code {
        // SAFETY: the code is the unchanged output of a trusted compiler, as `NativeCode` requires it.
        NativeCode::Memory(bytes) => unsafe { Module::deserialize(engine, bytes) },
        // SAFETY: the code is the unchanged output of a trusted compiler, as `NativeCode` requires it.
        NativeCode::File(path) => unsafe { Module::deserialize_file(engine, path) },
    };
    module.map_err(|error| Error::Artifact(error_chain(&error)))
}

/// Runs `work` on a blocking thread. Dropping the future stops `work` at its next await, and a guest at its next yield.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    work: impl AsyncFnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (caller_guard, caller_gone) = oneshot::channel::<Infallible>();
    let outcome = on_thread_for_long_work(move || {
        let built = Builder::new_current_thread().enable_all().build();
        let runtime = built.map_err(|error| Error::Interrupted(error.to_string()))?;
        let result = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = caller_gone => Err(Error::Interrupted("its result is no longer needed".to_owned())),
                result = work() => result,
            }
        });
        // A compilation in this process cannot be stopped, and may still run when nobody needs it. The runtime must not
        // wait for it.
        runtime.shutdown_background();
        result
    })
    .await;
    drop(caller_guard);
    outcome.unwrap_or_else(|error| Err(Error::Interrupted(error.to_string())))
}

pub(crate) struct PluginPreparation {
    pub(crate) sandbox: Arc<SandboxInner>,
    /// The permit for this preparation. A compilation holds it until it ends, even if nobody waits for the result any
    /// more. So the number of such forgotten compilations is limited.
    permit: Arc<OwnedSemaphorePermit>,
    pub(crate) fingerprint: String,
    pub(crate) settings: String,
    config: PluginConfig,
}

impl PluginPreparation {
    pub(crate) async fn new(sandbox: &Sandbox, settings: &str, config: &PluginConfig) -> Result<Self, Error> {
        let permit = Arc::clone(&sandbox.inner.preparations).acquire_owned().await;
        Ok(Self {
            permit: Arc::new(permit.map_err(|error| Error::Interrupted(error.to_string()))?),
            sandbox: Arc::clone(&sandbox.inner),
            fingerprint: sandbox.fingerprint(),
            settings: settings.to_owned(),
            config: PluginConfig {
                grants: Grants::default(),
                ..config.clone()
            },
        })
    }

    /// Compiles a component or core module whose complexity was already checked.
    pub(crate) async fn compile(&self, module: impl Into<Bytes>, effort: Effort) -> Result<Bytes, Error> {
        let module = module.into();
        let SandboxInner {
            config,
            compilation_limit,
            ..
        } = &*self.sandbox;
        let permit = compilation_limit.acquire().await;
        self.sandbox.compilations.fetch_add(1, Ordering::Relaxed);
        let limit = config.prepare_timeout;
        let timed_compilation = match &config.compiler {
            Some(program) => {
                let work = compile_in_child_process(program, config, &module, effort, permit.is_some());
                timeout(limit, work).await
            }
            None => {
                let preparation_permit = self.permit.clone();
                let work = on_thread_for_long_work(move || {
                    let _preparation_permit = preparation_permit;
                    // The effort is fixed when an engine is created, so each compilation gets an engine of its own.
                    let compile = || precompile(&Engine::new(&compile_settings(effort))?, &module);
                    match permit {
                        Some(permit) => permit.run(compile),
                        None => compile(),
                    }
                });
                timeout(limit, work).await.map(|outcome| match outcome {
                    Ok(Ok(artifact)) => Ok(artifact.into()),
                    Ok(Err(error)) => Err(Error::from_compile_failure(error_chain(&error))),
                    Err(error) => Err(Error::Interrupted(error.to_string())),
                })
            }
        };
        let timeout_error = |_| {
            Err(Error::Unusable(format!(
                "the module was not compiled within {limit:?}; it may be too large for this machine"
            )))
        };
        timed_compilation.unwrap_or_else(timeout_error)
    }

    pub(crate) fn load_component(&self, artifact: &Bytes) -> Result<Component, Error> {
        deserialize_component(&self.sandbox, &NativeCode::Memory(artifact.clone()))
    }

    pub(crate) fn load_core_module(&self, artifact: &Bytes) -> Result<Module, Error> {
        deserialize_core_module(&self.sandbox, &NativeCode::Memory(artifact.clone()))
    }

    /// Compiles an instrumented module. All preparations that use the same `shared` compile it only once. An inner
    /// error means that the module does not compile.
    pub(crate) async fn compile_instrumented(
        &self,
        bytes: Vec<u8>,
        shared: &SharedModule,
    ) -> Result<Result<Bytes, String>, Error> {
        let compilation = shared
            .0
            .instrumented
            .get_or_try_init(|| self.compile(bytes, Effort::Least))
            .await;
        match compilation {
            Ok(artifact) => Ok(Ok(artifact.clone())),
            Err(Error::Compile(reason)) => Ok(Err(reason)),
            Err(error) => Err(error),
        }
    }

    /// Compiles a snapshot of a module. Snapshots that differ only in the data of their memories are compiled only
    /// once: each gets a copy of the code with its own data.
    pub(crate) async fn compile_snapshot(&self, snapshot: Vec<u8>, shared: &SharedModule) -> Result<Bytes, Error> {
        // The snapshot cannot be parsed. It is compiled as it is, so that the compiler reports the error.
        let Ok(template) = SnapshotTemplate::new(&snapshot) else {
            return self.compile(snapshot, Effort::Full).await;
        };
        let digest = Digest::of_bytes(&template.bytes);
        let mut compiled_template = shared.0.template.lock().await;
        let compiled = match &*compiled_template {
            Some((compiled_digest, compiled)) if *compiled_digest == digest => compiled.clone(),
            _ => {
                let compiled = self.compile(template.bytes.clone(), Effort::Full).await?;
                compiled_template.insert((digest, compiled)).1.clone()
            }
        };
        drop(compiled_template);
        match template.fill(&compiled) {
            Some(filled) => Ok(filled.into()),
            None => self.compile(snapshot, Effort::Full).await,
        }
    }

    async fn prepare_module(self, module: Bytes, shared: &SharedModule) -> Result<Prepared, Error> {
        complexity::check(&module)?;
        if module.starts_with(CORE_MODULE_MAGIC) {
            return self.prepare_policy(module, shared).await;
        }
        let instrumented = match InstrumentedComponent::new(&module) {
            Ok((instrumented, bytes)) => self
                .compile_instrumented(bytes, shared)
                .await?
                .map(|artifact| (instrumented, artifact)),
            Err(reason) => Err(reason),
        };
        let (description, configuration_time, artifact) = match instrumented {
            Ok((instrumented, artifact)) => {
                let linked = link(&self.sandbox, &self.load_component(&artifact)?)?;
                let description = self.describe(&linked).await?;
                let (mut store, instance) = self.configure(&linked).await?;
                let snapshot = instrumented.snapshot(&mut store, instance).await?;
                drop(store);
                match self.compile_checked_snapshot(snapshot, &description, shared).await {
                    Ok(artifact) => (description, ConfigurationTime::Snapshot, artifact),
                    Err(reason) => {
                        let artifact = self.compile(module.clone(), Effort::Full).await?;
                        (description, ConfigurationTime::PerCall { reason }, artifact)
                    }
                }
            }
            Err(reason) => {
                let artifact = self.compile(module.clone(), Effort::Full).await?;
                let linked = link(&self.sandbox, &self.load_component(&artifact)?)?;
                let description = self.describe(&linked).await?;
                self.configure(&linked).await?;
                (description, ConfigurationTime::PerCall { reason }, artifact)
            }
        };
        let settings = (configuration_time != ConfigurationTime::Snapshot).then_some(self.settings);
        let header = Header {
            fingerprint: self.fingerprint,
            description,
            configured: configuration_time,
            settings,
            policy: None,
        };
        let code = NativeCode::Memory(artifact);
        Ok(Prepared { header, code })
    }

    /// Compiles a snapshot and tests it with a call of `describe`. In a snapshot, the plugin's start-up code runs a
    /// second time in the same memory. Some plugins do not allow this, and the call fails.
    async fn compile_checked_snapshot(
        &self,
        snapshot: Result<Vec<u8>, String>,
        description: &Description,
        shared: &SharedModule,
    ) -> Result<Bytes, String> {
        let error_text = |error: Error| error.to_string();
        let artifact = self.compile_snapshot(snapshot?, shared).await.map_err(error_text)?;
        let linked = link(&self.sandbox, &self.load_component(&artifact).map_err(error_text)?).map_err(error_text)?;
        let new_description = self
            .describe(&linked)
            .await
            .map_err(|error| format!("the snapshot does not run: {error}"))?;
        if new_description == *description {
            Ok(artifact)
        } else {
            Err("the plugin describes itself differently after `configure`".to_owned())
        }
    }

    /// Returns the wall-clock limit of a step, which stops guests that use no processor time because they sleep.
    fn step_timeout(&self) -> Duration {
        let processor_time = self.sandbox.config.configure_timeout;
        processor_time.saturating_mul(WALL_CLOCK_FACTOR)
    }

    pub(crate) fn new_store(&self) -> Store<CallState> {
        let name = self.config.name.as_str().into();
        CallState::new_store(
            &self.sandbox,
            StoreParameters {
                log: CallLog::new(name, Uid::from(String::new()), self.config.limits.log),
                limits: &self.config.limits,
                grants: &Arc::new(Grants::default()),
                user: &UserInfo::default(),
                recorder: None,
                deadline: Deadline::after(self.step_timeout()),
                processor_time: Some(thread_time().saturating_add(self.sandbox.config.configure_timeout)),
                preparing: true,
            },
        )
    }

    pub(crate) async fn describe(&self, linked: &LinkedComponent) -> Result<Description, Error> {
        let mut store = self.new_store();
        let (plugin, _) = self.instantiate(linked, &mut store, LoadStep::Describe).await?;
        let description = self.run_step(&mut store, LoadStep::Describe, async |store| {
            plugin.call_describe(store).await
        });
        Ok(description.await?.into())
    }

    async fn configure(&self, linked: &LinkedComponent) -> Result<(Store<CallState>, Instance), Error> {
        let mut store = self.new_store();
        let (plugin, instance) = self.instantiate(linked, &mut store, LoadStep::Configure).await?;
        let settings = self.settings.as_str();
        self.run_step(&mut store, LoadStep::Configure, async |store| {
            plugin.call_configure(store, settings).await
        })
        .await?
        .map_err(|mistakes| Error::Settings(settings_mistakes(mistakes)))?;
        Ok((store, instance))
    }

    async fn instantiate(
        &self,
        linked: &LinkedComponent,
        store: &mut Store<CallState>,
        step: LoadStep,
    ) -> Result<(bindings::Plugin, Instance), Error> {
        let instance = self
            .run_step(store, step, async |store| linked.pre.instantiate_async(store).await)
            .await?;
        let plugin = linked
            .indices
            .load(&mut *store, &instance)
            .map_err(|error| Error::NotAPlugin(error_chain(&error)))?;
        Ok((plugin, instance))
    }

    pub(crate) async fn run_step<T>(
        &self,
        store: &mut Store<CallState>,
        step: LoadStep,
        work: impl AsyncFnOnce(&mut Store<CallState>) -> wasmtime::Result<T>,
    ) -> Result<T, Error> {
        let _running = self.sandbox.keep_ticking();
        let result = tokio::time::timeout_at(store.data().deadline.instant(), work(&mut *store)).await;
        store.data().log.finish();
        let failure = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => failure_from_error(&error, store.data()),
            Err(_) => Failure::new(
                FailureKind::Timeout,
                format!("no answer within {:?}", self.step_timeout()),
            ),
        };
        Err(Error::Call { step, failure })
    }
}
