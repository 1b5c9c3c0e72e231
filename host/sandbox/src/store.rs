use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_admission::{Deadline, FailureKind, Grants};
use wasmtime::{ResourceLimiter, Store, UpdateDeadline, component::ResourceTable};
use wasmtime_wasi::{HostMonotonicClock, WasiCtx, WasiCtxView, WasiView};

use crate::{
    engine::{Inner, per_call},
    logging::{CallLog, LogLimits, Stream},
    stdio::StandardStream,
};

/// A page of a guest's memory, in bytes.
pub(crate) const PAGE: usize = 64 << 10;

/// Handles to the host's resources that a call may hold: streams and clocks, a handful in practice.
const HANDLES: usize = 256;

/// What the host copies out of a guest for one function besides the texts that are limited: the
/// lists and records that hold them.
const COPY_SLACK: usize = 64 << 10;

/// The most that one `get-random-bytes` gives, in bytes.
const RANDOM_MAX: u64 = 64 << 10;

/// What one call of a plugin may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes, all memories of the plugin together. Default 64 MiB.
    pub memory: usize,
    /// Time from the call to the verdict, waiting for a slot included; a shorter deadline of the
    /// chain counts before it. Default 1 s.
    pub time: Duration,
    /// Bytes of all texts of a response. Default 1 MiB.
    pub output: usize,
    /// What it may log.
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

/// A call broke one of the sandbox's rules. Traps the guest, and is found again as the cause.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Violation {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

impl Violation {
    pub(crate) fn error(kind: FailureKind, message: impl Into<String>) -> wasmtime::Error {
        wasmtime::Error::new(Self {
            kind,
            message: message.into(),
        })
    }
}

/// What belongs to one call. Lives as long as its instance.
pub(crate) struct CallState {
    pub(crate) sandbox: Arc<Inner>,
    pub(crate) grants: Arc<Grants>,
    /// Whether this is `describe` or `configure`, when nothing is granted.
    pub(crate) preparing: bool,
    started: Instant,
    pub(crate) deadline: Deadline,
    pub(crate) log: CallLog,
    pub(crate) output: usize,
    memory: Memory,
    table: ResourceTable,
    /// Made when the guest first asks for something of WASI's; many never do.
    wasi: Option<WasiCtx>,
}

struct Memory {
    limit: usize,
    used: usize,
}

/// What a new store is made for.
pub(crate) struct Call<'a> {
    pub(crate) plugin: &'a Arc<str>,
    pub(crate) uid: String,
    pub(crate) limits: &'a Limits,
    pub(crate) grants: &'a Arc<Grants>,
    pub(crate) deadline: Deadline,
    pub(crate) preparing: bool,
}

impl CallState {
    /// A store with every limit set. It is used for one call, and thrown away.
    pub(crate) fn store(sandbox: &Arc<Inner>, call: Call<'_>) -> Store<Self> {
        let Call {
            plugin,
            uid,
            limits,
            grants,
            deadline,
            preparing,
        } = call;
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        let state = Self {
            sandbox: Arc::clone(sandbox),
            grants: Arc::clone(grants),
            preparing,
            started: Instant::now(),
            deadline,
            log: CallLog::new(Arc::clone(plugin), uid, limits.log),
            output: limits.output,
            memory: Memory {
                limit: limits.memory,
                used: 0,
            },
            table,
            wasi: None,
        };
        let mut store = Store::new(&sandbox.engine, state);
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(limits.output.saturating_add(COPY_SLACK));
        store.set_max_component_handles(HANDLES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|context| {
            // A runtime whose workers are all busy is late with its timers: look at the clock here.
            if context.data().deadline.has_passed() {
                return Err(out_of_time());
            }
            // Unlike a bare yield, this lets the runtime look for new input and for timers too.
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }

    /// Whether the guest holds no handle of the host's.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.table.is_empty()
    }

    /// `configure` is over and `admit` follows in the same instance: what is granted is there from now.
    pub(crate) fn grant(&mut self) {
        self.preparing = false;
        // Made again with the environment; streams that are open stay as they are.
        self.wasi = None;
    }

    /// Let each memory grow by one page beyond the limit: snapshotting puts its own data there.
    pub(crate) fn make_room_for_snapshot(&mut self) {
        self.memory.limit = self
            .memory
            .limit
            .saturating_add(usize::from(per_call::MEMORIES as u8) * PAGE);
    }
}

/// The call's time is up.
pub(crate) fn out_of_time() -> wasmtime::Error {
    Violation::error(FailureKind::Timeout, "the plugin gave no verdict in time")
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Self {
            wasi,
            table,
            log,
            grants,
            preparing,
            started,
            ..
        } = self;
        let ctx = wasi.get_or_insert_with(|| {
            let mut builder = WasiCtx::builder();
            builder
                .stdout(StandardStream::new(log.clone(), Stream::Out))
                .stderr(StandardStream::new(log.clone(), Stream::Err))
                .monotonic_clock(CallClock(*started))
                .allow_udp(false)
                .allow_tcp(false)
                .max_random_size(RANDOM_MAX);
            if !*preparing {
                for (name, value) in &grants.environment {
                    builder.env(name, value);
                }
            }
            builder.build()
        });
        WasiCtxView { ctx, table }
    }
}

/// Counts from the begin of the call, whenever the guest first asks.
struct CallClock(Instant);

impl HostMonotonicClock for CallClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            // The module's own maximum: its business, and no limit of the host.
            return Ok(false);
        }
        let wanted = self.used.saturating_add(desired.saturating_sub(current));
        if wanted > self.limit {
            return Err(Violation::error(
                FailureKind::Memory,
                format!(
                    "the plugin asked for {wanted} bytes of memory, and {} are allowed",
                    self.limit
                ),
            ));
        }
        self.used = wanted;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > per_call::TABLE_ELEMENTS {
            return Err(Violation::error(
                FailureKind::Memory,
                format!(
                    "the plugin asked for a table of {desired} elements, and {} are allowed",
                    per_call::TABLE_ELEMENTS
                ),
            ));
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        per_call::CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        per_call::TABLES as usize
    }

    fn memories(&self) -> usize {
        per_call::MEMORIES as usize
    }
}
