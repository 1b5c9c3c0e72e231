use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_admission::{Deadline, FailureKind, Grants, ResponseRecorder, UserInfo, thread_time};
use wasmtime::{ResourceLimiter, Store, UpdateDeadline, component::ResourceTable};
use wasmtime_wasi::WasiCtx;

use crate::{
    CallLimits,
    capabilities::logging::CallLog,
    engine::{SandboxInner, per_call},
    kubewarden::{MessageExchange, PolicyCache},
};

pub(crate) const PAGE_SIZE: usize = 64 << 10;

/// The maximum number of host resources in a call, such as streams and clocks. A typical call needs only a few.
const MAX_HANDLES: usize = 256;

/// The number of bytes of lists and records that the host may copy out of a guest, in addition to the strings in them.
const COPY_SLACK: usize = 64 << 10;

/// A violation of the sandbox's rules by a guest. The guest traps, and the call fails with this error.
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

pub(crate) struct CallState {
    pub(crate) sandbox: Arc<SandboxInner>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) user: UserInfo,
    pub(crate) recorder: Option<ResponseRecorder>,
    /// Whether a plugin is being prepared, which means that `describe` or `configure` is called. The plugin has no
    /// grants in these calls.
    pub(crate) preparing: bool,
    pub(crate) started: Instant,
    /// The times at which the instance was ready and at which the guest answered. They are set only for a meter.
    guest: (Option<Instant>, Option<Instant>),
    pub(crate) deadline: Deadline,
    pub(crate) log: CallLog,
    pub(crate) output: usize,
    pub(crate) exchange: MessageExchange,
    pub(crate) cache: Arc<PolicyCache>,
    memory: StoreMemory,
    pub(crate) table: ResourceTable,
    /// The WASI context. Many guests never use WASI, so the context is created on first use.
    pub(crate) wasi: Option<WasiCtx>,
}

struct StoreMemory {
    limit: usize,
    used: usize,
}

pub(crate) struct StoreParameters<'a> {
    pub(crate) log: CallLog,
    pub(crate) limits: &'a CallLimits,
    pub(crate) grants: &'a Arc<Grants>,
    pub(crate) user: &'a UserInfo,
    pub(crate) recorder: Option<&'a ResponseRecorder>,
    pub(crate) deadline: Deadline,
    /// The guest is stopped when this thread's processor time reaches this value. So the guest must stay on the thread.
    pub(crate) processor_time: Option<Duration>,
    pub(crate) preparing: bool,
}

impl CallState {
    pub(crate) fn new_store(sandbox: &Arc<SandboxInner>, call: StoreParameters<'_>) -> Store<Self> {
        let StoreParameters {
            log,
            limits,
            grants,
            user,
            recorder,
            deadline,
            processor_time,
            preparing,
        } = call;
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        let state = Self {
            sandbox: Arc::clone(sandbox),
            grants: Arc::clone(grants),
            user: if grants.may_check_own_access() {
                user.clone()
            } else {
                UserInfo::default()
            },
            recorder: recorder.cloned(),
            preparing,
            started: Instant::now(),
            guest: (None, None),
            deadline,
            log,
            output: limits.output,
            exchange: MessageExchange::default(),
            cache: Arc::default(),
            memory: StoreMemory {
                limit: limits.memory,
                used: 0,
            },
            table,
            wasi: None,
        };
        let mut store = Store::new(&sandbox.engine, state);
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(limits.output.saturating_add(COPY_SLACK));
        store.set_max_component_handles(MAX_HANDLES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |context| {
            if let Some(limit) = processor_time
                && thread_time() >= limit
            {
                return Err(Violation::error(
                    FailureKind::Timeout,
                    "it used all of the processor time that it may use",
                ));
            }
            // The runtime's timers are late when all its workers are busy, so the deadline is checked here as well.
            if context.data().deadline.has_passed() {
                return Err(timeout_error());
            }
            // tokio's own `yield_now` also lets the runtime poll I/O and timers, in contrast to wasmtime's plain yield.
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }

    pub(crate) fn record_guest_start(&mut self) {
        if self.sandbox.config.meter.is_some() {
            self.guest.0 = Some(Instant::now());
        }
    }

    pub(crate) fn record_guest_end(&mut self) {
        if self.sandbox.config.meter.is_some() {
            self.guest.1 = Some(Instant::now());
        }
    }

    pub(crate) fn guest_start_and_end(&self) -> Option<(Instant, Instant)> {
        self.guest.0.zip(self.guest.1)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn memory_limit(&self) -> usize {
        self.memory.limit
    }

    pub(crate) fn has_no_open_resources(&self) -> bool {
        self.table.is_empty()
    }

    /// Gives the guest its stage's grants. This is called when an instance has run `configure` and will run `admit`.
    pub(crate) fn apply_grants(&mut self) {
        self.preparing = false;
        // The WASI context was created without the grants. It is created again when it is needed next, now with the
        // granted environment. Streams that are already open stay as they are.
        self.wasi = None;
    }

    /// Lets each memory grow one page beyond its limit, because wizer adds a page to it.
    pub(crate) fn make_room_for_snapshot(&mut self) {
        self.memory.limit = self
            .memory
            .limit
            .saturating_add(usize::from(per_call::MEMORIES as u8) * PAGE_SIZE);
    }
}

pub(crate) fn timeout_error() -> wasmtime::Error {
    Violation::error(FailureKind::Timeout, "the plugin gave no verdict in time")
}

impl ResourceLimiter for StoreMemory {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            // The memory has reached the maximum that the module itself declares, which is not an error of the host.
            return Ok(false);
        }
        let desired_total = self.used.saturating_add(desired.saturating_sub(current));
        if desired_total > self.limit {
            return Err(Violation::error(
                FailureKind::Memory,
                format!(
                    "the plugin asked for {desired_total} bytes of memory; the limit is {}",
                    self.limit
                ),
            ));
        }
        self.used = desired_total;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > per_call::TABLE_ELEMENTS {
            return Err(Violation::error(
                FailureKind::Memory,
                format!(
                    "the plugin asked for a table of {desired} elements; the limit is {}",
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
