use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use admittance_admission::{Tick, Ticker, TickerGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, component::Linker,
};

use crate::{
    Error, SandboxConfig, capabilities, compilation_limit::CompilationLimit, prepare, shared::SharedModules,
    store::CallState,
};

/// The number of ticks of 1 ms after which the ticker thread goes to sleep if no call runs. The next call wakes it.
const IDLE_TICKS: u32 = 200;

/// The number of instances, memories and tables that wasmtime's pool reserves for each concurrent call.
pub(crate) mod per_call {
    /// The maximum number of core instances in a call. Python's interpreter has more than a dozen.
    pub(crate) const CORE_INSTANCES: u32 = 64;
    /// The maximum number of component instances in a call. Most calls need one; linked components need a few.
    pub(crate) const COMPONENT_INSTANCES: u32 = 8;
    /// The maximum number of memories in a call. A component linked from several components has a memory of each.
    pub(crate) const MEMORIES: u32 = 4;
    /// The maximum number of tables in a call. A plain Rust component has two.
    pub(crate) const TABLES: u32 = 4;
    /// The maximum number of elements in a guest's table. Python's function table has about 6,000.
    pub(crate) const TABLE_ELEMENTS: usize = 20_000;
    pub(crate) const STACKS: u32 = 1;
}

/// A slot keeps this many bytes of each memory (the first number) and of each table (the second number) resident when a
/// call ends. The next call in the slot uses them again.
const RESIDENT_SIZES: (usize, usize) = (512 << 10, 64 << 10);

/// The maximum number of concurrent preparations, which have slots of their own.
const MAX_PREPARATIONS: u32 = 4;

/// Prepares, loads and runs plugins. A process needs only one sandbox. It is cheap to clone; the engine stops when the
/// last clone and the last plugin are dropped.
#[derive(Clone, derive_more::Debug)]
#[debug("Sandbox {{ config: {:?}, .. }}", inner.config)]
pub struct Sandbox {
    pub(crate) inner: Arc<SandboxInner>,
}

pub(crate) struct SandboxInner {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<CallState>,
    pub(crate) config: SandboxConfig,
    pub(crate) calls: Arc<Semaphore>,
    /// The permits for calls of stages in mode `Audit`. There are half as many permits as slots, so that the other
    /// slots stay free for stages that enforce their verdict.
    pub(crate) audits: Arc<Semaphore>,
    pub(crate) preparations: Arc<Semaphore>,
    pub(crate) compilation_limit: CompilationLimit,
    pub(crate) shared: SharedModules,
    pub(crate) compilations: AtomicU64,
    ticker: Ticker,
}

impl Sandbox {
    /// Starts the engine and its ticker thread, and reserves the address space of the pool. If the process may not
    /// reserve this much, as under `ulimit -v` or with the 39-bit addresses of small ARM boards, a warning is logged.
    /// Calls then take longer, because each maps and unmaps its own memory.
    ///
    /// # Errors
    ///
    /// Fails when the processor is not supported, or the thread cannot be started.
    pub fn new(config: SandboxConfig) -> Result<Self, Error> {
        let engine = start_engine(&config).map_err(|error| Error::Engine(error_chain(&error)))?;
        let mut linker = Linker::new(&engine);
        capabilities::link(&mut linker).map_err(|error| Error::Engine(error_chain(&error)))?;
        let ticker = start_ticker(&engine)?;
        Ok(Self {
            inner: Arc::new(SandboxInner {
                engine,
                linker,
                calls: Arc::new(Semaphore::new(config.calls_in_flight as usize)),
                audits: Arc::new(Semaphore::new((config.calls_in_flight as usize / 2).max(1))),
                preparations: Arc::new(Semaphore::new(MAX_PREPARATIONS as usize)),
                compilation_limit: CompilationLimit::default(),
                shared: SharedModules::default(),
                compilations: AtomicU64::new(0),
                config,
                ticker,
            }),
        })
    }

    /// Returns a fingerprint of everything that compiled code depends on besides its module: the engine's version and
    /// settings, the processor, and the format of [`Prepared`](crate::Prepared). Loading refuses plugins that were
    /// prepared with another fingerprint.
    pub fn fingerprint(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.inner.engine.precompile_compatibility_hash().hash(&mut hasher);
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        format!("{}-{:016x}", prepare::FORMAT_VERSION, hasher.finish())
    }

    /// Limits later compilations to two at a time, each on one core and with a lower priority than serving. Before this
    /// call, compilations use all cores.
    pub fn limit_compilations(&self) {
        self.inner
            .compilation_limit
            .enable(self.inner.config.compiler.is_none());
    }

    /// Returns the number of compilations of modules, instrumented modules and snapshots since the start.
    pub fn compilation_count(&self) -> u64 {
        self.inner.compilations.load(Ordering::Relaxed)
    }

    /// Returns the number of slots in which further calls can start.
    pub fn free_slots(&self) -> usize {
        self.inner.calls.available_permits()
    }
}

impl SandboxInner {
    /// Keeps the ticker running, whose ticks end guests that run too long. The caller must hold the returned guard as
    /// long as its guest lives.
    pub(crate) fn keep_ticking(&self) -> TickerGuard {
        self.ticker.enter()
    }
}

fn start_engine(sandbox: &SandboxConfig) -> wasmtime::Result<Engine> {
    Engine::new(&pooling_config(sandbox)).or_else(|error| {
        let engine = Engine::new(&compile_settings(Effort::Full))?;
        let reason = error_chain(&error);
        tracing::warn!(%reason, "calls of plugins are slower: the address space for their memories cannot be reserved");
        Ok(engine)
    })
}

fn pooling_config(sandbox: &SandboxConfig) -> Config {
    let at_once = sandbox.calls_in_flight.saturating_add(MAX_PREPARATIONS);
    let is_measured = sandbox.meter.as_ref().is_some_and(|meter| meter.measures_memory);
    let resident = if is_measured { (0, 0) } else { RESIDENT_SIZES };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(at_once.saturating_mul(per_call::COMPONENT_INSTANCES))
        .total_core_instances(at_once.saturating_mul(per_call::CORE_INSTANCES))
        .total_memories(at_once.saturating_mul(per_call::MEMORIES))
        .total_tables(at_once.saturating_mul(per_call::TABLES))
        .total_stacks(at_once.saturating_mul(per_call::STACKS))
        .max_core_instances_per_component(per_call::CORE_INSTANCES)
        .max_memories_per_component(per_call::MEMORIES)
        .max_tables_per_component(per_call::TABLES)
        .max_tables_per_module(per_call::TABLES)
        .max_memories_per_module(per_call::MEMORIES)
        .table_elements(per_call::TABLE_ELEMENTS)
        // The pool allows a page more than a plugin's memory limit, because a snapshot has a page more than the plugin.
        .max_memory_size(sandbox.max_memory_limit.saturating_add(crate::store::PAGE_SIZE))
        // A slot keeps its memory pages when a call ends. If the next call is of the same plugin, the pages only have
        // to be reset, and need not be mapped again.
        .max_unused_warm_slots(at_once)
        .linear_memory_keep_resident(resident.0)
        .table_keep_resident(resident.1)
        // Only pages that the last call has written are reset. Linux before version 6.7 cannot report these pages;
        // there, all pages are reset.
        .pagemap_scan(Enabled::Auto);

    let mut config = compile_settings(Effort::Full);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Effort {
    /// The compiler spends as little time as possible, because the code runs only once, in `describe` or `configure`.
    Least,
    Full,
}

/// Creates the settings for compiling with a given effort, in this process or in a compiler process. The engine that
/// runs the code may have another effort than the engine that compiled it.
pub(crate) fn compile_settings(effort: Effort) -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(match effort {
            Effort::Least => OptLevel::None,
            Effort::Full => OptLevel::Speed,
        })
        .epoch_interruption(true)
        .concurrency_support(false)
        .gc_support(false)
        .memory_init_cow(true)
        .signals_based_traps(true)
        // An error keeps at most one frame of its backtrace. This is enough for `failure_from_error`, which needs to
        // know only whether the guest was running when the error occurred.
        .wasm_backtrace_max_frames(Some(NonZeroUsize::MIN))
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

pub(crate) fn error_chain(error: &wasmtime::Error) -> String {
    format!("{error:#}")
}

fn start_ticker(engine: &Engine) -> Result<Ticker, Error> {
    let engine = engine.weak();
    let tick: Tick = Box::new(move || {
        let engine = engine.upgrade();
        engine.inspect(|engine| engine.increment_epoch()).is_some()
    });
    Ticker::start(IDLE_TICKS, [("plugin-ticker".to_owned(), tick)]).map_err(Error::Ticker)
}
