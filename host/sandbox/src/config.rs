use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{ClusterReader, Grants, HttpGrant, HttpSender, ImageReader};

#[cfg(feature = "engine")]
use crate::CallMeter;

/// Configuration of a [`Sandbox`](crate::Sandbox).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SandboxConfig {
    /// The maximum number of concurrent calls of all plugins together, from which all sizes of the engine's pool
    /// follow. A call's slot reserves address space from the start, but takes memory only while in use. Default 256.
    pub calls_in_flight: u32,
    /// The maximum memory limit that a stage may set for its plugin, in bytes. Default 1 GiB.
    pub max_memory_limit: usize,
    /// The maximum size of a module, in bytes. Default 32 MiB.
    pub max_module_size: usize,
    /// A program that compiles modules: started with the argument `compile`, it must call [`compile`](crate::compile).
    /// It must be built with the same version of this crate. Default `None`: modules are compiled in this process.
    /// There, the complexity of modules is limited, but a compilation that exceeds its time cannot be stopped.
    pub compiler: Option<PathBuf>,
    /// The maximum memory for compiling one component, in bytes. Default 2 GiB.
    pub compile_memory: u64,
    /// The maximum processor time for compiling one component, in whole seconds. Default 60 s.
    pub compile_time: Duration,
    /// The maximum wall-clock time of one compilation, without its time in the queue. Usually `compile_time` ends a
    /// compilation earlier. This limit only matters if a [`compiler`](Self::compiler) process hangs without using any
    /// processor time. So the limit can be long, and a large module does not fail on a busy machine. Default 1 h.
    pub prepare_timeout: Duration,
    /// The maximum processor time of `describe` or `configure`. Wall-clock time may be ten times that. Default 10 s.
    pub configure_timeout: Duration,
    /// Answers calls of the interface `admittance:plugin/cluster`. Default `None`: plugins with the grant get the error
    /// `unavailable`.
    pub cluster: Option<Arc<dyn ClusterReader>>,
    /// Answers calls of the interface `admittance:plugin/http`. Default `None`: plugins with the grant get the error
    /// `unavailable`.
    pub http: Option<Arc<dyn HttpSender>>,
    /// The requests that Kyverno's policies may send through `http`. These policies are not plugins, so no stage can
    /// grant them requests. Default: none.
    pub policy_http: Arc<[HttpGrant]>,
    /// Measures the cost of plugin calls, for benchmarks. Default `None`.
    #[cfg(feature = "engine")]
    pub meter: Option<Arc<CallMeter>>,
    /// Reads images from registries for Kubewarden policies. Default `None`: a policy with the grant gets an error.
    pub images: Option<Arc<dyn ImageReader>>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            calls_in_flight: 256,
            max_memory_limit: 1 << 30,
            max_module_size: 32 << 20,
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

/// The configuration of a stage's plugin, in addition to its module and settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// The name of the plugin in the log, which is usually the name of its stage.
    pub name: String,
    /// The limits of each call of the plugin.
    pub limits: CallLimits,
    /// The capabilities that the stage grants to the plugin.
    pub grants: Grants,
}

/// The limits of one call of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The maximum size of all memories of the plugin together, in bytes. Default 64 MiB.
    pub memory: usize,
    /// The maximum time of a call, including its wait for a slot, unless the chain's deadline is earlier. Default 1 s.
    pub time: Duration,
    /// The maximum size of all strings in a response together, in bytes. Default 1 MiB.
    pub output: usize,
    /// The limits of what a call may log.
    pub log: LogLimits,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            time: Duration::from_secs(1),
            output: 1 << 20,
            log: LogLimits::default(),
        }
    }
}

/// The limits of what a plugin may log in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// The maximum number of lines that a call may log. Default 64.
    pub lines: u32,
    /// The maximum size of all lines that a call logs together, in bytes. Default 16 KiB.
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
