//! Runs all tests on a busy machine.

use std::{
    env,
    ffi::OsString,
    io::{self, Read as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use clap::Args;

use crate::{
    command::{Error, say},
    suite,
};

#[derive(Debug, Args)]
pub(crate) struct ProxyLoad {
    /// The number of processes that keep the processor busy during the tests.
    #[arg(long, default_value_t = 10)]
    processes: usize,
    /// The number of runs of the tests.
    #[arg(long, default_value_t = 3)]
    times: usize,
    /// Passed on to `cargo test`.
    #[arg(last = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(arguments: &ProxyLoad, servers: &[(&'static str, PathBuf)]) -> Result<(), Error> {
    let _busy = (0..arguments.processes)
        .map(|_| BusyProcess::start())
        .collect::<Result<Vec<_>, _>>()?;
    let mut failures = Vec::new();
    for time in 1..=arguments.times {
        say(&format!(
            "Run {time} of {}, next to {} busy processes",
            arguments.times, arguments.processes
        ));
        failures.extend(suite::run(arguments.rest.clone(), servers.iter().cloned()).err());
    }
    say(&format!(
        "{} of {} runs passed",
        arguments.times - failures.len(),
        arguments.times
    ));
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// A process that keeps one core busy. It ends when its standard input is closed, which also happens if this program is
/// killed.
struct BusyProcess(Child);

impl BusyProcess {
    fn start() -> Result<Self, Error> {
        let program = env::current_exe().map_err(|source| Error::Start {
            program: "cargo task".into(),
            source,
        })?;
        let child = Command::new(&program)
            .arg("busy")
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start {
                program: program.into(),
                source,
            })?;
        Ok(Self(child))
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn be_busy() {
    let input = thread::spawn(|| io::stdin().lock().read_to_end(&mut Vec::new()));
    let mut number: u64 = 1;
    while !input.is_finished() {
        for _ in 0..1_000_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}
