//! Compiles modules in a separate process.
//!
//! The author of a module determines how much time and memory its compilation takes, and a compiling thread cannot be
//! stopped. So each compilation runs in its own process, limited by the operating system. It reads the module from
//! standard input and writes the result to standard output. Its environment is empty, and before it reads the module,
//! it gives up every system call except those for memory, threads and its standard streams: it can open no files or
//! sockets, and start no programs.

use std::{
    io::{self, Read as _, Write as _},
    num::NonZero,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{ExitCode, ExitStatus, Stdio},
    sync::Once,
    thread,
};

use admittance_admission::lower_priority;
use bytes::Bytes;
use rayon::ThreadPoolBuilder;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};
use wasmtime::Engine;

use crate::{
    Error, SandboxConfig,
    confinement::confine,
    engine::{Effort, compile_settings, error_chain},
    kubewarden::CORE_MODULE_MAGIC,
};

const COMMAND: &str = "compile";

/// The exit code of a compiler process that refuses the component. Its standard output then contains the reason.
const REFUSED_EXIT_CODE: u8 = 3;

/// The exit code of a compiler process whose parent has died.
const ORPHANED_EXIT_CODE: i32 = 4;

/// The maximum size of the code that a compiler process returns, in bytes. The code of Python's interpreter has 90 MiB.
const MAX_ARTIFACT: u64 = 512 << 20;

/// Begins the line with which a compiler process reports that it is not confined.
const UNCONFINED_PREFIX: &str = "unconfined: ";

const MAX_STDERR: u64 = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Job {
    /// The size of the component in bytes. The compiler process reads this many bytes from its standard input. It
    /// cannot read until the end of the input, because the parent process keeps the input open as long as it lives.
    size: usize,
    memory: u64,
    /// The limit of the processor time of all threads of the compiler process together, in seconds.
    cpu_seconds: u64,
    effort: Effort,
    in_background: bool,
}

/// Runs this process as a compiler. Programs must call this when started with the arguments `compile` and `job`.
///
/// The process must do nothing else: this function limits it, and uses its standard input and output.
pub fn compile(job: &str) -> ExitCode {
    let outcome = serde_json::from_str(job)
        .map_err(|error| format!("`{job}` is not a valid job for a compiler: {error}"))
        .and_then(|job: Job| compile_job(&job));
    let (answer, code) = match outcome {
        Ok(Ok(artifact)) => (artifact, ExitCode::SUCCESS),
        Ok(Err(refusal)) => (refusal.into_bytes(), ExitCode::from(REFUSED_EXIT_CODE)),
        Err(error) => {
            // The message is for the parent process, or for a user who runs the command by hand.
            let _ = writeln!(io::stderr(), "{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&answer).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Compiles a component. An inner error is the reason why the component is refused. An outer error means that this
/// process failed, for example because it could not set its limits.
#[allow(clippy::disallowed_methods, reason = "the compiler is a process of its own")]
fn compile_job(job: &Job) -> Result<Result<Vec<u8>, String>, String> {
    set_limits(job).map_err(|error| format!("the limits of the compiler cannot be set: {error}"))?;
    // The number of cores is read first, because it comes from files, which the confined process cannot open.
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    if let Err(error) = confine() {
        let _ = writeln!(io::stderr(), "{UNCONFINED_PREFIX}{error}");
    }
    if !job.in_background {
        ThreadPoolBuilder::new()
            .num_threads(cores)
            .build_global()
            .map_err(|error| format!("the threads of the compiler cannot be started: {error}"))?;
    }
    let mut component = vec![0; job.size];
    let mut stdin = io::stdin();
    stdin
        .read_exact(&mut component)
        .map_err(|error| format!("the component cannot be read: {error}"))?;
    // The parent process keeps the standard input of this process open. If the input ends, the parent process has died.
    // `PR_SET_PDEATHSIG` is not a replacement: it takes effect as soon as the parent's thread ends.
    thread::Builder::new()
        .name("parent-watch".to_owned())
        .spawn(move || {
            let _ = io::copy(&mut stdin, &mut io::sink());
            std::process::exit(ORPHANED_EXIT_CODE);
        })
        .map_err(|error| format!("the thread that watches the parent cannot be started: {error}"))?;
    let mut settings = compile_settings(job.effort);
    settings.parallel_compilation(!job.in_background);
    let engine = Engine::new(&settings).map_err(|error| error_chain(&error))?;
    Ok(precompile(&engine, &component).map_err(|error| error_chain(&error)))
}

pub(crate) fn precompile(engine: &Engine, module: &[u8]) -> wasmtime::Result<Vec<u8>> {
    if module.starts_with(CORE_MODULE_MAGIC) {
        engine.precompile_module(module)
    } else {
        engine.precompile_component(module)
    }
}

fn set_limits(job: &Job) -> io::Result<()> {
    // If memory runs out in spite of the limits, the kernel should kill this process before its parent.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if job.in_background {
        lower_priority();
    }
    for (resource, limit) in [
        (Resource::Data, job.memory),
        (Resource::Cpu, job.cpu_seconds),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ] {
        setrlimit(
            resource,
            Rlimit {
                current: Some(limit),
                // The hard limit is one above the soft limit, which is one second for processor time. At the soft
                // limit, the process gets a signal. If the process still runs at the hard limit, the kernel kills it.
                maximum: Some(limit.saturating_add(1)),
            },
        )?;
    }
    Ok(())
}

/// Compiles a component in a separate process, which is killed when the future is dropped.
pub(crate) async fn compile_in_child_process(
    program: &Path,
    config: &SandboxConfig,
    component: &[u8],
    effort: Effort,
    in_background: bool,
) -> Result<Bytes, Error> {
    let job = Job {
        size: component.len(),
        memory: config.compile_memory,
        cpu_seconds: config.compile_time.as_secs().max(1),
        effort,
        in_background,
    };
    let compiler_error = |error: io::Error| Error::Compiler(error.to_string());
    let mut child = Command::new(program)
        .arg(COMMAND)
        .arg(serde_json::to_string(&job).map_err(|error| Error::Compiler(error.to_string()))?)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Error::Compiler(format!("{} cannot be started: {error}", program.display())))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Error::Compiler("it has no standard streams".to_owned()));
    };
    // If the compiler process exits early, this write fails. The error is ignored, because the exit status of the
    // process gives the reason.
    let send_component = async {
        let _ = stdin.write_all(component).await;
        stdin
    };
    let (stdin, answer, stderr_tail) = tokio::join!(
        send_component,
        read_at_most(stdout, MAX_ARTIFACT),
        read_at_most(stderr, MAX_STDERR)
    );
    let (answer, stderr_tail) = (answer.map_err(compiler_error)?, stderr_tail.map_err(compiler_error)?);
    if answer.len() as u64 > MAX_ARTIFACT {
        return Err(Error::CompileLimit(format!("{MAX_ARTIFACT} bytes of code")));
    }
    let status = child.wait().await.map_err(compiler_error)?;
    drop(stdin);
    let stderr_tail = String::from_utf8_lossy(&stderr_tail);
    let stderr_tail = log_and_strip_notice(&stderr_tail);
    match status.code() {
        Some(0) => Ok(answer.into()),
        Some(code) if code == i32::from(REFUSED_EXIT_CODE) => Err(Error::from_compile_failure(
            String::from_utf8_lossy(&answer).into_owned(),
        )),
        _ => Err(process_error(status, stderr_tail, &job)),
    }
}

fn log_and_strip_notice(stderr_tail: &str) -> &str {
    static LOGGED: Once = Once::new();
    let Some(notice) = stderr_tail.strip_prefix(UNCONFINED_PREFIX) else {
        return stderr_tail;
    };
    let (why, rest) = notice.split_once('\n').unwrap_or((notice, ""));
    LOGGED.call_once(|| {
        tracing::warn!(
            why,
            "the kernel cannot keep compilers of modules from files and sockets; their memory and time are limited"
        );
    });
    rest
}

async fn read_at_most(pipe: impl AsyncRead + Unpin, max_size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(max_size.saturating_add(1)).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn process_error(status: ExitStatus, stderr_tail: &str, job: &Job) -> Error {
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return Error::CompileLimit(format!("{} s of processor time", job.cpu_seconds));
    }
    // A failed allocation aborts the process with one of these messages.
    let no_memory = ["memory allocation of", "Cannot allocate memory", "os error 12"];
    if no_memory.iter().any(|text| stderr_tail.contains(text)) {
        return Error::CompileLimit(format!("{} bytes of memory", job.memory));
    }
    let first_line = stderr_tail
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    Error::Compiler(format!("{status}: {first_line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_errors_after_the_notice_of_missing_confinement_are_reported() {
        for (stderr, expected) in [
            ("", ""),
            (
                "memory allocation of 9 bytes failed\n",
                "memory allocation of 9 bytes failed\n",
            ),
            ("unconfined: no seccomp\n", ""),
            ("unconfined: no seccomp\nit broke\n", "it broke\n"),
        ] {
            assert_eq!(log_and_strip_notice(stderr), expected);
        }
    }
}
