//! WASI for plugins: clocks, randomness, standard streams, and the environment that the stage grants.

use std::time::Instant;

use wasmtime::component::Linker;
use wasmtime_wasi::{
    HostMonotonicClock, WasiCtx, WasiCtxView, WasiView,
    cli::{WasiCli, WasiCliView as _},
    p2::bindings::{cli, random},
    random::{WasiRandom, WasiRandomView as _},
};

use super::{logging::Stream, stdio::StandardStream};
use crate::store::CallState;

/// The maximum number of bytes that a guest gets from one call of `get-random-bytes`.
const MAX_RANDOM: u64 = 64 << 10;

/// Links all interfaces of WASI except the one for environment variables, which `link_environment` links.
pub(super) fn link(into: &mut Linker<CallState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(into)?;
    // `add_to_linker_proxy_interfaces_async` leaves out these interfaces, but Rust's standard library needs them.
    cli::exit::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_input::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_output::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_stdin::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_stdout::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    cli::terminal_stderr::add_to_linker::<_, WasiCli>(into, CallState::cli)?;
    random::insecure::add_to_linker::<_, WasiRandom>(into, CallState::random)?;
    random::insecure_seed::add_to_linker::<_, WasiRandom>(into, CallState::random)
}

pub(super) fn link_environment(into: &mut Linker<CallState>) -> wasmtime::Result<()> {
    cli::environment::add_to_linker::<_, WasiCli>(into, CallState::cli)
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
                .max_random_size(MAX_RANDOM);
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

/// A monotonic clock that starts at 0 with the call.
struct CallClock(Instant);

impl HostMonotonicClock for CallClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
