use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{ClusterReader, Grants, HttpGrant, HttpSender, ImageReader};

#[cfg(feature = "engine")]
use crate::Meter;

/// Configuration of a [`Sandbox`](crate::Sandbox).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SandboxConfig {
    /// The number of concurrent calls, over all plugins. Every size of the pool is derived from it; each slot
    /// takes address space immediately and memory when it is used. Default 256.
    pub calls_in_flight: u32,
    /// The largest memory limit that a stage may set, in bytes. Default 1 GiB.
    pub memory_limit_max: usize,
    /// The largest module, in bytes. Default 32 MiB.
    pub module_size_max: usize,
    /// The program that compiles: started as `compile`, it calls [`compile`](crate::compile). It must be built
    /// with the same version of this crate. Default none: components are compiled in this process, where only
    /// their complexity is limited, and where a compilation that exceeds its time runs to its end.
    pub compiler: Option<PathBuf>,
    /// The maximum memory of a compiler for one component, in bytes. Default 2 GiB.
    pub compile_memory: u64,
    /// The maximum processor time of a compiler for one component, in whole seconds. Default 60 s.
    pub compile_time: Duration,
    /// The wall-clock limit of one compilation, not counting the time that it is queued. A [`compiler`](Self::compiler)
    /// is limited by its processor time, and this only ends one that hangs: a large module must not fail because the
    /// machine is busy. Default 1 h.
    pub prepare_timeout: Duration,
    /// The maximum processor time of each of `describe` and `configure`. The maximum wall-clock time is ten times as
    /// long. Default 10 s.
    pub configure_timeout: Duration,
    /// The implementation of `admittance:plugin/cluster`. Default none: a plugin with the grant gets the
    /// error `unavailable`.
    pub cluster: Option<Arc<dyn ClusterReader>>,
    /// The implementation of `admittance:plugin/http`. Default none, with the same effect.
    pub http: Option<Arc<dyn HttpSender>>,
    /// The requests that policies of Kyverno may send by `http`. They call no plugin, and have no stage with grants.
    /// Default none.
    pub policy_http: Arc<[HttpGrant]>,
    /// Measures the calls. Default none.
    #[cfg(feature = "engine")]
    pub meter: Option<Arc<Meter>>,
    /// Reads images in registries, for policies of Kubewarden. Default none: a policy with the grant gets an error.
    pub images: Option<Arc<dyn ImageReader>>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            calls_in_flight: 256,
            memory_limit_max: 1 << 30,
            module_size_max: 32 << 20,
            compiler: None,
            compile_memory: 2 << 30,
            compile_time: Duration::from_secs(60),
            prepare_timeout: Duration::from_secs(3600),
            configure_timeout: Duration::from_secs(10),
            cluster: None,
            http: None,
            policy_http: Arc::default(),
            #[cfg(feature = "engine")]
            meter: None,
            images: None,
        }
    }
}

/// The configuration of a stage's plugin, besides the module and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// The name of the plugin in the log, usually the stage's name.
    pub name: String,
    /// The limits of each call.
    pub limits: Limits,
    /// The granted capabilities.
    pub grants: Grants,
}

/// The limits of one call of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of all memories of the plugin together, in bytes. Default 64 MiB.
    pub memory: usize,
    /// The time from the call to the verdict, including the wait for a slot. An earlier deadline of the chain takes
    /// precedence. Default 1 s.
    pub time: Duration,
    /// The size of all strings of a response together, in bytes. Default 1 MiB.
    pub output: usize,
    /// Limits of the log.
    pub log: LogLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            time: Duration::from_secs(1),
            output: 1 << 20,
            log: LogLimits::default(),
        }
    }
}

/// The limits of a plugin's log in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// The number of lines. Default 64.
    pub lines: u32,
    /// The size of all lines together, in bytes. Default 16 KiB.
    pub bytes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            lines: 64,
            bytes: 16 << 10,
        }
    }
}
